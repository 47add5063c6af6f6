// One event stream for the tab: closed while the tab is hidden, opened again with backoff when it is lost.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
const EVENTS = ["overview", "metadata", "groups", "group", "refused"];

const followers = new Map(); // topic of the stream -> set of functions
const last = new Map(); // topic -> its newest data
const watchers = new Set();
let source = null;
let retry = null;
let change = null;
let wait = FIRST_WAIT_MS;
let state = "lost";

/** f(data) for each event of a topic of /api/events, and at once with the newest that is known. Returns what ends it. */
export function follow(topic, f) {
  if (!followers.has(topic)) followers.set(topic, new Set());
  const those = followers.get(topic);
  those.add(f);
  if (last.has(topic) && topic === "overview") f(last.get(topic));
  if (those.size === 1) reopenSoon();
  return () => {
    those.delete(f);
    if (those.size === 0 && followers.get(topic) === those) {
      followers.delete(topic);
      last.delete(topic);
      reopenSoon();
    }
  };
}

/** f("live" | "paused" | "lost") at once and at each change. */
export function watchState(f) {
  watchers.add(f);
  f(state);
  return () => watchers.delete(f);
}

function setState(next) {
  if (next === state) return;
  state = next;
  for (const f of watchers) f(state);
}

/** A page that leaves and the next one's first wish make one change of the stream. */
function reopenSoon() {
  if (change !== null) return;
  change = setTimeout(() => {
    change = null;
    open();
  }, 0);
}

function close() {
  clearTimeout(retry);
  retry = null;
  source?.close();
  source = null;
}

function open() {
  close();
  if (document.hidden) return setState("paused");
  if (followers.size === 0) return undefined;
  const topics = [...followers.keys()].map((topic) => encodeURIComponent(topic.replaceAll("%", "%25").replaceAll(",", "%2C")));
  const mine = new EventSource(`/api/events?topics=${topics.join(",")}`);
  source = mine;
  mine.onopen = () => {
    wait = FIRST_WAIT_MS;
    setState("live");
  };
  mine.onerror = () => {
    if (source !== mine) return;
    close();
    setState("lost");
    retry = setTimeout(open, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  };
  for (const event of EVENTS) mine.addEventListener(event, (message) => hand(event, JSON.parse(message.data)));
  return undefined;
}

function hand(event, data) {
  const topic = event === "group" ? `group:${data.group_id}` : event;
  if (event === "overview") last.set(topic, data);
  for (const f of followers.get(topic) ?? []) f(data);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
    setState("paused");
  } else open();
});
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => {
  if (event.persisted) open();
});
