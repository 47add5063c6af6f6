// The hash says which page is shown: #/topics/NAME?q=… Names are percent-encoded, so that any name is a link.

const ROUTES = [
  [/^\/?$/, "overview", []],
  [/^\/overview$/, "overview", []],
  [/^\/topics$/, "topics", []],
  [/^\/topics\/([^/]+)$/, "topic", ["name"]],
  [/^\/topics\/([^/]+)\/messages$/, "messages", ["name"]],
  [/^\/groups$/, "groups", []],
  [/^\/groups\/([^/]*)$/, "group", ["id"]],
  [/^\/brokers$/, "brokers", []],
  [/^\/brokers\/([0-9]+)$/, "broker", ["id"]],
  [/^\/quorum$/, "quorum", []],
  [/^\/metadata$/, "metadata", []],
];

/** The page of a hash: {page, params: {name?, id?, query}}, or null where there is none. */
export function route(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  for (const [pattern, page, names] of ROUTES) {
    const match = pattern.exec(path);
    if (!match) continue;
    try {
      const params = Object.fromEntries(names.map((name, at) => [name, decodeURIComponent(match[at + 1])]));
      return { page, path, params: { ...params, query: new URLSearchParams(query) } };
    } catch (error) {
      if (error instanceof URIError) return null;
      throw error;
    }
  }
  return null;
}

/** A link to a page: link("topics", "a/b", "messages") is #/topics/a%2Fb/messages */
export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** Other values in the hash's query, without another entry in the history and without another page; null takes one out. */
export function setQuery(values) {
  const [path, query = ""] = location.hash.split(/\?(.*)/s);
  const now = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "") now.delete(name);
    else now.set(name, value);
  }
  const text = now.toString();
  history.replaceState(null, "", (path || "#/overview") + (text ? `?${text}` : ""));
}
