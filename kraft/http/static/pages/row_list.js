// A list of which only the rows in view are elements, however many there are and however fast they come. It keeps the
// newest `max` rows. While it follows, it stays at the end; who scrolls up stops it, and who scrolls down starts it again.

import { h } from "./dom.js";

const ROW_PX = 24;
const SPARE_ROWS = 6;
let lists = 0;

export class RowList {
  /** `columns`: class names of a row's cells; `fill(row, cells)` sets the cells' text; `onopen(row)`. */
  constructor({ label, columns, fill, onopen, max = 5000 }) {
    this.rows = [];
    this.max = max;
    this.follows = false;
    this.onfollow = () => {};
    this._columns = columns;
    this._fill = fill;
    this._onopen = onopen;
    this._first = 0; // the number of rows[0] since the list was set: rows keep theirs when older ones leave
    this._selected = -1;
    this._pool = new Map();
    this._id = `rows-${++lists}`;
    this._isDue = false;
    this._top = 0;
    this._space = h("div", { class: "row-list-space", role: "presentation" });
    this.element = h(
      "div",
      { class: "row-list", role: "listbox", tabindex: 0, "aria-label": label, onkeydown: (event) => this._key(event) },
      this._space,
    );
    this.element.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this._sizes = new ResizeObserver(() => this._draw());
    this._sizes.observe(this.element);
  }

  close() {
    this._sizes.disconnect();
  }

  /** Other rows in the place of these. */
  set(rows, { atEnd = false } = {}) {
    this.rows = rows.slice(-this.max);
    this._first += rows.length + this.max;
    this._selected = -1;
    this._forget();
    this._draw(atEnd ? "end" : "start");
  }

  /** More rows at the end. */
  append(rows) {
    this.rows.push(...rows);
    const gone = Math.max(this.rows.length - this.max, 0);
    if (gone) {
      this.rows.splice(0, gone);
      this._first += gone;
      if (!this.follows) this._top -= gone * ROW_PX;
    }
    this._draw();
  }

  /** The rows again, as `fill` has them now. */
  refresh() {
    this._forget();
    this._draw();
  }

  follow(yes) {
    this.follows = yes;
    this.onfollow(yes);
    this._draw();
  }

  get selected() {
    return this._selected < this._first ? null : this.rows[this._selected - this._first] ?? null;
  }

  _forget() {
    for (const element of this._pool.values()) element.remove();
    this._pool.clear();
  }

  _scrolled() {
    const top = this.element.scrollTop;
    if (Math.abs(top - this._top) < 1) return; // our own
    this._top = top;
    if (this._streams) {
      const atEnd = top + this.element.clientHeight >= this.rows.length * ROW_PX - ROW_PX;
      if (atEnd !== this.follows) {
        this.follows = atEnd;
        this.onfollow(atEnd);
      }
    }
    this._draw();
  }

  /** Whether scrolling to the end means to follow. */
  set streams(yes) {
    this._streams = yes;
  }

  _draw(where) {
    if (where !== undefined) this._where = where;
    if (this._isDue) return;
    this._isDue = true;
    requestAnimationFrame(() => {
      this._isDue = false;
      this._drawNow(this._where);
      this._where = undefined;
    });
  }

  _drawNow(where) {
    const height = this.element.clientHeight;
    const total = this.rows.length * ROW_PX;
    this._space.style.height = `${total}px`;
    const last = Math.max(total - height, 0);
    if (where === "start") this._top = 0;
    if (where === "end" || this.follows) this._top = last;
    this._top = Math.min(Math.max(this._top, 0), last);
    if (Math.abs(this.element.scrollTop - this._top) >= 1) this.element.scrollTop = this._top;
    const from = Math.max(Math.floor(this._top / ROW_PX) - SPARE_ROWS, 0);
    const to = Math.min(Math.ceil((this._top + height) / ROW_PX) + SPARE_ROWS, this.rows.length);
    this._place(from + this._first, to + this._first);
  }

  /** Elements for the rows of these numbers: those that left the view are used again. */
  _place(from, to) {
    const free = [];
    for (const [number, element] of this._pool) {
      if (number < from || number >= to) {
        this._pool.delete(number);
        free.push(element);
      }
    }
    for (let number = from; number < to; number++) {
      let element = this._pool.get(number);
      if (element === undefined) {
        element = free.pop() ?? this._make();
        element.id = `${this._id}-${number}`;
        element.dataset.number = number;
        this._fill(this.rows[number - this._first], element.children);
        this._pool.set(number, element);
      }
      element.style.transform = `translateY(${(number - this._first) * ROW_PX}px)`;
      const isSelected = number === this._selected;
      element.setAttribute("aria-selected", isSelected);
      element.setAttribute("aria-posinset", number - this._first + 1);
      element.setAttribute("aria-setsize", this.rows.length);
    }
    for (const element of free) element.remove();
    if (this._pool.has(this._selected)) this.element.setAttribute("aria-activedescendant", `${this._id}-${this._selected}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  _make() {
    const cells = this._columns.map((name) => h("span", { class: `cell ${name}` }));
    const element = h("div", { class: "row", role: "option" }, cells);
    element.addEventListener("click", () => this._select(Number(element.dataset.number), true));
    this._space.append(element);
    return element;
  }

  _select(number, opens) {
    if (!this.rows.length) return;
    this._selected = Math.min(Math.max(number, this._first), this._first + this.rows.length - 1);
    const top = (this._selected - this._first) * ROW_PX;
    const height = this.element.clientHeight;
    if (top < this._top) this._top = top;
    else if (top + ROW_PX > this._top + height) this._top = top + ROW_PX - height;
    if (this.follows && this._selected < this._first + this.rows.length - 1) this.follow(false);
    this._draw();
    if (opens) this._onopen(this.selected);
  }

  _key(event) {
    const page = Math.max(Math.floor(this.element.clientHeight / ROW_PX) - 1, 1);
    const none = this._selected < this._first;
    const start = none ? this._first + Math.ceil(this._top / ROW_PX) : this._selected;
    const steps = { ArrowDown: none ? 0 : 1, ArrowUp: none ? 0 : -1, PageDown: page, PageUp: -page };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) this._select(start + steps[event.key], this._opensOnMove);
    else if (event.key === "Home") this._select(this._first, this._opensOnMove);
    else if (event.key === "End") this._select(this._first + this.rows.length - 1, this._opensOnMove);
    else if (event.key === "Enter") this._select(start, true);
    else return;
    event.preventDefault();
  }

  /** Whether moving to a row opens it, as it does while a record is shown beside the list. */
  set opensOnMove(yes) {
    this._opensOnMove = yes;
  }
}
