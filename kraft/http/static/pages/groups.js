// The groups of the cluster, those that lag most first.

import { count, duration } from "../format.js";
import { link } from "../router.js";
import { empty, failed, loading, pill, ServerList, table } from "../ui.js";
import { html, nothing, render } from "../vendor/lit-html.js";

/** Seconds, null if they are not known. */
export const inTime = (seconds) => duration(seconds === null || seconds === undefined ? null : seconds * 1000);

const COLUMNS = [
  { title: "Group", sort: "group_id", cell: (row) => html`<a class="name" href=${link("groups", row.group_id)}>${row.group_id}</a>` },
  { title: "Type", sort: "type", cell: (row) => row.type },
  { title: "State", sort: "state", cell: (row) => state(row) },
  { title: "Members", sort: "members", num: true, cell: (row) => count(row.members) },
  { title: "Lag", sort: "lag", num: true, hint: "records between what is committed and the log's end", cell: (row) => count(row.lag) },
  { title: "Lag in time", sort: "lag_s", num: true, hint: "age of the oldest record that is not read", cell: (row) => inTime(row.lag_s) },
  { title: "Topics", num: true, hint: "that it has committed offsets in", cell: (row) => count(row.topics) },
  { title: "Coordinator", num: true, cell: (row) => html`<a href=${link("brokers", String(row.coordinator))}>${row.coordinator}</a>` },
];
const NUMBERS = new Set(["members", "lag", "lag_s"]);

export default function groups({ query }) {
  const element = document.createElement("div");
  element.className = "groups";
  const list = new ServerList({ path: "/api/groups", first: { sort: "lag", order: "desc" }, query, draw: () => draw() });
  function draw() {
    const { answer, error } = list;
    render(html`<h1>Groups</h1>
      ${error ? failed(error) : nothing}
      ${answer?.unanswered?.length ? html`<p class="note" role="alert">Groups of ${brokers(answer.unanswered)} are missing: no answer.</p>` : nothing}
      <section class="panel" aria-label="Groups"><div class="toolbar">${list.search("Search groups")}${list.pager()}</div>
      ${answer === null ? (error ? nothing : loading()) : rows(answer)}</section>`, element);
  }
  function rows(answer) {
    if (!answer.groups.length) return empty(list.q ? "No group has that in its name." : "There is no group.");
    return table({ label: "Groups", columns: COLUMNS, rows: answer.groups, order: list, onsort: (key) => list.sortBy(key, NUMBERS.has(key)), rowClass: (row) => (row.stands_still_since_ms ? "bad" : "") });
  }
  draw();
  return { element, close: () => list.close() };
}

const BUSY = new Set(["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"]);

/** A group's state, and since when it commits nothing although there is something to read. */
export function state(row) {
  const kind = row.state === "Dead" ? "bad" : BUSY.has(row.state) ? "warn" : row.state === "Stable" ? "good" : "";
  const since = row.stands_still_since_ms;
  return html`${pill(kind, row.state)} ${since ? pill("bad", `stands still for ${duration(Math.max(Date.now() - since, 0))}`) : nothing}`;
}

const brokers = (ids) => `${ids.length === 1 ? "broker" : "brokers"} ${ids.join(", ")}`;
