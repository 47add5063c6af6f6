// Brokers as rows: of the overview and of the page of brokers.

import { html } from "./vendor/lit-html.js";
import { ago, byteRate, bytes, count, rate } from "./format.js";
import { link } from "./router.js";
import { alarm, disk, pill, table } from "./ui.js";

export const STATES = { running: "good", fenced: "bad", silent: "bad", shutting_down: "warn" };
export const statePill = (state) => pill(STATES[state] ?? "", state.replaceAll("_", " "));

const COLUMNS = [
  { title: "Broker", cell: (row) => html`<a href=${link("brokers", String(row.id))}><b>${row.id}</b></a>${row.is_controller ? html` ${pill("", "controller")}` : ""}` },
  { title: "State", cell: (row) => statePill(row.state) },
  { title: "Leads", num: true, hint: "partitions that it leads, of those that prefer it", cell: (row) => html`<span class=${row.leads < row.preferred ? "text-warn" : ""}>${count(row.leads)}</span><span class="dim"> / ${count(row.preferred)}</span>` },
  { title: "Replicas", num: true, cell: (row) => count(row.replicas) },
  { title: "Out of sync", num: true, hint: "its replicas that are not in their ISR", cell: (row) => alarm(row.out_of_sync, "warn") },
  { title: "In", num: true, cell: (row) => byteRate(row.rates?.bytes_in_per_s) },
  { title: "Out", num: true, cell: (row) => byteRate(row.rates?.bytes_out_per_s) },
  { title: "Messages", num: true, cell: (row) => rate(row.rates?.messages_in_per_s) },
  { title: "Requests", num: true, cell: (row) => rate(row.rates?.requests_per_s) },
  { title: "Connections", num: true, cell: (row) => count(row.connections) },
  { title: "Size", num: true, cell: (row) => bytes(row.size_bytes) },
  { title: "Disk", cell: (row) => disk(row.disk_total_bytes, row.disk_usable_bytes) },
  { title: "Started", num: true, cell: (row) => ago(row.started_at_ms) },
];
const WHERE = [
  { title: "Rack", cell: (row) => row.rack ?? html`<span class="dim">none</span>` },
  { title: "Listeners", cell: (row) => html`<span class="mono">${row.listeners.join(" ")}</span>` },
];

export const brokerTable = (brokers, withAddresses = false) =>
  table({
    label: "Brokers",
    columns: withAddresses ? [...COLUMNS, ...WHERE] : COLUMNS,
    rows: brokers,
    rowClass: (row) => (row.state === "running" ? "" : STATES[row.state] ?? ""),
  });
