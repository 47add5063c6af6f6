// The groups of the cluster, those that lag most first.

import { DataTable } from "./data_table.js";
import { count, duration } from "../format.js";
import { follow } from "../live.js";
import { link, setQuery } from "../router.js";
import { fetchJson, h } from "./dom.js";

const PAGE_SIZE = 50;
const TYPING_MS = 200;

export default function groups({ query }) {
  const page = new Groups(query ?? new URLSearchParams());
  return { element: page.element, close: () => page.close() };
}

class Groups {
  constructor(query) {
    this.q = query.get("q") ?? "";
    this.page = Math.max(Number(query.get("page")) || 1, 1);
    this.isClosed = false;
    this.table = new DataTable({
      caption: "Groups",
      sort: "lag",
      order: "desc",
      empty: "No group has this name, or there is none.",
      onsort: () => this.turn(1),
      columns: [
        { key: "group_id", title: "Group", cell: (row) => h("a", { href: link("groups", row.group_id) }, row.group_id) },
        { key: "type", title: "Type" },
        { key: "state", title: "State", cell: state },
        { key: "members", title: "Members", number: true, cell: (row) => count(row.members) },
        { key: "lag", title: "Lag", number: true, cell: (row) => count(row.lag) },
        { key: "lag_s", title: "Lag in time", number: true, cell: (row) => inTime(row.lag_s) },
        { key: "topics", title: "Topics", sorts: false, cell: (row) => topics(row.topics) },
        { key: "coordinator", title: "Coordinator", number: true, sorts: false, cell: (row) => row.coordinator },
      ],
    });
    this.search = h("input", { type: "search", value: this.q, placeholder: "part of the name", "aria-label": "search groups", oninput: () => this.typed() });
    this.status = h("p", { class: "messages-status", role: "status" });
    this.problems = h("p", { class: "messages-problems", role: "alert", hidden: true });
    this.before = h("button", { type: "button", onclick: () => this.turn(this.page - 1) }, "Previous");
    this.after = h("button", { type: "button", onclick: () => this.turn(this.page + 1) }, "Next");
    this.element = h("div", { class: "groups" }, h("h1", {}, "Groups"),
      h("div", { class: "toolbar messages-form" }, this.search, this.before, this.after), this.problems, this.status, this.table.element);
    this.off = follow("groups", (data) => this.told(data));
    this.load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.typing);
    this.aborter?.abort();
    this.off();
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      this.q = this.search.value.trim();
      this.turn(1);
    }, TYPING_MS);
  }

  turn(page) {
    this.page = Math.max(page, 1);
    setQuery({ q: this.q || null, page: this.page > 1 ? this.page : null });
    this.load();
  }

  async load() {
    this.aborter?.abort();
    this.aborter = new AbortController();
    const params = new URLSearchParams({ page: this.page, page_size: PAGE_SIZE, sort: this.table.sort, order: this.table.order });
    if (this.q) params.set("q", this.q);
    let answer;
    try {
      answer = await fetchJson(`/api/groups?${params}`, this.aborter.signal);
    } catch (error) {
      if (error.name !== "AbortError" && !this.isClosed) this.fail(error.message);
      return;
    }
    if (this.isClosed) return;
    this.rows = answer.groups;
    this.table.set(this.rows);
    const pages = Math.max(Math.ceil(answer.total / PAGE_SIZE), 1);
    this.before.disabled = this.page <= 1;
    this.after.disabled = this.page >= pages;
    this.status.textContent = `${count(answer.total)} ${answer.total === 1 ? "group" : "groups"}${pages > 1 ? `, page ${this.page} of ${pages}` : ""}`;
    this.unanswered(answer.unanswered);
  }

  /** What the stream tells of those that lag most; groups that come or go are asked for. */
  told(data) {
    if (this.rows === undefined) return;
    const news = new Map(data.groups.map((one) => [one.group_id, one]));
    this.rows = this.rows.map((row) => ({ ...row, ...news.get(row.group_id) }));
    this.table.set(this.rows);
    this.unanswered(data.unanswered);
    const known = new Set(this.rows.map((row) => row.group_id));
    const isOther = data.groups.some((one) => !known.has(one.group_id)) && this.page === 1 && !this.q && this.rows.length < PAGE_SIZE;
    if (isOther || this.rows.some((row) => !news.has(row.group_id) && data.groups.length < 500)) this.load();
  }

  unanswered(brokers) {
    if (!brokers?.length) {
      this.problems.hidden = true;
      return;
    }
    this.fail(`Groups of ${brokers.length === 1 ? "broker" : "brokers"} ${brokers.join(", ")} are missing: no answer.`);
  }

  fail(sentence) {
    this.problems.hidden = false;
    if (this.problems.textContent !== sentence) this.problems.textContent = sentence;
  }
}

/** Seconds, null if they are not known. */
export const inTime = (seconds) => duration(seconds === null || seconds === undefined ? null : seconds * 1000);

const BAD_STATES = new Set(["Dead", "Unknown"]);
const BUSY_STATES = new Set(["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"]);

/** A group's state, and since when it commits nothing although there is something to read. */
export function state(row) {
  const kind = BAD_STATES.has(row.state) ? "bad" : BUSY_STATES.has(row.state) ? "warn" : row.state === "Stable" ? "good" : "";
  const badge = h("span", { class: `pill ${kind}` }, row.state);
  if (row.stands_still_since_ms === null || row.stands_still_since_ms === undefined) return badge;
  const seconds = Math.max((Date.now() - row.stands_still_since_ms) / 1000, 0);
  return h("span", {}, badge, " ", h("span", { class: "pill bad" }, `stands still for ${duration(seconds * 1000)}`));
}

function topics(names) {
  if (!names?.length) return "\u2013";
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}
