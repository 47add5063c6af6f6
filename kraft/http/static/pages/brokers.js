// The brokers, with where they listen.

import { html, nothing, render } from "../vendor/lit-html.js";
import { brokerTable } from "../brokers_view.js";
import { failed, fetchJson, loading, notMeasured, poll } from "../ui.js";

export default function page() {
  const element = document.createElement("div");
  let answer = null;
  const show = (data, error) => {
    answer = data ?? answer;
    render(
      html`<h1>Brokers</h1>${error ? failed(error) : nothing}${answer === null ? (error ? nothing : loading()) : html`${notMeasured(answer)}<section class="panel" aria-label="Brokers">${brokerTable(answer.brokers, true)}</section>`}`,
      element,
    );
  };
  show(null, null);
  const asks = poll((signal) => fetchJson("/api/brokers", signal), show, 2000);
  return { element, close: () => asks.close() };
}
