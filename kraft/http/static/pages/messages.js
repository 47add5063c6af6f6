// The messages of a topic: a page of them, a live tail, a search, and one record in full. Reads /api/topics/…/messages.

import { bytes, count } from "../format.js";
import { link, setQuery } from "../router.js";
import { fetchJson } from "../ui.js";
import { h, timeOf } from "./dom.js";
import { bestForm, preview, shown } from "./fields.js";
import { RowList } from "./row_list.js";

const PAGE_ROWS = 100;
const KEPT_ROWS = 5000;
const WHOLE_BYTES = 1024 * 1024;
const STATUS_MS = 500;
const NO_VALUE = { null: "null", empty: "empty" };
const SKIPPED = {
  aborted: "of aborted transactions",
  control: "transaction markers",
  absent: "offsets without a record",
  deleted: "deleted before they were read",
  damaged: "damaged batches",
  too_large: "batches too large to open here",
};
const REASONS = {
  end: "all is searched",
  limit: "as many as asked for are found",
  bytes: "so many bytes are searched at a time",
  seconds: "the time is over",
  errors: "partitions could not be read, see above",
};

/** `name`: the topic; `query`: URLSearchParams of the page's own address. */
export default function messages({ name, query }) {
  const page = new Messages(name, query ?? new URLSearchParams());
  return { element: page.element, close: () => page.close() };
}

class Messages {
  constructor(topic, query) {
    this.topic = topic;
    this.path = `/api/topics/${encodeURIComponent(topic)}/messages`;
    this.source = null;
    this.aborter = null;
    this.partitions = [];
    this.statusDue = null;
    this.controls = controls(query, (event) => this.changed(event));
    this.list = new RowList({
      label: `messages of ${topic}`,
      columns: ["time", "partition", "offset", "key", "value"],
      fill: (row, cells) => fillRow(row, cells, this.controls.form.value),
      onopen: (row) => this.open(row),
      max: KEPT_ROWS,
    });
    this.list.onfollow = (yes) => this.showFollowing(yes);
    this.status = h("p", { class: "messages-status", role: "status" });
    this.problems = h("p", { class: "messages-problems", role: "alert", hidden: true });
    this.go = h("button", { type: "submit", class: "primary" }, "Read");
    this.older = h("button", { type: "button", onclick: () => this.turn("before", "first_offset") }, "Older");
    this.newer = h("button", { type: "button", onclick: () => this.turn("offset", "next_offset") }, "Newer");
    this.goOn = h("button", { type: "button", hidden: true, onclick: () => this.search(this.nextOffsets) }, "Search on");
    this.latest = h("button", { type: "button", hidden: true, onclick: () => this.list.follow(true) }, "To the newest");
    this.download = h("a", { class: "button", download: true }, "Download");
    this.detail = h("section", { class: "message-detail", "aria-label": "record", tabindex: -1, hidden: true });
    this.detail.addEventListener("keydown", (event) => event.key === "Escape" && this.closeDetail());
    this.element = this.layout();
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.closeDetail());
    this.hidden = () => this.visibilityChanged();
    document.addEventListener("visibilitychange", this.hidden);
    this.changed();
    this.run();
  }

  layout() {
    const c = this.controls;
    const form = h(
      "form",
      { class: "panel toolbar messages-form", onsubmit: (event) => { event.preventDefault(); this.run(); } },
      ...c.elements,
      h("span", { class: "messages-buttons" }, this.go, this.goOn, this.older, this.newer, this.latest, this.download),
    );
    const heading = h("div", { class: "row messages-columns", "aria-hidden": "true" },
      ...[["time", "Time"], ["partition", "Part."], ["offset", "Offset"], ["key", "Key"], ["value", "Value"]]
        .map(([name, title]) => h("span", { class: `cell ${name}` }, title)));
    return h(
      "div",
      { class: "messages" },
      h("div", { class: "crumbs" }, h("a", { href: "#/topics" }, "Topics"), h("span", { class: "dim" }, "/"),
        h("a", { class: "name", href: link("topics", this.topic) }, this.topic), h("span", { class: "dim" }, "/"), h("h1", {}, "Messages")),
      form,
      h("div", {}, this.problems, this.status),
      h("div", { class: "messages-split" },
        h("div", { class: "messages-list" }, heading, this.list.element), this.detail),
    );
  }

  close() {
    this.stop();
    document.removeEventListener("visibilitychange", this.hidden);
    this.list.close();
  }

  // -- what is asked for

  changed(event) {
    const c = this.controls;
    const mode = c.mode();
    c.show(mode);
    this.element.dataset.mode = mode;
    this.older.hidden = this.newer.hidden = mode !== "read";
    this.download.hidden = mode === "tail";
    this.download.href = `${this.path}/download?${this.params({ withStart: true })}`;
    if (event?.target === c.form) {
      this.list.refresh();
      if (!this.detail.hidden) this.open(this.detail.row, { focus: false });
      return;
    }
    if (this.source !== null && event !== undefined) this.stop();
    this.showGo();
  }

  /** The parameters of the form, without empty ones. */
  params({ withStart = false, withNeedle = false } = {}, more = {}) {
    const c = this.controls;
    const found = new URLSearchParams();
    const put = (name, value) => value !== "" && found.set(name, value);
    put("partition", c.partition.value.replaceAll(" ", ""));
    put("isolation_level", c.isolation.value);
    if (withStart) {
      const from = c.from.value;
      if (from === "earliest") put("offset", "earliest");
      else if (from === "offset") put("offset", c.offset.value.replaceAll(",", "").trim() || "0");
      else if (from === "time" && c.time.value) put("timestamp_ms", String(new Date(c.time.value).getTime()));
    }
    if (withNeedle && c.q.value) {
      put(c.kind.value === "hex" ? "q_hex" : "q", c.kind.value === "hex" ? c.q.value.replaceAll(" ", "") : c.q.value);
      put("in", c.where.value);
      if (c.ignoreCase.checked && c.kind.value !== "hex") put("ignore_case", "true");
    }
    for (const [name, value] of Object.entries(more)) found.set(name, value);
    return found;
  }

  run() {
    const mode = this.controls.mode();
    const given = this.params({ withStart: mode !== "tail" });
    setQuery({
      mode: mode === "read" ? null : mode,
      q: mode === "read" ? null : this.controls.q.value,
      ...Object.fromEntries(["partition", "offset", "timestamp_ms", "isolation_level"].map((name) => [name, given.get(name)])),
    });
    if (this.source !== null) return this.stop();
    if (mode === "tail") return this.tail();
    if (mode === "search") return this.controls.q.value ? this.search() : this.say("Say what to look for.");
    return this.read(this.params({ withStart: true }, { limit: PAGE_ROWS }));
  }

  stop() {
    this.source?.close();
    this.source = null;
    this.aborter?.abort();
    this.aborter = null;
    this.list.streams = false;
    this.list.follow(false);
    this.latest.hidden = true;
    this.flushStatus();
    this.showGo();
  }

  showGo() {
    const names = { read: "Read", tail: "Start", search: "Search" };
    this.go.textContent = this.source !== null ? "Stop" : names[this.controls.mode()];
  }

  showFollowing(yes) {
    this.latest.hidden = this.source === null || this.controls.mode() !== "tail" || yes;
  }

  // -- a page

  async read(params) {
    this.stop();
    this.aborter = new AbortController();
    this.say("Reading\u2026");
    let answer;
    try {
      answer = await fetchJson(`${this.path}?${params}`, this.aborter.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error.message);
      return;
    }
    this.partitions = answer.partitions;
    const isNewest = !params.has("timestamp_ms") && (!params.has("offset") || params.has("before"));
    this.list.set(answer.messages, { atEnd: isNewest });
    this.older.disabled = !this.partitions.some((one) => one.first_offset > one.log_start_offset);
    this.newer.disabled = !this.partitions.some((one) => one.next_offset !== null && one.next_offset < one.end_offset);
    const left = leftOutText(answer.partitions_left_out);
    const ended = answer.ended === "end" ? "" : `; reading ended after too many ${answer.ended}`;
    this.say(`${count(answer.messages.length)} records of ${partitionsText(this.partitions.length)}${ended}${left}${skippedText(answer.skipped)}`);
    this.showProblems(Object.fromEntries(this.partitions.filter((one) => one.error).map((one) => [one.partition, one.error])));
  }

  /** The page before, or after, this one. */
  turn(parameter, key) {
    const places = this.partitions.filter((one) => one[key] !== null).map((one) => `${one.partition}:${one[key]}`);
    if (places.length) this.read(this.params({}, { limit: PAGE_ROWS, [parameter]: places.join(",") }));
  }

  // -- a tail

  tail() {
    this.stop();
    this.list.set([]);
    this.list.streams = true;
    this.totals = { shown: 0, left: 0 };
    let unread = "";
    this.say("Waiting for what is written\u2026");
    this.listen(`${this.path}/tail?${this.params({ withNeedle: true })}`);
    this.list.follow(true);
    this.source.addEventListener("messages", (event) => {
      const data = JSON.parse(event.data);
      this.list.append(data.messages);
      this.totals.shown += data.messages.length;
      this.totals.left += data.not_shown + data.passed;
      const left = this.totals.left ? `; ${count(this.totals.left)} came too fast to be shown` : "";
      this.say(`${count(this.totals.shown)} records since the start${left}${unread}`, STATUS_MS);
      this.showProblems(data.errors);
    });
    this.source.addEventListener("refused", (event) => this.fail(JSON.parse(event.data).error));
    this.source.addEventListener("start", (event) => {
      unread = leftOutText(JSON.parse(event.data).partitions_left_out);
      if (unread) this.say(`Waiting for what is written${unread}`);
      this.showProblems({});
    });
    this.showGo();
  }

  visibilityChanged() {
    if (this.controls.mode() !== "tail") return;
    if (document.hidden && this.source !== null) {
      this.stop();
      this.isPaused = true;
      this.say("Paused while the tab is hidden.");
    } else if (!document.hidden && this.isPaused) {
      this.isPaused = false;
      this.tail();
    }
  }

  // -- a search

  /** `from`: the offsets by partition where one before ended. */
  search(from) {
    this.stop();
    const more = from === undefined ? {} : { offset: Object.entries(from).map((pair) => pair.join(":")).join(",") };
    const params = this.params({ withStart: true, withNeedle: true }, more);
    if (from !== undefined) params.delete("timestamp_ms");
    else this.list.set([]);
    this.goOn.hidden = true;
    this.say("Searching\u2026");
    this.listen(`${this.path}/search?${params}`);
    this.source.addEventListener("matches", (event) => this.list.append(JSON.parse(event.data).messages));
    this.source.addEventListener("progress", (event) => this.searched(JSON.parse(event.data)));
    this.source.addEventListener("done", (event) => {
      const data = JSON.parse(event.data);
      this.stop();
      this.searched(data);
      this.nextOffsets = data.next_offsets;
      this.goOn.hidden = data.reason === "end" || Object.keys(data.next_offsets).length === 0;
    });
    this.showGo();
  }

  searched(data) {
    const reason = data.reason ? ` Ended: ${REASONS[data.reason]}${data.offsets_left ? `, ${count(data.offsets_left)} offsets are left` : ""}.` : "";
    this.say(`${count(data.matched)} found in ${count(data.records)} records, ${bytes(data.bytes)}${skippedText(data.skipped)}.${reason}`);
    this.showProblems(data.errors);
  }

  // -- streams

  listen(path) {
    const source = new EventSource(path);
    this.source = source;
    source.onerror = async () => {
      if (this.source !== source) return;
      if (source.readyState !== EventSource.CLOSED && this.controls.mode() === "tail") {
        this.say("The node does not answer; the tail goes on at the end when it does.");
        return;
      }
      this.stop();
      this.fail(await this.whyNot());
    };
  }

  /** A stream that was refused tells no reason: a page of one record does. */
  async whyNot() {
    try {
      await fetchJson(`${this.path}?limit=1&${this.params()}`);
    } catch (error) {
      return error.message;
    }
    return "The stream ended: too many may read at once, or a parameter is wrong. Try again.";
  }

  // -- one record

  async open(row, { focus = false } = {}) {
    if (row === null) return;
    this.detail.row = row;
    this.detail.hidden = false;
    this.element.dataset.detail = "open";
    this.list.opensOnMove = true;
    this.detail.replaceChildren(...this.record(row));
    if (focus) this.detail.focus();
  }

  closeDetail() {
    if (this.detail.hidden) return;
    this.detail.hidden = true;
    delete this.element.dataset.detail;
    this.list.opensOnMove = false;
    this.list.element.focus();
  }

  record(row) {
    const facts = [
      ["Partition", row.partition],
      ["Offset", row.offset],
      [row.timestamp_type, `${timeOf(row.timestamp_ms)} (${row.timestamp_ms})`],
      ["Compression", row.compression],
      ["Leader epoch", row.leader_epoch],
      ["Producer", row.producer_id < 0 ? "not idempotent" : `${row.producer_id}${row.is_transactional ? ", transactional" : ""}`],
    ];
    const more = row.headers_total - row.headers.length;
    return [
      h("div", { class: "message-title" },
        h("h2", {}, `Record ${row.partition}:${row.offset}`),
        h("button", { type: "button", onclick: () => this.closeDetail(), "aria-label": "close the record" }, "Close")),
      h("dl", { class: "message-facts" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
      ...this.field(row, "key", "Key", row.key),
      ...this.field(row, "value", "Value", row.value),
      h("h3", {}, `Headers (${row.headers_total})`),
      ...row.headers.flatMap((one) => this.field(row, null, one.name, one.value)),
      more > 0 ? h("p", {}, `${more} more headers: a download as JSON lines has the first 32 in full.`) : null,
    ].filter((one) => one !== null);
  }

  field(row, which, title, field) {
    const tools = h("span", { class: "message-tools" });
    const head = h(which === null ? "h4" : "h3", {}, title, " ");
    if (field === null || field.size_bytes === 0) {
      head.append(h("span", { class: "no-value" }, field === null ? NO_VALUE.null : NO_VALUE.empty));
      return [h("div", { class: "message-head" }, head)];
    }
    const form = shown(field, this.controls.form.value);
    head.append(h("small", {}, `${bytes(field.size_bytes)}, ${form.form}`));
    const pre = h("pre", { class: `message-field ${form.form}`, tabindex: 0, "aria-label": title }, form.text);
    const cut = form.cut || field.shown_bytes < field.size_bytes;
    if (cut && which !== null && field.shown_bytes < Math.min(field.size_bytes, WHOLE_BYTES)) {
      tools.append(h("button", { type: "button", onclick: () => this.openWhole(row) }, "Show more"));
    }
    tools.append(h("button", { type: "button", onclick: (event) => copy(event.target, form.text) }, "Copy"));
    if (which !== null) {
      const params = new URLSearchParams({ format: "raw", partition: row.partition, offset: row.offset, field: which, isolation_level: "read_uncommitted" });
      tools.append(h("a", { class: "button", download: true, href: `${this.path}/download?${params}` }, "Download"));
    }
    const note = cut ? h("p", { class: "message-cut" }, `The first ${bytes(field.shown_bytes)} of ${bytes(field.size_bytes)}${form.cut ? ", as far as a page holds" : ""}.`) : null;
    return [h("div", { class: "message-head" }, head, tools), pre, note].filter((one) => one !== null);
  }

  async openWhole(row) {
    const params = { partition: row.partition, offset: row.offset, limit: 1, field_bytes: WHOLE_BYTES, isolation_level: "read_uncommitted" };
    try {
      const answer = await fetchJson(`${this.path}?${new URLSearchParams(params)}`);
      const found = answer.messages.find((one) => one.offset === row.offset);
      if (found === undefined) this.fail("The record is not there any more.");
      else if (this.detail.row === row) this.open(found);
    } catch (error) {
      this.fail(error.message);
    }
  }

  // -- what is said

  /** At once, or at most every `everyMs`. */
  say(text, everyMs = 0) {
    this.statusText = text;
    if (!everyMs) return this.flushStatus();
    this.statusDue ??= setTimeout(() => this.flushStatus(), everyMs);
  }

  flushStatus() {
    clearTimeout(this.statusDue);
    this.statusDue = null;
    if (this.statusText !== undefined) this.status.textContent = this.statusText;
  }

  fail(sentence) {
    this.say("");
    this.problems.hidden = false;
    this.problems.textContent = sentence;
    if (this.source !== null) this.stop();
  }

  showProblems(errors) {
    const said = Object.entries(errors ?? {}).map(([partition, sentence]) => `partition ${partition}: ${sentence}`);
    const text = said.slice(0, 5).join("; ") + (said.length > 5 ? `; and ${said.length - 5} more` : "");
    if (text !== this.problems.textContent) this.problems.textContent = text;
    this.problems.hidden = !said.length;
  }
}

// -- the form

function controls(query, onchange) {
  const given = (name, otherwise) => query.get(name) ?? otherwise;
  const select = (options, value) => {
    const element = h("select", { onchange }, ...options.map(([key, text]) => h("option", { value: key }, text)));
    element.value = value;
    return element;
  };
  const modes = [["read", "Read"], ["tail", "Live tail"], ["search", "Search"]];
  const wanted = given("mode", "read");
  const radios = modes.map(([value]) => h("input", { type: "radio", name: "mode", value, checked: value === wanted, onchange }));
  const partition = h("input", { type: "text", size: 6, placeholder: "all", inputmode: "numeric", value: given("partition", ""), onchange });
  const start = query.has("timestamp_ms") ? "time" : /^\d/.test(given("offset", "")) ? "offset" : given("offset", "latest");
  const from = select([["latest", "newest"], ["earliest", "oldest"], ["offset", "offset\u2026"], ["time", "time\u2026"]], start);
  const offset = h("input", { type: "text", size: 10, inputmode: "numeric", "aria-label": "offset", value: /^\d/.test(given("offset", "")) ? given("offset", "") : "0", onchange });
  const time = h("input", { type: "datetime-local", step: 1, "aria-label": "time", onchange, value: query.has("timestamp_ms") ? localTime(Number(query.get("timestamp_ms"))) : localTime(Date.now() - 3600e3) });
  const isolation = select([["read_committed", "committed"], ["read_uncommitted", "also uncommitted"]], given("isolation_level", "read_committed"));
  const q = h("input", { type: "search", size: 24, maxlength: 1024, "aria-label": "look for", placeholder: "contains\u2026", value: given("q", ""), onchange });
  const kind = select([["text", "as text"], ["hex", "as hex"]], "text");
  kind.setAttribute("aria-label", "given as");
  const where = select([["key,value,headers", "anywhere"], ["key", "in keys"], ["value", "in values"], ["headers", "in headers"]], "key,value,headers");
  where.setAttribute("aria-label", "where");
  const ignoreCase = h("input", { type: "checkbox", onchange });
  const form = select([["auto", "auto"], ["text", "text"], ["json", "JSON"], ["hex", "hex"]], given("form", "auto"));
  const label = (text, ...inside) => h("label", {}, text, " ", ...inside);
  const startLabel = h("span", { class: "group" }, label("From", from), offset, time);
  const needle = h("span", { class: "group" }, q, kind, where, label("any case", ignoreCase));
  return {
    partition, from, offset, time, isolation, q, kind, where, ignoreCase, form,
    elements: [
      h("fieldset", { class: "modes" }, h("legend", { class: "visually-hidden" }, "What to do"),
        ...modes.map(([, text], at) => h("label", {}, radios[at], h("span", {}, text)))),
      label("Partitions", partition), startLabel, needle, label("Transactions", isolation), label("Shown as", form),
    ],
    mode: () => radios.find((one) => one.checked)?.value ?? "read",
    show: (mode) => {
      startLabel.hidden = mode === "tail";
      from.options[0].disabled = mode === "search"; // it goes forward
      if (mode === "search" && from.value === "latest") from.value = "earliest";
      needle.hidden = mode === "read";
      offset.hidden = from.value !== "offset";
      time.hidden = from.value !== "time";
    },
  };
}

function localTime(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 19);
}

// -- rows

function fillRow(row, cells, form) {
  cells[0].textContent = timeOf(row.timestamp_ms);
  cells[1].textContent = row.partition;
  cells[2].textContent = row.offset;
  fillField(cells[3], row.key, form);
  fillField(cells[4], row.value, form);
}

function fillField(cell, field, form) {
  const isNone = field === null || field.size_bytes === 0;
  cell.classList.toggle("no-value", isNone);
  cell.textContent = isNone ? (field === null ? NO_VALUE.null : NO_VALUE.empty) : preview(field, form);
  cell.classList.toggle("hex", !isNone && (form === "hex" || (form !== "text" && bestForm(field) === "hex")));
}

function partitionsText(number) {
  return number === 1 ? "one partition" : `${count(number)} partitions`;
}

function leftOutText(number) {
  return number ? `; ${count(number)} more partitions are not read: name those you want` : "";
}

function skippedText(skipped) {
  const parts = Object.entries(skipped).filter(([, number]) => number).map(([name, number]) => `${count(number)} ${SKIPPED[name] ?? name}`);
  return parts.length ? `; skipped: ${parts.join(", ")}` : "";
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed"; // browsers let pages copy over https and on localhost
  }
}
