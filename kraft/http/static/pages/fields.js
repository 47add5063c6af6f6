// A record's key, value or header as text: what /api/…/messages tells of it, in the form that a person asks for.
// Pure: strings in, strings out. Whatever they hold, they are only ever put into text nodes.

export const HEX_MAX_BYTES = 64 * 1024;
export const TEXT_MAX_CHARS = 256 * 1024;
const HEX_ROW_BYTES = 16;

/** The bytes that were told. */
export function bytesOf(field) {
  if (field.text !== undefined) return new TextEncoder().encode(field.text);
  const bytes = new Uint8Array(field.hex.length / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = parseInt(field.hex.substr(at * 2, 2), 16);
  return bytes;
}

/** Text, with a replacement character for each byte that is none. */
export function textOf(field) {
  return field.text !== undefined ? field.text : new TextDecoder().decode(bytesOf(field));
}

/** As hexdump prints it: offset, bytes, and those that are ASCII. */
export function hexOf(field) {
  const bytes = bytesOf(field).subarray(0, HEX_MAX_BYTES);
  const rows = [];
  for (let start = 0; start < bytes.length; start += HEX_ROW_BYTES) {
    const row = Array.from(bytes.subarray(start, start + HEX_ROW_BYTES));
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${start.toString(16).padStart(8, "0")}  ${digits.padEnd(HEX_ROW_BYTES * 3 - 1)}  ${letters}`);
  }
  return rows.join("\n");
}

/** Indented JSON, or null if it is none (a value that was cut is none). Its tokens stay as they are written: numbers
 *  beyond 2^53 would lose digits in a parser. */
export function jsonOf(field) {
  if (field.text === undefined || field.shown_bytes < field.size_bytes) return null;
  try {
    JSON.parse(field.text);
  } catch {
    return null;
  }
  return indented(field.text);
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** No more than a page shows: what is nested deeply would be indented by more than a browser holds. */
function indented(text) {
  const tokens = text.match(TOKENS) ?? [];
  const parts = [];
  let depth = 0;
  let length = 0;
  const push = (part) => {
    parts.push(part);
    length += part.length;
  };
  const newLine = () => push(`\n${"  ".repeat(depth)}`);
  for (let at = 0; at < tokens.length && length <= TEXT_MAX_CHARS; at++) {
    const token = tokens[at];
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      push(token);
      depth++;
      if (next !== "}" && next !== "]") newLine();
    } else if (token === "}" || token === "]") {
      depth--;
      if (tokens[at - 1] !== "{" && tokens[at - 1] !== "[") newLine();
      push(token);
    } else if (token === ",") {
      push(token);
      newLine();
    } else push(token === ":" ? ": " : token);
  }
  return parts.join("");
}

const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

/** The form that fits: json, text or hex. */
export function bestForm(field) {
  if (field.text === undefined || CONTROL.test(field.text)) return "hex";
  return /^\s*[[{]/.test(field.text) && jsonOf(field) !== null ? "json" : "text";
}

/** A field in a form (auto, text, json, hex); what is too much for a page is left out at the end, and `cut` says so. */
export function shown(field, form) {
  const asked = form === "auto" ? bestForm(field) : form;
  if (asked === "hex") return { form: "hex", text: hexOf(field), cut: bytesOf(field).length > HEX_MAX_BYTES };
  const json = asked === "json" ? jsonOf(field) : null;
  const text = json ?? textOf(field);
  return { form: json === null ? "text" : "json", text: text.slice(0, TEXT_MAX_CHARS), cut: text.length > TEXT_MAX_CHARS };
}

const PREVIEW_CHARS = 300;
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** One line for a list. Characters that cannot be seen, or turn the direction of text, are shown as what they are. */
export function preview(field, form) {
  if (form === "hex" || (form !== "text" && bestForm(field) === "hex")) {
    const bytes = Array.from(bytesOf(field).subarray(0, PREVIEW_CHARS / 3));
    return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  return textOf(field).slice(0, PREVIEW_CHARS).replace(INVISIBLE, visible);
}

function visible(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}
