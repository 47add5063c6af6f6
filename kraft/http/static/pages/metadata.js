// The metadata image as a tree, and the log of its changes as they happen.

import { html, nothing, render } from "../vendor/lit-html.js";
import { clock, count } from "../format.js";
import { follow } from "../live.js";
import { empty, failed, fetchJson, loading, poll, ServerList, table } from "../ui.js";

const KEPT = 300; // entries of the log that the page holds

const address = (path) => `#/metadata?${new URLSearchParams({ path })}`;
const short = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
};

/** name=value name=value, without empty lists, which its title tells */
const fields = (record) =>
  Object.entries(record).filter(([, value]) => !(Array.isArray(value) && value.length === 0)).map(([name, value], at) => html`${at ? " " : ""}<span class="dim">${name}=</span>${short(value)}`);

export default function page({ query }) {
  const element = document.createElement("div");
  const path = query.get("path") ?? "/";
  let entries = [];
  let logError = null;
  let pattern = "";
  let isHeld = false;
  let waiting = [];
  const draw = () => render(view(), element);
  const list = new ServerList({ path: `/api/metadata?${new URLSearchParams({ path })}`, first: { sort: null, order: null }, query, draw, everyMs: 5000, pageSize: 100 });
  const add = (more, fresh) => {
    const known = new Set(entries.map((entry) => entry.offset));
    const those = more.filter((entry) => !known.has(entry.offset)).map((entry) => ({ ...entry, fresh }));
    if (!those.length) return draw();
    entries = [...entries.map((entry) => ({ ...entry, fresh: false })), ...those].sort((one, other) => one.offset - other.offset).slice(-KEPT);
    return draw();
  };
  const log = poll(
    (signal) => fetchJson(`/api/metadata/log?limit=100`, signal),
    (data, error) => {
      logError = error;
      if (data) add(data.entries, false);
      else draw();
    },
    null,
  );
  const stop = follow("metadata", (data) => {
    if (!data.entries?.length) return;
    if (isHeld) waiting = [...waiting, ...data.entries].slice(-KEPT);
    else add(data.entries, true);
  });
  const hold = () => {
    isHeld = !isHeld;
    if (!isHeld) {
      add(waiting, true);
      waiting = [];
    }
    draw();
  };
  const view = () => html`<h1>Metadata</h1>${list.error ? failed(list.error) : nothing}<div class="two">${tree(list, path)}
    ${changes({ entries, logError, pattern, isHeld, hold, onpattern: (text) => { pattern = text; draw(); } })}</div>`;
  draw();
  return {
    element,
    close() {
      list.close();
      log.close();
      stop();
    },
  };
}

function crumbs(path) {
  const names = path.split("/").filter((name) => name !== "");
  return html`<nav class="tree-path" aria-label="Path"><a href=${address("/")}>/</a>${names.map((name, at) => html`${at ? "/" : ""}<a href=${address(`/${names.slice(0, at + 1).join("/")}`)}>${name}</a>`)}</nav>`;
}

function tree(list, path) {
  const answer = list.answer;
  const columns = [
    { title: "Name", cell: (row) => html`<a class="name mono" href=${address(row.path)}>${row.name}${row.children ? "/" : ""}</a>` },
    { title: "Holds", num: true, cell: (row) => (row.children ? count(row.children) : "") },
    { title: "Value", wide: true, cell: (row) => (row.value === null ? "" : html`<span class="mono">${short(row.value)}</span>`) },
  ];
  return html`<section class="panel" aria-labelledby="tree-title"><div class="head"><h2 id="tree-title">Tree</h2>${crumbs(path)}</div>
    ${answer === null ? (list.error ? nothing : loading()) : html`<div class="toolbar">${list.search("Search names here")}${list.pager()}</div>
      ${answer.value === null ? nothing : html`<pre class="toolbar">${JSON.stringify(answer.value, null, 2)}</pre>`}
      ${answer.children.length ? table({ label: "Children", columns, rows: answer.children }) : answer.value === null ? empty("Nothing is here.") : nothing}
      <p class="state">at offset ${count(answer.offset)}, epoch ${count(answer.epoch)}</p>`}</section>`;
}

/** What stands for the records of an entry that the node leaves out. */
const isRest = (row) => row.fields.left_out !== undefined;

function changes({ entries, logError, pattern, isHeld, hold, onpattern }) {
  const rows = entries.flatMap((entry) => entry.records.map((record) => ({ ...entry, ...record }))).reverse();
  const fits = rows.filter((row) => !pattern || `${row.type} ${JSON.stringify(row.fields)}`.toLowerCase().includes(pattern.toLowerCase()));
  const columns = [
    { title: "Offset", num: true, cell: (row) => count(row.offset) },
    { title: "At", cell: (row) => html`<span class="dim">${clock(row.at_ms)}</span>` },
    { title: "Record", cell: (row) => (isRest(row) ? "" : html`<b>${row.type}</b>`) },
    { title: "Fields", wide: true, cell: (row) => isRest(row) ? html`<span class="dim">and ${count(row.fields.left_out)} more records, which are not shown</span>` : html`<span class="mono" title=${JSON.stringify(row.fields)}>${fields(row.fields)}</span>` },
  ];
  return html`<section class="panel" aria-labelledby="log-title"><div class="head"><h2 id="log-title">Changes</h2><span class="dim">as they happen, the newest first</span></div>
    <div class="toolbar"><input type="search" aria-label="Filter changes" placeholder="Filter changes" .value=${pattern} @input=${(event) => onpattern(event.target.value)}>
      <button type="button" aria-pressed=${isHeld ? "true" : "false"} @click=${hold}>${isHeld ? "go on" : "hold"}</button><span class="dim">${fits.length > KEPT ? `${count(KEPT)} of ${count(fits.length)}` : count(fits.length)} records</span></div>
    ${logError ? failed(logError) : nothing}
    <div class="log" tabindex="0" role="group" aria-label="Log of changes">${fits.length ? table({ label: "Changes", columns, rows: fits.slice(0, KEPT), rowClass: (row) => (row.fresh ? "new" : "") }) : empty(pattern ? "No change fits." : "No change since this node started.")}</div></section>`;
}
