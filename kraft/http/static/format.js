// Numbers for people. null and undefined (not known) are an en dash.

export const UNKNOWN = "–";
const known = (f) => (value) => (value === null || value === undefined ? UNKNOWN : f(value));
const scaled = (value, step, units) => {
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= step && unit < units.length - 1) {
    left /= step;
    unit++;
  }
  return [left, units[unit], unit];
};
const three = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, "");

/** 1,234 */
export const count = known((value) => value.toLocaleString("en-US"));

/** 999 B, 1.5 KiB, 20.3 GiB */
export const bytes = known((value) => {
  const [left, unit, at] = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return `${at === 0 ? Math.round(left) : three(left)} ${unit}`;
});

/** 1.5 KiB/s */
export const byteRate = known((value) => `${bytes(value)}/s`);

/** 0.2/s, 12/s, 4.1 k/s */
export const rate = known((value) => {
  const [left, unit] = scaled(value, 1000, ["", " k", " M", " G"]);
  return `${three(left)}${unit}/s`;
});

/** 850 ms, 12 s, 3 min, 5.2 h, 2.1 d; from milliseconds */
export const duration = known((ms) => {
  if (ms < 0) return UNKNOWN;
  if (ms < 1000) return `${three(ms)} ms`;
  if (ms < 10_000) return `${three(ms / 1000)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${three(ms / 3_600_000)} h` : `${three(ms / 86_400_000)} d`;
});

/** How long ago; clocks of two machines may differ, so the future is now. */
export const ago = known((atMs) => `${duration(Math.max(Date.now() - atMs, 0))} ago`);

/** 14:03:22.512 of this browser's time zone */
export const clock = known((atMs) => {
  const at = new Date(atMs);
  return Number.isNaN(at.getTime()) ? `${atMs} ms` : `${at.toLocaleTimeString("en-GB")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
});

/** What a topic keeps: -1 is no bound. */
export const retention = (topic) => {
  if (topic.cleanup_policy === "compact") return "compact";
  const time = topic.retention_ms === -1 ? null : topic.retention_ms === null ? UNKNOWN : duration(topic.retention_ms);
  const size = topic.retention_bytes === -1 || topic.retention_bytes === null ? null : bytes(topic.retention_bytes);
  const bounds = [time, size].filter((bound) => bound !== null).join(", ") || "for ever";
  return topic.cleanup_policy === "delete" || topic.cleanup_policy === null ? bounds : `${topic.cleanup_policy}, ${bounds}`;
};
