// One broker: its disks, rates, requests by phase, clients and configs.

import { html, nothing, render } from "../vendor/lit-html.js";
import { ago, bytes, count, duration, UNKNOWN } from "../format.js";
import { RateCharts } from "../rates.js";
import { statePill } from "../brokers_view.js";
import { alarm, configTable, disk, empty, facts, failed, fetchJson, loading, notMeasured, pill, poll, table } from "../ui.js";

const PHASES = ["queue", "local", "remote", "send"];
const days = (value) => (value === null ? html`<span class="dim">does not fill</span>` : html`<span class=${value < 3 ? "text-bad" : value < 14 ? "text-warn" : ""}>${value < 1 ? "less than a day" : `${count(Math.floor(value))} days`}</span>`);
const time = (times, key) => duration(times?.[key]);

const DISKS = [
  { title: "Directory", cell: (row) => html`<span class="mono">${row.path}</span>` },
  { title: "State", cell: (row) => (row.error === null ? pill("good", "online") : pill("bad", row.error)) },
  { title: "Disk", cell: (row) => disk(row.total_bytes, row.usable_bytes) },
  { title: "Total", num: true, cell: (row) => bytes(row.total_bytes) },
  { title: "Full in", hint: "if it fills as fast as over the last hour", cell: (row) => days(row.days_left) },
  { title: "Logs", num: true, cell: (row) => bytes(row.size_bytes) },
  { title: "Replicas", num: true, cell: (row) => count(row.replicas) },
];
const REQUESTS = [
  { title: "Request", cell: (row) => html`<b>${row.api}</b>` },
  { title: "Count", num: true, cell: (row) => count(row.count) },
  { title: "Total, mean", num: true, cell: (row) => duration(row.total_ms) },
  ...PHASES.flatMap((phase) => [
    { title: `${phase[0].toUpperCase()}${phase.slice(1)}`, num: true, hint: `${phase}: mean`, cell: (row) => time(row[phase], "mean_ms") },
    { title: "p99", num: true, hint: `${phase}: 99 % took at most this long`, cell: (row) => html`<span class="dim">${row[phase]?.p99_ms === undefined || row[phase].p99_ms === null ? UNKNOWN : `≤ ${time(row[phase], "p99_ms")}`}</span>` },
  ]),
];
const CLIENTS = [
  { title: "Client id", cell: (row) => html`<span class="name">${row.client_id || html`<span class="dim">(none)</span>`}</span>` },
  { title: "Software", cell: (row) => (row.software_name && row.software_name !== "unknown" ? `${row.software_name} ${row.software_version ?? ""}` : html`<span class="dim">does not say</span>`) },
  { title: "Address", cell: (row) => html`<span class="mono">${row.address}</span>` },
  { title: "Listener", cell: (row) => row.listener },
  { title: "Principal", cell: (row) => row.principal ?? UNKNOWN },
];

export default function page({ id }) {
  const element = document.createElement("div");
  let answer = null;
  let error = null;
  let configs = { q: "", all: false };
  const charts = new RateCharts(() => draw());
  const change = (next) => {
    configs = next;
    draw();
  };
  const draw = () => render(view(id, answer, error, charts, configs, change), element);
  draw();
  const asks = poll(
    (signal) => fetchJson(`/api/brokers/${encodeURIComponent(id)}`, signal),
    (data, failure) => {
      answer = data ?? answer;
      error = failure;
      draw();
      if (data) charts.update(data.history);
    },
    2000,
  );
  return {
    element,
    close() {
      asks.close();
      charts.close();
    },
  };
}

function view(id, answer, error, charts, configs, change) {
  const head = html`<div class="crumbs"><a href="#/brokers">Brokers</a><span class="dim">/</span><h1>Broker ${id}</h1>${answer ? statePill(answer.state) : nothing}${answer?.is_controller ? pill("", "controller") : nothing}</div>`;
  if (answer === null) return html`${head}${error ? failed(error) : loading()}`;
  const panel = (key, title, note, body) => html`<section class="panel" aria-labelledby=${key}><div class="head"><h2 id=${key}>${title}</h2><span class="dim">${note}</span></div>${body}</section>`;
  const top = html`${head}${error ? failed(error) : nothing}${notMeasured(answer)}${about(answer)}`;
  if (answer.measured && answer.history === null) return html`${top}<p class="note" role="status">The broker does not answer: what only it knows is not shown.</p>`;
  return html`${top}
    ${panel("disks-title", "Disks", "", answer.log_dirs?.length ? table({ label: "Disks", columns: DISKS, rows: answer.log_dirs }) : empty("The broker does not tell."))}
    ${charts.view()}
    ${panel("requests-title", "Requests", "times by phase since the broker started", answer.requests?.length ? table({ label: "Requests", columns: REQUESTS, rows: answer.requests }) : empty("No request yet, or the broker does not tell."))}
    ${panel("clients-title", "Clients", answer.clients_total === null ? "" : `${count(answer.clients_total)} connected`, answer.clients?.length ? table({ label: "Clients", columns: CLIENTS, rows: answer.clients }) : empty("No client is connected, or the broker does not tell."))}
    ${panel("configs-title", "Configs", "", configTable(answer.configs, configs, change))}`;
}

function about(answer) {
  return html`<section class="panel" aria-label="About the broker"><div class="head">${facts([
    ["Leads / preferred", html`<span class=${answer.leads < answer.preferred ? "text-warn" : ""}>${count(answer.leads)} / ${count(answer.preferred)}</span>`],
    ["Replicas", count(answer.replicas)],
    ["Out of sync", alarm(answer.out_of_sync, "warn")],
    ["Connections", count(answer.connections)],
    ["Size", bytes(answer.size_bytes)],
    ["Started", ago(answer.started_at_ms)],
    ["Metadata offset", count(answer.metadata_offset)],
    ["Event loop late, mean / max", answer.loop_lag_ms ? `${time(answer.loop_lag_ms, "mean_ms")} / ${time(answer.loop_lag_ms, "max_ms")}` : UNKNOWN],
    ["Epoch", count(answer.epoch)],
    ["Rack", answer.rack ?? "none"],
    ["Listeners", html`<span class="mono">${answer.listeners.join(" ")}</span>`, "wide"],
  ])}</div></section>`;
}
