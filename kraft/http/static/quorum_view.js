// Voters and observers as rows: of the overview and of the page of the quorum.

import { html } from "./vendor/lit-html.js";
import { ago, count } from "./format.js";
import { alarm, pill, table } from "./ui.js";

const SILENT_MS = 5000;

/** The voters that the leader has not heard of for a while, by the leader's clock; none where it is not known. */
export function silentVoters(voters) {
  const now = Math.max(...voters.map((voter) => voter.last_caught_up_at_ms ?? 0));
  return now ? voters.filter((voter) => !voter.is_leader && now - (voter.last_fetch_at_ms ?? 0) > SILENT_MS) : [];
}

const COLUMNS = [
  { title: "Node", cell: (row) => html`<b>${row.id}</b>${row.is_leader ? html` ${pill("good", "leader")}` : row.isSilent ? html` ${pill("bad", "silent")}` : ""}` },
  { title: "Log end", num: true, cell: (row) => count(row.log_end_offset) },
  { title: "Lag", num: true, hint: "records behind the leader's log end", cell: (row) => alarm(row.lag, row.lag > 1000 ? "bad" : "warn") },
  { title: "Last fetch", num: true, cell: (row) => (row.is_leader ? html`<span class="dim">leads</span>` : ago(row.last_fetch_at_ms)) },
  { title: "Last caught up", num: true, cell: (row) => (row.is_leader ? html`<span class="dim">leads</span>` : ago(row.last_caught_up_at_ms)) },
  { title: "Address", cell: (row) => html`<span class="mono">${row.address ?? "–"}</span>` },
  { title: "Directory id", cell: (row) => html`<span class="mono dim">${row.directory_id ?? "–"}</span>` },
];

export const voterTable = (label, rows, silent = []) =>
  table({ label, columns: COLUMNS, rows: rows.map((row) => ({ ...row, isSilent: silent.includes(row) })), rowClass: (row) => (row.isSilent ? "bad" : "") });
