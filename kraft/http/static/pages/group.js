// One group: who is in it, what they read, and how far behind it is by partition and over the last hour.

import { Chart } from "../chart.js";
import { ago, count, UNKNOWN } from "../format.js";
import { follow } from "../live.js";
import { link } from "../router.js";
import { copyButton, empty, facts, failed, fetchJson, loading, poll, table } from "../ui.js";
import { html, nothing, render } from "../vendor/lit-html.js";
import { inTime, state } from "./groups.js";

const HISTORY_MS = 30_000;
const ROWS_MAX = 500;

/** `id`: the group. */
export default function group({ id }) {
  const page = new Group(id);
  return { element: page.element, close: () => page.close() };
}

class Group {
  constructor(id) {
    this.id = id;
    this.data = null;
    this.error = null;
    this.order = { sort: "lag", order: "desc" };
    this.charts = [
      ["lag", new Chart({ label: "Lag in records", series: [{ key: "lag", label: "records" }], format: (value) => count(value === null ? null : Math.round(value)) })],
      ["lag_s", new Chart({ label: "Lag in time", series: [{ key: "lag_s", label: "oldest unread" }], format: inTime })],
    ];
    this.element = document.createElement("div");
    this.element.className = "group-page";
    this.asked = poll((signal) => fetchJson(`/api/groups/${encodeURIComponent(id)}`, signal), (answer, error) => this.answered(answer, error), HISTORY_MS);
    this.stop = follow(`group:${id}`, (data) => this.answered(data.error ? null : data, data.error ? new Error(data.error) : null));
    this.draw();
  }

  close() {
    this.asked.close();
    this.stop();
    for (const [, chart] of this.charts) chart.close();
  }

  answered(data, error) {
    this.error = error;
    if (data !== null) this.data = data;
    this.draw();
    if (!data?.history) return;
    const { step_ms, end_at_ms, ...series } = data.history;
    for (const [, chart] of this.charts) chart.update({ step_ms, end_at_ms, series });
  }

  draw() {
    const { data, error } = this;
    render(html`<div class="crumbs"><a href="#/groups">Groups</a><span class="dim">/</span><h1>${this.id}</h1>${copyButton(this.id, "the name")}</div>
      ${error ? failed(error) : nothing}
      ${data === null ? (error ? nothing : loading()) : this.whole(data)}`, this.element);
  }

  whole(data) {
    return html`<section class="panel" aria-label="About the group">${facts(known([
      ["State", state(data)],
      ["Type", data.type],
      ["Protocol", data.protocol_type],
      ["Assignor", data.assignor],
      ["Epoch", epoch(data)],
      ["Coordinator", html`<a href=${link("brokers", String(data.coordinator))}>broker ${data.coordinator}</a>`],
      ["Members", count(data.members)],
      ["Lag", `${count(data.lag)} records`],
      ["Oldest unread", inTime(data.lag_s)],
      ["Measured", data.measured_at_ms ? ago(data.measured_at_ms) : UNKNOWN],
    ]))}</section>
      <section class="panel" aria-label="Lag over the last hour"><div class="charts lag-charts">${this.charts.map(([, chart]) => chart.element)}</div></section>
      <section class="panel" aria-labelledby="members-title"><div class="head"><h2 id="members-title">Members</h2>${left(data.member_rows)}</div>
      ${data.member_rows.length ? table({ label: "Members", columns: MEMBERS, rows: data.member_rows.slice(0, ROWS_MAX) }) : empty("The group has no member.")}</section>
      <section class="panel" aria-labelledby="partitions-title"><div class="head"><h2 id="partitions-title">Partitions</h2>${left(data.partition_rows)}</div>
      ${data.partition_rows.length ? this.partitions(data.partition_rows) : empty("The group has committed nothing.")}</section>`;
  }

  partitions(rows) {
    const { sort, order } = this.order;
    const sign = order === "desc" ? -1 : 1;
    const ordered = [...rows].sort((one, other) => compared(one[sort], other[sort], sign) || compared(one.topic, other.topic, 1) || one.partition - other.partition);
    const onsort = (key) => {
      this.order = { sort: key, order: key === sort ? (order === "asc" ? "desc" : "asc") : NAMES.has(key) ? "asc" : "desc" };
      this.draw();
    };
    return table({ label: "Partitions", columns: PARTITIONS, rows: ordered.slice(0, ROWS_MAX), order: this.order, onsort });
  }
}

const NAMES = new Set(["topic", "partition", "member_id"]);

const MEMBERS = [
  { title: "Client", cell: (row) => row.client_id },
  { title: "Host", cell: (row) => row.client_host },
  { title: "Member", wide: true, cell: (row) => html`<span class="id">${row.member_id}${row.instance_id ? html` <span class="dim">instance ${row.instance_id}</span>` : nothing}</span>` },
  { title: "Epoch", num: true, cell: (row) => count(row.member_epoch) },
  { title: "Subscribed", wide: true, cell: (row) => (row.subscribed_topics ?? []).join(", ") || UNKNOWN },
  { title: "Assigned", wide: true, cell: (row) => assigned(row) },
];

const PARTITIONS = [
  { title: "Topic", sort: "topic", wide: true, cell: (row) => html`<a href=${link("topics", row.topic)}>${row.topic}</a>` },
  { title: "Partition", sort: "partition", num: true, cell: (row) => row.partition },
  { title: "Committed", sort: "offset", num: true, hint: "the next record that the group reads", cell: (row) => committed(row) },
  { title: "Log end", sort: "log_end_offset", num: true, cell: (row) => count(row.log_end_offset) },
  { title: "Lag", sort: "lag", num: true, cell: (row) => count(row.lag) },
  { title: "Lag in time", sort: "lag_s", num: true, cell: (row) => inTime(row.lag_s) },
  { title: "Member", sort: "member_id", wide: true, cell: (row) => html`<span class="id">${row.member_id ?? UNKNOWN}</span>` },
];

/** Unknown values come last, whatever the order. */
function compared(one, other, sign) {
  const unknown = (value) => value === null || value === undefined;
  if (unknown(one) || unknown(other)) return unknown(one) - unknown(other);
  return sign * (typeof one === "string" ? (one < other ? -1 : one > other ? 1 : 0) : one - other);
}

const known = (pairs) => pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");

function epoch({ group_epoch: of, assignment_epoch: assigned_in }) {
  if (of === null || of === undefined) return null;
  return assigned_in === null || assigned_in === undefined || assigned_in === of ? of : `${of}, assigned in ${assigned_in}`;
}

const left = (rows) =>
  rows.length > ROWS_MAX ? html`<span class="dim">${count(rows.length - ROWS_MAX)} of ${count(rows.length)} are left out</span>` : nothing;

/** A link to the messages from there on. */
function committed(row) {
  if (row.offset === null || row.offset < 0) return UNKNOWN;
  const params = new URLSearchParams({ partition: row.partition, offset: row.offset });
  return html`<a href=${`${link("topics", row.topic, "messages")}?${params}`} title="messages from here on">${count(row.offset)}</a>`;
}

/** orders 0–2, 5; what is to come is told where it differs. */
function assigned(row) {
  const now = assignment(row.assignment);
  const target = row.target_assignment ? assignment(row.target_assignment) : now;
  return now === target ? now || UNKNOWN : `${now || "nothing"} → ${target || "nothing"}`;
}

const assignment = (topics) => (topics ?? []).map((one) => `${one.topic} ${ranges(one.partitions)}`).join("; ");

function ranges(numbers) {
  const found = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = found.at(-1);
    if (last !== undefined && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ");
}
