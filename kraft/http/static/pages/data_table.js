// A table whose head sorts it: here, or by asking the server.

import { h } from "./dom.js";

export class DataTable {
  /** `columns`: {key, title, cell(row): text or element, number, sorts}; `onsort(key, order)` asks for other rows, without
   *  it the rows that are here are sorted by `row[key]`, unknown ones last. */
  constructor({ caption, columns, sort, order = "asc", onsort = null, empty = "None." }) {
    this.columns = columns;
    this.sort = sort;
    this.order = order;
    this.onsort = onsort;
    this.empty = empty;
    this.rows = [];
    this.heads = columns.map((column) => this._head(column));
    this.body = h("tbody");
    this.element = h("div", { class: "table-scroll" },
      h("table", { class: "grid" }, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body));
    this._mark();
  }

  set(rows) {
    this.rows = rows;
    const ordered = this.onsort === null ? [...rows].sort((a, b) => this._compared(a[this.sort], b[this.sort])) : rows;
    const lines = ordered.map((row) => h("tr", {}, this.columns.map((column) => this._cell(column, row))));
    if (!lines.length) lines.push(h("tr", {}, h("td", { colspan: this.columns.length, class: "nothing" }, this.empty)));
    const focused = this._focusedLink();
    this.body.replaceChildren(...lines);
    if (focused !== null) [...this.body.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
  }

  /** Rows are replaced while they are looked at: the link that has the focus keeps it. */
  _focusedLink() {
    const active = document.activeElement;
    return active !== null && this.body.contains(active) ? active.getAttribute("href") : null;
  }

  _compared(one, other) {
    const unknown = (value) => value === null || value === undefined;
    if (unknown(one) || unknown(other)) return unknown(one) - unknown(other);
    const difference = typeof one === "string" ? one.localeCompare(other) : one - other;
    return this.order === "desc" ? -difference : difference;
  }

  _head(column) {
    const attributes = { scope: "col", class: column.number ? "num" : null };
    if (column.sorts === false) return h("th", attributes, column.title);
    return h("th", attributes, h("button", { type: "button", class: "sort", onclick: () => this._by(column) }, column.title));
  }

  _cell(column, row) {
    const value = column.cell === undefined ? row[column.key] : column.cell(row);
    return h("td", { class: column.number ? "num" : null }, value === null || value === undefined ? "\u2013" : value instanceof Node ? value : String(value));
  }

  _by(column) {
    const turns = this.sort === column.key;
    this.order = turns ? (this.order === "asc" ? "desc" : "asc") : column.number ? "desc" : "asc";
    this.sort = column.key;
    this._mark();
    if (this.onsort === null) this.set(this.rows);
    else this.onsort(this.sort, this.order);
  }

  _mark() {
    this.columns.forEach((column, at) => {
      if (column.sorts === false) return;
      const is = column.key === this.sort;
      this.heads[at].setAttribute("aria-sort", is ? (this.order === "asc" ? "ascending" : "descending") : "none");
    });
  }
}
