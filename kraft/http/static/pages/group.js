// One group: who is in it, what they read, and how far behind it is by partition and over the last hour.

import { DataTable } from "./data_table.js";
import { count } from "../format.js";
import { follow } from "../live.js";
import { link } from "../router.js";
import { fetchJson, h, timeOf } from "./dom.js";
import { inTime, state } from "./groups.js";
import { lagChart } from "./lag_chart.js";

const HISTORY_MS = 60_000;
const PARTITIONS_SHOWN = 500;

/** `id`: the group. */
export default function group({ id }) {
  const page = new Group(id);
  return { element: page.element, close: () => page.close() };
}

class Group {
  constructor(id) {
    this.id = id;
    this.path = `/api/groups/${encodeURIComponent(id)}`;
    this.isClosed = false;
    this.facts = h("dl", { class: "message-facts" });
    this.charts = h("div", { class: "lag-charts" });
    this.problems = h("p", { class: "messages-problems", role: "alert", hidden: true });
    this.more = h("p", { class: "nothing", hidden: true });
    this.members = new DataTable({
      caption: "Members",
      sort: "client_id",
      empty: "The group has no member.",
      columns: [
        { key: "client_id", title: "Client" },
        { key: "client_host", title: "Host" },
        { key: "member_id", title: "Member", cell: (row) => h("span", { class: "id" }, row.instance_id === null ? row.member_id : `${row.member_id} (instance ${row.instance_id})`) },
        { key: "member_epoch", title: "Epoch", number: true, cell: (row) => row.member_epoch },
        { key: "subscribed_topics", title: "Subscribed", sorts: false, cell: (row) => (row.subscribed_topics ?? []).join(", ") || null },
        { key: "assignment", title: "Assigned", sorts: false, cell: assigned },
      ],
    });
    this.partitions = new DataTable({
      caption: "Partitions",
      sort: "lag",
      order: "desc",
      empty: "The group has committed nothing.",
      columns: [
        { key: "topic", title: "Topic", cell: (row) => h("a", { href: link("topics", row.topic) }, row.topic) },
        { key: "partition", title: "Partition", number: true },
        { key: "offset", title: "Committed", number: true, cell: (row) => messagesAt(row) },
        { key: "log_end_offset", title: "Log end", number: true, cell: (row) => count(row.log_end_offset) },
        { key: "lag", title: "Lag", number: true, cell: (row) => count(row.lag) },
        { key: "lag_s", title: "Lag in time", number: true, cell: (row) => inTime(row.lag_s) },
        { key: "member_id", title: "Member", cell: (row) => (row.member_id ? h("span", { class: "id" }, row.member_id) : null) },
      ],
    });
    this.element = h("div", { class: "group-page" },
      h("h1", {}, "Group ", h("span", { class: "name" }, id)), this.problems, this.facts, this.charts,
      h("h2", {}, "Members"), this.members.element, h("h2", {}, "Partitions"), this.partitions.element, this.more);
    this.load();
    this.timer = setInterval(() => document.hidden || this.load(), HISTORY_MS);
    this.off = follow(`group:${id}`, (data) => this.told(data));
  }

  close() {
    this.isClosed = true;
    clearInterval(this.timer);
    this.aborter?.abort();
    this.off();
  }

  async load() {
    this.aborter?.abort();
    this.aborter = new AbortController();
    try {
      const answer = await fetchJson(this.path, this.aborter.signal);
      if (this.isClosed) return;
      this.told(answer);
      const { lag, lag_s, step_ms } = answer.history;
      this.charts.replaceChildren(lagChart("Lag in records", lag, step_ms), lagChart("Lag in time", lag_s, step_ms, inTime));
    } catch (error) {
      if (error.name !== "AbortError" && !this.isClosed) this.fail(error.message);
    }
  }

  told(data) {
    if (data.error) return this.fail(data.error);
    this.problems.hidden = true;
    const facts = [
      ["State", state(data)],
      ["Type", data.type],
      ["Protocol", data.protocol_type],
      ["Assignor", data.assignor],
      ["Epoch", data.group_epoch === null ? null : `${data.group_epoch}${data.assignment_epoch !== data.group_epoch && data.assignment_epoch !== null ? ` (assigned: ${data.assignment_epoch})` : ""}`],
      ["Coordinator", h("a", { href: link("brokers", String(data.coordinator)) }, `broker ${data.coordinator}`)],
      ["Lag", `${count(data.lag)} records, ${inTime(data.lag_s)}`],
      ["Measured", data.measured_at_ms ? timeOf(data.measured_at_ms) : null],
    ];
    this.facts.replaceChildren(...facts.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    this.members.set(data.member_rows);
    const rows = [...data.partition_rows].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1)).slice(0, PARTITIONS_SHOWN);
    this.partitions.set(rows);
    const left = data.partition_rows.length - rows.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `${count(left)} partitions that lag less are left out.`;
  }

  fail(sentence) {
    this.problems.hidden = false;
    if (this.problems.textContent !== sentence) this.problems.textContent = sentence;
  }
}

/** The next record that the group reads, for a look. */
function messagesAt(row) {
  if (row.offset === null || row.offset < 0) return null;
  const params = new URLSearchParams({ partition: row.partition, offset: row.offset });
  return h("a", { href: `${link("topics", row.topic, "messages")}?${params}`, title: "show the messages from here on" }, count(row.offset));
}

/** orders 0-2, 5; what is to come is told where it differs. */
function assigned(row) {
  const now = assignment(row.assignment);
  const target = row.target_assignment === null || row.target_assignment === undefined ? now : assignment(row.target_assignment);
  return now === target ? now || null : `${now || "nothing"} \u2192 ${target || "nothing"}`;
}

function assignment(topics) {
  return (topics ?? []).map((one) => `${one.topic} ${ranges(one.partitions)}`).join("; ");
}

function ranges(numbers) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last !== undefined && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}\u2013${to}`)).join(", ");
}
