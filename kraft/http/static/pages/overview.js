// What is wrong first; then brokers, controller and quorum, and rates.

import { html, nothing, render } from "../vendor/lit-html.js";
import { byteRate, bytes, count, rate } from "../format.js";
import { follow } from "../live.js";
import { RateCharts } from "../rates.js";
import { link } from "../router.js";
import { brokerTable } from "../brokers_view.js";
import { silentVoters, voterTable } from "../quorum_view.js";
import { alarm, failed, fetchJson, loading, notMeasured, pill, poll } from "../ui.js";

const HISTORY_EVERY_MS = 4000;
const SHOWN_OF_A_KIND = 3;
const LISTS = {
  "partition-offline": "#/topics?sort=offline&order=desc",
  "under-min-isr": "#/topics?sort=under_min_isr&order=desc",
  "under-replicated": "#/topics?sort=under_replicated&order=desc",
  "group-stands-still": "#/groups",
};
const WARNINGS = new Set(["under-replicated", "group-stands-still", "voter-lagging"]);

export default function page() {
  const element = document.createElement("div");
  let answer = null;
  let error = null;
  const charts = new RateCharts(() => draw());
  const draw = () => render(view(answer, error, charts), element);
  const history = poll(
    (signal) => fetchJson("/api/overview", signal),
    (data, failure) => {
      error = failure;
      if (data) {
        answer = data;
        draw();
        charts.update(data.history);
      } else draw();
    },
    HISTORY_EVERY_MS,
  );
  const stop = follow("overview", (data) => {
    answer = data;
    error = null;
    draw();
  });
  draw();
  return {
    element,
    close() {
      stop();
      history.close();
      charts.close();
    },
  };
}

function view(answer, error, charts) {
  const title = html`<h1>Overview</h1>`;
  if (answer === null) return html`${title}${error ? failed(error) : loading()}`;
  return html`${title}${error ? failed(error) : nothing}${notMeasured(answer)}${problems(answer)}${stats(answer)}
    <section class="panel" aria-labelledby="brokers-title"><div class="head"><h2 id="brokers-title">Brokers</h2></div>
      ${answer.brokers.length ? brokerTable(answer.brokers) : html`<p class="state">You may not see brokers: that needs DESCRIBE on the cluster.</p>`}</section>
    ${charts.view()}
    ${answer.quorum === null ? nothing : quorum(answer.quorum)}`;
}

function problems(answer) {
  const all = Object.values(answer.problem_counts).reduce((sum, one) => sum + one, 0);
  if (all === 0) return html`<p class="panel well" role="status">Nothing is wrong.</p>`;
  const kinds = Object.entries(answer.problem_counts).filter(([, many]) => many > 0);
  return html`<section class="panel problems" aria-labelledby="problems-title"><div class="head"><h2 id="problems-title">${count(all)} ${all === 1 ? "thing is" : "things are"} wrong</h2>
    <span class="dim">${kinds.map(([kind, many]) => `${count(many)} ${kind}`).join(", ")}</span></div>
    <div class="list" tabindex="0" role="group" aria-label="Problems"><ul>${kinds.map(([kind, many]) => ofKind(kind, many, answer.problems.filter((one) => one.kind === kind)))}</ul></div></section>`;
}

/** A few of each kind: a broker that is down takes many partitions along. */
function ofKind(kind, many, problems) {
  const shown = problems.slice(0, many > SHOWN_OF_A_KIND + 1 ? SHOWN_OF_A_KIND : many);
  const more = many - shown.length;
  return html`${shown.map((one) => html`<li>${pill(WARNINGS.has(kind) ? "warn" : "bad", kind)}<span class="name">${where(one)}</span></li>`)}
    ${more ? html`<li class="more">${LISTS[kind] ? html`<a href=${LISTS[kind]}>and ${count(more)} more</a>` : html`<span class="dim">and ${count(more)} more</span>`}</li>` : nothing}`;
}

function where(problem) {
  const order = problem.kind === "partition-offline" ? "sort=leader" : "sort=lag&order=desc"; // none comes before broker 0
  if (problem.topic !== null) return html`<a href=${`${link("topics", problem.topic)}?${order}`}>${problem.what}</a>`;
  if (problem.group !== null) return html`<a href=${link("groups", problem.group)}>${problem.what}</a>`;
  if (problem.broker !== null) return html`<a href=${link("brokers", String(problem.broker))}>${problem.what}</a>`;
  return problem.what;
}

function stats({ totals, rates, brokers, controller_id: controller }) {
  const running = brokers.filter((broker) => broker.state === "running").length;
  const cell = (term, value) => html`<div><dt>${term}</dt><dd>${value}</dd></div>`;
  return html`<dl class="stats">
    ${cell("Brokers", html`${running < brokers.length ? html`<span class="text-bad">${running}</span>` : running}<span class="dim"> / ${brokers.length}</span>`)}
    ${cell("Controller", controller ?? html`<span class="text-bad">none</span>`)}
    ${cell("Offline", html`<a href="#/topics?sort=offline&order=desc">${alarm(totals?.offline)}</a>`)}
    ${cell("Under min ISR", html`<a href="#/topics?sort=under_min_isr&order=desc">${alarm(totals?.under_min_isr)}</a>`)}
    ${cell("Under-replicated", html`<a href="#/topics?sort=under_replicated&order=desc">${alarm(totals?.under_replicated, "warn")}</a>`)}
    ${cell("Not preferred", html`<a href="#/topics?sort=not_preferred&order=desc">${alarm(totals?.not_preferred, "warn")}</a>`)}
    ${cell("Groups", html`<a href="#/groups">${count(totals?.groups)}</a>`)}
    ${cell("Topics", html`<a href="#/topics">${count(totals?.topics)}</a>`)}
    ${cell("Partitions", count(totals?.partitions))}
    ${cell("Size", bytes(totals?.size_bytes))}
    ${cell("In", byteRate(rates?.bytes_in_per_s))}
    ${cell("Out", byteRate(rates?.bytes_out_per_s))}
    ${cell("Messages", rate(rates?.messages_in_per_s))}
    ${cell("Connections", count(totals?.connections))}</dl>`;
}

function quorum(answer) {
  return html`<section class="panel" aria-labelledby="quorum-title"><div class="head"><h2 id="quorum-title"><a href="#/quorum">Quorum</a></h2>
    <span class="dim">leader ${answer.leader_id}, epoch ${answer.leader_epoch}, high watermark ${count(answer.high_watermark)}</span></div>
    ${voterTable("Voters", answer.voters, silentVoters(answer.voters))}</section>`;
}
