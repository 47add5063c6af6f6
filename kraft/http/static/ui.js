// What pages are made of. Everything that comes from a cluster is put in as text by lit-html.

import { html, nothing, svg } from "./vendor/lit-html.js";
import { bytes, UNKNOWN } from "./format.js";
import { setQuery } from "./router.js";

/** The JSON of a path; throws an Error whose message is the server's sentence, and whose `status` is the answer's. */
export async function fetchJson(path, signal) {
  const answer = await fetch(path, { signal, headers: { Accept: "application/json" } });
  const failure = (message) => Object.assign(new Error(message), { status: answer.status });
  let body;
  try {
    body = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw failure(`The node answers ${answer.status} without JSON.`);
  }
  if (!answer.ok) throw failure(body.error ?? `The node answers ${answer.status}.`);
  return body;
}

/**
 * Asks again and again: `load(signal)` gives data, which `show(data, error)` shows; the next question comes `everyMs` after an
 * answer, and none while the tab is hidden. Returns {now(), close()}: `now` asks at once and drops what is under way.
 */
export function poll(load, show, everyMs) {
  let under = null;
  let timer = null;
  let isClosed = false;
  const ask = async () => {
    clearTimeout(timer);
    under?.abort();
    const mine = new AbortController();
    under = mine;
    let data = null;
    let failure = null;
    try {
      data = await load(mine.signal);
    } catch (error) {
      failure = error;
    }
    if (mine.signal.aborted || isClosed) return;
    show(data, failure);
    if (everyMs && !document.hidden) timer = setTimeout(ask, everyMs);
  };
  const seen = () => {
    if (!document.hidden) ask();
    else clearTimeout(timer);
  };
  document.addEventListener("visibilitychange", seen);
  ask();
  return {
    now: ask,
    close() {
      isClosed = true;
      clearTimeout(timer);
      under?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}

/** A word with a colour: kind is "bad", "warn", "good" or "". */
export const pill = (kind, text) => html`<span class="pill ${kind}">${text}</span>`;

/** A number that is wrong where it is not 0. */
export const alarm = (value, kind = "bad") =>
  value ? html`<b class=${`text-${kind}`}>${value.toLocaleString("en-US")}</b>` : html`<span class="dim">${value ?? UNKNOWN}</span>`;

export const loading = () => html`<p class="state" role="status">Asking the node…</p>`;
export const empty = (sentence) => html`<p class="state">${sentence}</p>`;
export const failed = (error) =>
  html`<p class="state bad" role="alert">${error.message === "Failed to fetch" ? "The node does not answer. It is asked again." : error.message}</p>`;
export const notMeasured = (answer) => (answer.why_not ? html`<p class="note">${answer.why_not}</p>` : nothing);

/** A button that copies a text. */
export const copyButton = (text, what) => html`<button type="button" class="copy" aria-label=${`Copy ${what}`} title=${`Copy ${what}`}
  @click=${(event) => copy(event.currentTarget, text)}>copy</button>`;

async function copy(button, text) {
  let word = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    word = "not allowed"; // a page over plain http from another machine has no clipboard
  }
  button.textContent = word;
  setTimeout(() => {
    button.textContent = "copy";
  }, 1200);
}

/** How full something is: a bar and words. `share` is from 0 to 1, or null. */
export const fill = (share, words) => html`<span class="fill"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
  <rect class="track" width="100" height="8"></rect>${share === null
    ? nothing
    : svg`<rect class=${share > 0.9 ? "bad" : share > 0.8 ? "warn" : "good"} width=${(share * 100).toFixed(1)} height="8"></rect>`}</svg>
  <span>${words}</span></span>`;

export const disk = (total, usable) =>
  total === null || usable === null ? UNKNOWN : fill(total ? (total - usable) / total : 0, html`${bytes(usable)} free`);

/**
 * A table. A column: {title, cell(row), num, sort (the key that the server sorts by), wide, hint}. `order` is {sort, order};
 * `onsort(key)`.
 */
export const table = ({ label, columns, rows, order = null, onsort = null, rowClass = () => "" }) => html`<div class="scroll" tabindex="0" role="group" aria-label=${label}>
<table class="grid"><thead><tr>${columns.map((column) => heading(column, order, onsort))}</tr></thead>
<tbody>${rows.map((row) => html`<tr class=${rowClass(row)}>${columns.map((column) => html`<td class=${cellClass(column)}>${column.cell(row)}</td>`)}</tr>`)}</tbody></table></div>`;

const cellClass = (column) => `${column.num ? "num" : ""} ${column.wide ? "wide" : ""}`;

function heading(column, order, onsort) {
  const isSorted = column.sort !== undefined && order?.sort === column.sort;
  const aria = isSorted ? (order.order === "desc" ? "descending" : "ascending") : nothing;
  const title = column.hint ?? nothing;
  if (column.sort === undefined || !onsort) return html`<th scope="col" class=${cellClass(column)} title=${title}>${column.title}</th>`;
  return html`<th scope="col" class=${cellClass(column)} aria-sort=${aria} title=${title}><button type="button" @click=${() => onsort(column.sort)}>${column.title}<span aria-hidden="true">${
    isSorted ? (order.order === "desc" ? " ↓" : " ↑") : ""
  }</span></button></th>`;
}

/** Terms and what they are: [[term, value]], or [term, value, "wide"] */
export const facts = (pairs) =>
  html`<dl class="facts">${pairs.map(([term, value, width = ""]) => html`<div class=${width}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;

/**
 * A list that the server pages, sorts and searches, with its place kept in the address.
 * `path` of the API; `first` = {sort, order}; `draw()` is called at each change. Then `answer`, `error`, `toolbar(...)`, `pager()`.
 */
export class ServerList {
  constructor({ path, first, query, draw, everyMs = 2000, pageSize = 50, fixed = {} }) {
    this._path = path;
    this._first = first;
    this._fixed = fixed;
    this._draw = draw;
    this.answer = null;
    this.error = null;
    this.q = query.get("q") ?? "";
    this.sort = query.get("sort") ?? first.sort;
    this.order = query.get("order") ?? first.order;
    this.page = Math.max(Number.parseInt(query.get("page") ?? "1", 10) || 1, 1);
    this.pageSize = pageSize;
    this._typed = null;
    this._poll = poll((signal) => fetchJson(this._url(), signal), (answer, error) => this._show(answer, error), everyMs);
  }

  close() {
    clearTimeout(this._typed);
    this._poll.close();
  }

  _url() {
    const values = { page: this.page, page_size: this.pageSize, sort: this.sort, order: this.order, ...this._fixed };
    if (this.sort === null) delete values.sort;
    if (this.order === null) delete values.order;
    if (this.q) values.q = this.q;
    return `${this._path}${this._path.includes("?") ? "&" : "?"}${new URLSearchParams(values)}`;
  }

  _show(answer, error) {
    if (answer !== null) this.answer = answer;
    this.error = error;
    this._draw();
  }

  /** Other values, the place in the address, and the question again. */
  change(values) {
    Object.assign(this, values);
    setQuery({
      q: this.q || null,
      page: this.page === 1 ? null : this.page,
      sort: this.sort === this._first.sort ? null : this.sort,
      order: this.order === this._first.order ? null : this.order,
    });
    this._poll.now();
    this._draw();
  }

  fix(values) {
    this._fixed = { ...this._fixed, ...values };
    this.change({ page: 1 });
  }

  sortBy(key, descendingFirst = false) {
    const turned = this.order === "asc" ? "desc" : "asc";
    this.change({ page: 1, order: this.sort === key ? turned : descendingFirst ? "desc" : "asc", sort: key });
  }

  search(placeholder) {
    const typed = (event) => {
      const q = event.target.value;
      clearTimeout(this._typed);
      this._typed = setTimeout(() => this.change({ q, page: 1 }), 150);
    };
    return html`<input type="search" placeholder=${placeholder} aria-label=${placeholder} title="press / to search" .value=${this.q} @input=${typed} spellcheck="false" autocomplete="off">`;
  }

  pager() {
    if (!this.answer) return nothing;
    const { total } = this.answer;
    const pages = Math.max(Math.ceil(total / this.pageSize), 1);
    const from = total === 0 ? 0 : (this.page - 1) * this.pageSize + 1;
    const to = Math.min(this.page * this.pageSize, total);
    const step = (by) => this.change({ page: Math.min(Math.max(this.page + by, 1), pages) });
    return html`<div class="pager"><span role="status">${from.toLocaleString("en-US")}–${to.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}</span>
      <button type="button" aria-label="Previous page" ?disabled=${this.page <= 1} @click=${() => step(-1)}>‹</button>
      <button type="button" aria-label="Next page" ?disabled=${this.page >= pages} @click=${() => step(1)}>›</button></div>`;
  }
}

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: ["topic", "warn"],
  DYNAMIC_BROKER_CONFIG: ["broker, dynamic", "warn"],
  DYNAMIC_DEFAULT_BROKER_CONFIG: ["all brokers, dynamic", "warn"],
  DYNAMIC_GROUP_CONFIG: ["group", "warn"],
  STATIC_BROKER_CONFIG: ["server.properties", ""],
  DEFAULT_CONFIG: ["default", "dim"],
};

/** Configs with their source: those that somebody set come first. `state` = {q, all}; `onchange(state)`. */
export function configTable(configs, state, onchange) {
  if (configs === null) return empty("You may not see configs: that needs DESCRIBE_CONFIGS.");
  const fits = configs.filter((config) => config.name.includes(state.q.trim()) && (state.all || state.q.trim() || !config.is_default));
  const sorted = fits.sort((one, other) => one.is_default - other.is_default || (one.name < other.name ? -1 : 1));
  const value = (config) =>
    config.is_sensitive ? html`<span class="dim">(sensitive)</span>` : config.value === null ? html`<span class="dim">none</span>` : config.value === "" ? html`<span class="dim">(empty)</span>` : config.value;
  const columns = [
    { title: "Name", cell: (config) => html`<span class="mono" title=${config.documentation ?? ""}>${config.name}</span>` },
    { title: "Value", wide: true, cell: (config) => html`<span class="mono">${value(config)}</span>` },
    { title: "Source", cell: (config) => pill(...(SOURCES[config.source] ?? [config.source, ""]).slice(0, 2).reverse()) },
    { title: "Overridden", wide: true, cell: (config) => html`<span class="dim">${config.synonyms.slice(1).map((one) => `${(SOURCES[one.source] ?? [one.source])[0]}: ${one.value ?? "none"}`).join("; ")}</span>` },
  ];
  return html`<div class="toolbar"><input type="search" aria-label="Search configs" placeholder="Search configs" .value=${state.q} @input=${(event) => onchange({ ...state, q: event.target.value })}>
    <label><input type="checkbox" .checked=${state.all} @change=${(event) => onchange({ ...state, all: event.target.checked })}> with defaults</label>
    <span class="dim">${fits.length} of ${configs.length}</span></div>
    ${fits.length ? table({ label: "Configs", columns, rows: sorted }) : empty(state.q ? "No config has that in its name." : "All configs have their defaults.")}`;
}
