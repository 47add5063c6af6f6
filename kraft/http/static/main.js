// The shell: which page is shown, the bar above it, keys, and the theme.

import { html, nothing, render } from "./vendor/lit-html.js";
import { follow, watchState } from "./live.js";
import { route } from "./router.js";
import { pill } from "./ui.js";

const main = document.getElementById("main");
const cluster = document.getElementById("cluster");
const theme = document.getElementById("theme");
const help = document.getElementById("help");
const PARENTS = { topic: "topics", messages: "topics", group: "groups", broker: "brokers" };
const NEXT_KEY_MS = 1200;

let shown = null; // {page, path, element, close}
let turn = 0;
let overview = null;
let stream = "lost";

async function show() {
  const wanted = route(location.hash || "#/overview");
  const mine = ++turn;
  mark(wanted?.page);
  shown?.close();
  shown = null;
  if (wanted === null) return say("There is no such page.");
  let module;
  try {
    module = await import(`./pages/${wanted.page}.js`);
  } catch {
    return mine === turn ? say("This page cannot be loaded: the node does not answer. Reload to try again.") : undefined;
  }
  if (mine !== turn) return undefined;
  shown = module.default(wanted.params);
  main.replaceChildren(shown.element);
  title(wanted);
  scrollTo(0, 0);
  return undefined;
}

function say(sentence) {
  const line = document.createElement("p");
  line.className = "state bad";
  line.setAttribute("role", "alert");
  line.textContent = sentence;
  main.replaceChildren(line);
}

function mark(page) {
  const here = PARENTS[page] ?? page;
  for (const entry of document.querySelectorAll("#bar nav a")) {
    if (entry.getAttribute("href") === `#/${here}`) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
}

function title({ page, params }) {
  const name = params.name ?? (params.id === undefined ? "" : page === "broker" ? `broker ${params.id}` : params.id);
  document.title = `${name ? `${name} · ` : ""}${PARENTS[page] ?? page} · kraft`;
}

const STREAMS = { live: ["good", "live"], paused: ["", "paused"], lost: ["bad", "lost"] };

function drawBar() {
  const problems = overview === null ? null : Object.values(overview.problem_counts).reduce((sum, one) => sum + one, 0);
  render(
    html`${overview === null ? nothing : html`<span class="dim" title="cluster id, and the node that answers">${overview.cluster_id} · node ${overview.node_id}</span>
      ${overview.principal ? html`<span class="dim">${overview.principal}</span>` : nothing}
      ${problems ? html`<a class="pill bad" href="#/overview">${problems} ${problems === 1 ? "problem" : "problems"}</a>` : nothing}`}
    <span role="status" title="the stream of events from this node">${pill(...STREAMS[stream])}</span>`,
    cluster,
  );
}

function drawTheme() {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  theme.textContent = other === "dark" ? "☾" : "☀";
  theme.setAttribute("aria-label", `Use the ${other} theme`);
  theme.title = `Use the ${other} theme`;
  theme.dataset.other = other;
}

theme.addEventListener("click", () => document.dispatchEvent(new CustomEvent("kraft-theme-chosen", { detail: theme.dataset.other })));
document.addEventListener("kraft-theme", drawTheme);
drawTheme();

document.getElementById("keys").addEventListener("click", () => help.showModal());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the page's
  main.focus();
});

let goesSince = null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "Escape") {
    if (field) field.blur();
    return;
  }
  if (field || help.open) return;
  const goes = goesSince !== null && event.timeStamp - goesSince < NEXT_KEY_MS;
  goesSince = null;
  if (goes) {
    const entry = document.querySelector(`#bar nav a[data-key="${CSS.escape(event.key)}"]`);
    if (entry) location.hash = entry.getAttribute("href");
  } else if (event.key === "g") goesSince = event.timeStamp;
  else if (event.key === "?") help.showModal();
  else if (event.key === "/") search();
  else return;
  event.preventDefault();
});

/** The page's search; where it has none, that of topics. */
function search() {
  const input = main.querySelector("input[type=search]");
  if (input) input.focus();
  else {
    location.hash = "#/topics";
    const wait = new MutationObserver(() => {
      const found = main.querySelector("input[type=search]");
      if (!found) return;
      wait.disconnect();
      found.focus();
    });
    wait.observe(main, { childList: true, subtree: true });
  }
}

watchState((state) => {
  stream = state;
  drawBar();
});
follow("overview", (data) => {
  overview = data;
  drawBar();
});
addEventListener("hashchange", show);
show();
