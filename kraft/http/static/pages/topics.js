// The topics, paged, sorted and searched by the node.

import { html, nothing, render } from "../vendor/lit-html.js";
import { byteRate, bytes, count, rate, retention } from "../format.js";
import { link, setQuery } from "../router.js";
import { alarm, empty, failed, loading, notMeasured, pill, ServerList, table } from "../ui.js";

const COLUMNS = [
  { title: "Topic", sort: "name", cell: (row) => html`<a class="name" href=${link("topics", row.name)}>${row.name}</a>${row.is_internal ? html` ${pill("", "internal")}` : nothing}` },
  { title: "Partitions", num: true, sort: "partitions", cell: (row) => count(row.partitions) },
  { title: "RF", num: true, hint: "replication factor", sort: "replication_factor", cell: (row) => row.replication_factor },
  { title: "Offline", num: true, sort: "offline", cell: (row) => alarm(row.offline) },
  { title: "< min ISR", num: true, hint: "partitions under min.insync.replicas", sort: "under_min_isr", cell: (row) => alarm(row.under_min_isr) },
  { title: "URP", num: true, hint: "under-replicated partitions", sort: "under_replicated", cell: (row) => alarm(row.under_replicated, "warn") },
  { title: "Not preferred", num: true, hint: "partitions that their preferred replica does not lead", sort: "not_preferred", cell: (row) => alarm(row.not_preferred, "warn") },
  { title: "Messages", num: true, sort: "messages_in_per_s", cell: (row) => rate(row.messages_in_per_s) },
  { title: "In", num: true, sort: "bytes_in_per_s", cell: (row) => byteRate(row.bytes_in_per_s) },
  { title: "Out", num: true, sort: "bytes_out_per_s", cell: (row) => byteRate(row.bytes_out_per_s) },
  { title: "Records", num: true, hint: "high watermarks less log starts", sort: "records", cell: (row) => count(row.records) },
  { title: "Size", num: true, sort: "size_bytes", cell: (row) => bytes(row.size_bytes) },
  { title: "Retention", cell: (row) => html`<span class="dim">${retention(row)}</span>` },
];

export default function page({ query }) {
  const element = document.createElement("div");
  let withInternal = query.get("internal") !== "false";
  const draw = () => render(view(), element);
  const list = new ServerList({
    path: "/api/topics",
    first: { sort: "name", order: "asc" },
    query,
    draw,
    fixed: { internal: String(withInternal) },
  });
  const internal = (event) => {
    withInternal = event.target.checked;
    list.fix({ internal: String(withInternal) });
    setQuery({ internal: withInternal ? null : "false" });
  };
  const view = () => html`<h1>Topics</h1>${list.error ? failed(list.error) : nothing}${list.answer ? notMeasured(list.answer) : nothing}
    <section class="panel" aria-label="Topics"><div class="toolbar">${list.search("Search topics")}
      <label><input type="checkbox" .checked=${withInternal} @change=${internal}> internal</label>${list.pager()}</div>
      ${rows()}</section>`;
  const rows = () => {
    if (list.answer === null) return list.error ? nothing : loading();
    if (list.answer.topics.length === 0) return empty(list.q ? "No topic has that in its name." : "There is no topic.");
    return table({
      label: "Topics",
      columns: COLUMNS,
      rows: list.answer.topics,
      order: list,
      onsort: (key) => list.sortBy(key, key !== "name"),
      rowClass: (row) => (row.offline || row.under_min_isr ? "bad" : row.under_replicated ? "warn" : ""),
    });
  };
  draw();
  return { element, close: () => list.close() };
}
