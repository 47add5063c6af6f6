// One topic: its partitions with each replica's place, its configs, and who leads.

import { html, nothing, render } from "../vendor/lit-html.js";
import { byteRate, bytes, count, rate, retention } from "../format.js";
import { link } from "../router.js";
import { alarm, configTable, copyButton, empty, facts, failed, fill, loading, notMeasured, pill, ServerList, table } from "../ui.js";

const STATES = { offline: "bad", under_min_isr: "bad", under_replicated: "warn", not_preferred: "", reassigning: "" };
const listed = (ids) => (ids?.length ? ids.join(" ") : html`<span class="dim">–</span>`);

const COLUMNS = [
  { title: "Partition", num: true, sort: "partition", cell: (row) => html`<b>${row.partition}</b>` },
  { title: "Leader", sort: "leader", cell: (row) => (row.leader === -1 ? pill("bad", "none") : html`<a href=${link("brokers", String(row.leader))}>${row.leader}</a>`) },
  { title: "Epoch", num: true, hint: "leader epoch / partition epoch", cell: (row) => html`${row.leader_epoch}<span class="dim"> / ${row.partition_epoch}</span>` },
  { title: "ISR", hint: "in-sync replicas; the rest in red", cell: (row) => html`<span class="mono">${isr(row)}</span>` },
  { title: "ELR", hint: "eligible leader replicas", cell: (row) => html`<span class="mono">${listed(row.elr)}</span>` },
  { title: "Log start", num: true, cell: (row) => count(row.log_start_offset) },
  { title: "High watermark", num: true, cell: (row) => count(row.high_watermark) },
  { title: "Log end", num: true, sort: "log_end_offset", cell: (row) => count(row.log_end_offset) },
  { title: "Lag of replicas", sort: "lag", hint: "records behind the leader's log end", cell: (row) => lags(row) },
  { title: "Size", num: true, sort: "size_bytes", cell: (row) => bytes(row.size_bytes) },
  { title: "State", cell: (row) => states(row) },
];

function isr(row) {
  return row.replicas.map((id) => html`<span class=${row.isr.includes(id) ? "" : "text-bad"} title=${row.isr.includes(id) ? "in sync" : "not in sync"}>${id}${row.isr.includes(id) ? "" : "✗"} </span>`);
}

function lags(row) {
  const others = row.replica_states.filter((replica) => !replica.is_leader);
  if (others.length === 0) return html`<span class="dim">no other replica</span>`;
  return others.map((replica) => html`<span class="mono" title=${`log end ${count(replica.log_end_offset)}, ${bytes(replica.size_bytes)}, ${replica.log_dir ?? "directory not known"}`}><span class="dim">${replica.broker}:</span>${
    replica.lag ? html`<span class=${replica.is_in_isr ? "" : "text-bad"}>${count(replica.lag)}</span>` : replica.is_offline ? html`<span class="text-bad">offline</span>` : replica.lag === null ? html`<span class=${replica.is_in_isr ? "" : "text-bad"}>–</span>` : "0"
  } </span>`);
}

function states(row) {
  const words = row.states.map((state) => pill(STATES[state] ?? "", state.replaceAll("_", " ")));
  const moves = [
    row.adding_replicas?.length ? html`<span class="dim"> adding ${row.adding_replicas.join(" ")}</span>` : nothing,
    row.removing_replicas?.length ? html`<span class="dim"> removing ${row.removing_replicas.join(" ")}</span>` : nothing,
    row.leader_recovery_state === "recovering" ? pill("warn", "recovering") : nothing,
  ];
  return row.states.length ? [...words, ...moves] : [html`<span class="dim">in order</span>`, ...moves];
}

export default function page({ name, query }) {
  const element = document.createElement("div");
  let configs = { q: "", all: false };
  const draw = () => render(view(), element);
  const list = new ServerList({ path: `/api/topics/${encodeURIComponent(name)}`, first: { sort: "partition", order: "asc" }, query, draw });
  const view = () => {
    const answer = list.answer;
    const head = html`<div class="crumbs"><a href="#/topics">Topics</a><span class="dim">/</span><h1>${name}</h1>${copyButton(name, "the name")}
      ${answer?.is_internal ? pill("", "internal") : nothing}<span class="tabs"><a href=${link("topics", name, "messages")}>Messages →</a></span></div>`;
    if (answer === null) return html`${head}${list.error ? failed(list.error) : loading()}`;
    return html`${head}${list.error ? failed(list.error) : nothing}${notMeasured(answer)}${about(answer)}${partitions(list)}
      <div class="two"><section class="panel" aria-labelledby="configs-title"><div class="head"><h2 id="configs-title">Configs</h2></div>${configTable(answer.configs, configs, (next) => {
        configs = next;
        draw();
      })}</section>${leaders(answer)}</div>`;
  };
  draw();
  return { element, close: () => list.close() };
}

function about(answer) {
  return html`<section class="panel" aria-label="About the topic"><div class="head">${facts([
    ["Partitions", count(answer.partitions)],
    ["Replication factor", answer.replication_factor],
    ["Min in-sync replicas", answer.min_insync_replicas],
    ["Offline", alarm(answer.offline)],
    ["Under min ISR", alarm(answer.under_min_isr)],
    ["Under-replicated", alarm(answer.under_replicated, "warn")],
    ["Not preferred leader", alarm(answer.not_preferred, "warn")],
    ["Messages in", rate(answer.messages_in_per_s)],
    ["Bytes in", byteRate(answer.bytes_in_per_s)],
    ["Bytes out", byteRate(answer.bytes_out_per_s)],
    ["Records", count(answer.records)],
    ["Size", bytes(answer.size_bytes)],
    ["Retention", retention(answer)],
    ["Topic id", html`<span class="mono">${answer.topic_id}</span>`],
  ])}</div></section>`;
}

function partitions(list) {
  return html`<section class="panel" aria-labelledby="partitions-title"><div class="toolbar"><h2 id="partitions-title">Partitions</h2>${list.search("Partition number")}${list.pager()}</div>
    ${list.answer.partition_rows.length === 0
      ? empty("No partition has that number.")
      : table({
          label: "Partitions",
          columns: COLUMNS,
          rows: list.answer.partition_rows,
          order: list,
          onsort: (key) => list.sortBy(key, key !== "partition" && key !== "leader"),
          rowClass: (row) => (row.states.includes("offline") || row.states.includes("under_min_isr") ? "bad" : row.states.includes("under_replicated") ? "warn" : ""),
        })}</section>`;
}

function leaders(answer) {
  const columns = [
    { title: "Broker", cell: (row) => html`<a href=${link("brokers", String(row.broker))}>${row.broker}</a>` },
    { title: "Leads", num: true, cell: (row) => count(row.leads) },
    { title: "Preferred", num: true, cell: (row) => count(row.preferred) },
    { title: "Of the partitions", cell: (row) => fill(answer.partitions ? row.leads / answer.partitions : 0, html`${answer.partitions ? Math.round((row.leads / answer.partitions) * 100) : 0} %`) },
  ];
  const note = answer.not_preferred
    ? html`<span class="text-warn">${count(answer.not_preferred)} ${answer.not_preferred === 1 ? "partition is" : "partitions are"} not led by the preferred replica</span>`
    : html`<span class="dim">each partition is led by its preferred replica</span>`;
  return html`<section class="panel" aria-labelledby="leaders-title"><div class="head"><h2 id="leaders-title">Leaders</h2>${note}</div>${table({ label: "Leaders", columns, rows: answer.leaders })}</section>`;
}
