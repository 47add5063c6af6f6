// How far a group was behind over the last hour: one line by the minute, gaps where nothing was measured.

import { count } from "../format.js";
import { h } from "./dom.js";

const WIDTH = 720;
const HEIGHT = 120;
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** `values`: oldest first, null where not known; `format`: of the largest. */
export function lagChart(title, values, stepMs, format = count) {
  const known = values.filter((value) => value !== null);
  const head = h("h3", {}, title);
  if (!known.length) return h("figure", { class: "lag-chart" }, head, h("p", { class: "nothing" }, "Not measured yet."));
  const most = Math.max(...known, 1);
  const newest = values.at(-1) ?? known.at(-1);
  const summary = `now ${format(newest)}, at most ${format(Math.max(...known))}`;
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${summary}` });
  for (const share of [0, 0.5, 1]) {
    const y = 4 + (HEIGHT - 8) * share;
    chart.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  }
  for (const run of runs(values)) {
    const points = run.map(([at, value]) => `${(at * WIDTH) / Math.max(values.length - 1, 1)},${HEIGHT - 4 - ((HEIGHT - 8) * value) / most}`);
    if (points.length === 1) points.push(`${points[0].split(",")[0] * 1 + 2},${points[0].split(",")[1]}`);
    chart.append(svg("polyline", { class: "line", points: points.join(" ") }));
  }
  const minutes = Math.round((values.length * stepMs) / 60e3);
  return h("figure", { class: "lag-chart" }, head, h("div", { class: "lag-plot" }, h("span", { class: "top" }, format(most)), chart),
    h("figcaption", {}, h("span", {}, `${minutes} min ago`), h("span", {}, summary), h("span", {}, "now")));
}

function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, at) => {
    if (value === null) run = null;
    else if (run === null) found.push((run = [[at, value]]));
    else run.push([at, value]);
  });
  return found;
}
