// A line chart over uPlot: the last minute by the second, or the last hour by the minute.

/* global uPlot */

const HEIGHT_PX = 130;
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const PALETTE = ["--series-1", "--series-2", "--series-3"];

export class Chart {
  /** `series`: [{key, label}]; `format(value)` makes an axis's and the legend's words; `label` says what is shown; the axis reaches to `least`. */
  constructor({ label, series, format, least = 10, isBytes = false, height = HEIGHT_PX }) {
    this._label = label;
    this._series = series;
    this._format = format;
    this._least = least;
    this._isBytes = isBytes;
    this._height = height;
    this._plot = null;
    this._data = null;
    this._canvas = document.createElement("div");
    this._canvas.className = "plot";
    this._canvas.setAttribute("role", "img");
    this._caption = document.createElement("figcaption");
    this.element = document.createElement("figure");
    this.element.className = "chart";
    this.element.append(this._caption, this._canvas);
    this._now = series.map(({ label: name }, at) => {
      const line = document.createElement("span");
      line.className = `key key-${at + 1}`;
      line.textContent = name;
      const value = document.createElement("b");
      line.append(" ", value);
      return { line, value };
    });
    const title = document.createElement("b");
    title.className = "title";
    title.textContent = label;
    this._caption.append(title, ...this._now.map(({ line }) => line));
    this._sizes = new ResizeObserver(() => this._resize());
    this._sizes.observe(this._canvas);
    this._themed = () => this._make();
    document.addEventListener("kraft-theme", this._themed);
  }

  close() {
    this._sizes.disconnect();
    document.removeEventListener("kraft-theme", this._themed);
    this._plot?.destroy();
    this._plot = null;
  }

  /** SERIES of the API: {step_ms, end_at_ms (null: nothing was sampled), series: {key: [values]}} */
  update({ step_ms: step, end_at_ms: end, series }) {
    const rows = this._series.map(({ key }) => series[key] ?? []);
    const length = Math.max(...rows.map((row) => row.length));
    const times = Array.from({ length }, (_, at) => ((end ?? Date.now()) - (length - 1 - at) * step) / 1000);
    this._data = [times, ...rows.map((row) => (row.length ? row : times.map(() => null)))];
    const words = rows.map((row, at) => {
      const newest = row.length ? row[row.length - 1] : null;
      this._now[at].value.textContent = this._format(newest);
      return `${this._series[at].label} ${this._format(newest)}`;
    });
    this._canvas.setAttribute("aria-label", `${this._label}: ${words.join(", ")}`);
    if (this._plot) this._plot.setData(this._data);
    else this._make();
  }

  _resize() {
    const width = this._canvas.clientWidth;
    if (width && this._plot && this._plot.width !== width) this._plot.setSize({ width, height: this._height });
    else if (width && !this._plot) this._make();
  }

  _make() {
    const width = this._canvas.clientWidth;
    if (!this._data || !width) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    this._plot?.destroy();
    this._plot = new uPlot(
      {
        width,
        height: this._height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        padding: [8, 26, 0, 0],
        scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max((most ?? 0) * 1.1, this._least)] } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, ticks) => ticks.map((at) => timeWords(at)) },
          { ...axis, size: 72, space: 34, ...(this._isBytes ? { incrs: BYTE_STEPS } : {}), values: (_, ticks) => ticks.map((value) => this._format(value)) },
        ],
        series: [
          {},
          ...this._series.map((one, at) => ({
            label: one.label,
            stroke: colour(PALETTE[at]),
            width: 1.5,
            fill: at === 0 ? colour("--series-1-fill") : undefined,
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: { setCursor: [(plot) => this._pointed(plot)] },
      },
      this._data,
      this._canvas,
    );
  }

  /** Where the pointer is, the words are of that moment; else of the newest one. */
  _pointed(plot) {
    const at = plot.cursor.idx ?? this._data[0].length - 1;
    this._now.forEach(({ value }, index) => {
      value.textContent = this._format(this._data[index + 1][at] ?? null);
    });
  }
}

const timeWords = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
