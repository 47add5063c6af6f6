// The charts of rates that overview and broker share, with a switch between a minute and an hour.

import { html } from "./vendor/lit-html.js";
import { Chart } from "./chart.js";
import { byteRate, rate } from "./format.js";

export class RateCharts {
  constructor(draw) {
    this.span = "seconds";
    this._draw = draw;
    this._history = null;
    this._charts = [
      new Chart({
        label: "Bytes",
        format: byteRate,
        isBytes: true,
        least: 1024,
        series: [
          { key: "bytes_in_per_s", label: "in" },
          { key: "bytes_out_per_s", label: "out" },
          { key: "replication_bytes_out_per_s", label: "replication" },
        ],
      }),
      new Chart({ label: "Messages", format: rate, series: [{ key: "messages_in_per_s", label: "in" }] }),
      new Chart({
        label: "Requests",
        format: rate,
        series: [
          { key: "requests_per_s", label: "all" },
          { key: "failed_requests_per_s", label: "failed" },
        ],
      }),
    ];
  }

  /** HISTORY of the API; null (a broker that does not answer) leaves what was there. */
  update(history) {
    if (!history) return;
    this._history = history;
    for (const chart of this._charts) chart.update(history[this.span]);
  }

  close() {
    for (const chart of this._charts) chart.close();
  }

  view() {
    const button = (span, words) => html`<button type="button" aria-pressed=${this.span === span ? "true" : "false"} @click=${() => this._show(span)}>${words}</button>`;
    return html`<section class="panel" aria-labelledby="rates-title"><div class="head"><h2 id="rates-title">Rates</h2>
      <div class="switch" role="group" aria-label="Span">${button("seconds", "minute")}${button("minutes", "hour")}</div></div>
      <div class="charts">${this._charts.map((chart) => chart.element)}</div></section>`;
  }

  _show(span) {
    this.span = span;
    if (this._history) this.update(this._history);
    this._draw();
  }
}
