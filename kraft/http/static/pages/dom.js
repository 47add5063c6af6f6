// Elements, made without any markup: what is not an element becomes a text node.

/** h("button", {class: "x", onclick: f, disabled: true}, "Read", h("b", {}, "!")) */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** The JSON of a path; throws an Error whose message is the server's sentence. */
export async function fetchJson(path, signal) {
  const answer = await fetch(path, { signal, headers: { Accept: "application/json" } });
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Error(`the node answers ${answer.status} without JSON`);
  }
  if (!answer.ok) throw new Error(body.error ?? `the node answers ${answer.status}`);
  return body;
}

const two = (number) => String(number).padStart(2, "0");

/** Local time to the millisecond; a record may be without (-1). */
export function timeOf(ms) {
  if (ms === null || ms < 0) return "\u2013";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const milliseconds = String(at.getMilliseconds()).padStart(3, "0");
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${milliseconds}`;
}

export const count = (number) => (number === null || number === undefined ? "\u2013" : number.toLocaleString("en-US"));

/** 1,234 B, 5.0 MiB */
export function bytes(number) {
  if (number === null || number === undefined) return "\u2013";
  if (number < 1024) return `${number} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = -1;
  let left = number;
  do {
    left /= 1024;
    unit++;
  } while (left >= 1024 && unit < units.length - 1);
  return `${left.toFixed(1)} ${units[unit]}`;
}

/** 850 ms, 12 s, 3 min, 5.2 h, 2.1 d; from seconds */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}
