// Who votes on metadata, and how far each has come.

import { html, nothing, render } from "../vendor/lit-html.js";
import { count } from "../format.js";
import { silentVoters, voterTable } from "../quorum_view.js";
import { alarm, facts, failed, fetchJson, loading, poll } from "../ui.js";

export default function page() {
  const element = document.createElement("div");
  let answer = null;
  const show = (data, error) => {
    answer = data ?? answer;
    render(html`<h1>Quorum</h1>${error ? failed(error) : nothing}${answer === null ? (error ? nothing : loading()) : view(answer)}`, element);
  };
  show(null, null);
  const asks = poll((signal) => fetchJson("/api/quorum", signal), show, 2000);
  return { element, close: () => asks.close() };
}

function view(answer) {
  const behind = answer.voters.filter((voter) => !voter.is_leader && voter.lag).length;
  const silent = silentVoters(answer.voters);
  const spare = Math.max(Math.ceil(answer.voters.length / 2) - 1, 0);
  return html`<section class="panel" aria-label="State"><div class="head">${facts([
    ["Leader", answer.leader_id ?? "none"],
    ["Leader epoch", count(answer.leader_epoch)],
    ["High watermark", count(answer.high_watermark)],
    ["Voters", answer.voters.length],
    ["Can still lose", silent.length ? html`<b class="text-bad">${Math.max(spare - silent.length, 0)}</b><span class="dim"> of ${spare}</span>` : spare],
    ["Voters silent", alarm(silent.length)],
    ["Voters behind", alarm(behind, "warn")],
    ["Observers", answer.observers.length],
  ])}</div></section>
  <section class="panel" aria-labelledby="voters-title"><div class="head"><h2 id="voters-title">Voters</h2></div>${voterTable("Voters", answer.voters, silent)}</section>
  <section class="panel" aria-labelledby="observers-title"><div class="head"><h2 id="observers-title">Observers</h2><span class="dim">brokers that are no voters read the log too</span></div>
    ${answer.observers.length ? voterTable("Observers", answer.observers) : html`<p class="state">There is none.</p>`}</section>`;
}
