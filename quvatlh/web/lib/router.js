// `#/tasks/ID?tab=log` as a place: parts of the path, and what stands behind the `?`.

export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a place; what is empty is left out. */
export function to(parts, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""));
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(parts, query, { replace = false } = {}) {
  const address = to(parts, query);
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new Event("hashchange"));
  } else {
    location.hash = address;
  }
}
