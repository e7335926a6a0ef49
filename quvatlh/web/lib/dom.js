// What a view should look like, and the least change that brings the page there. Nothing else touches the document.
//
// Descriptions hold text, never markup: there is no way through here to have something parsed.

const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = new Set(["script", "iframe", "object", "embed", "style", "link", "base", "meta", "foreignObject"]);
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "selected", "hidden", "readOnly", "required"]);
const ADDRESS = /^(#|\/(?!\/)|https?:\/\/)/;

/** One element: h("a", {href: "#/tasks", key: 1}, "text", [more], condition && child). */
export function h(tag, props, ...children) {
  return { tag, key: props?.key, props: props ?? {}, children: flattened(children, []) };
}

function flattened(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flattened(child, into);
    else if (child !== null && child !== undefined && child !== false && child !== true) {
      into.push(typeof child === "object" ? child : String(child));
    }
  }
  return into;
}

/** Bring the children of `root` to what is described. What is the same stays, with its focus, selection and scroll. */
export function draw(root, ...children) {
  const wanted = flattened(children, []);
  const had = root.contains(document.activeElement) ? document.activeElement : null;
  try {
    patchChildren(root, root.described ?? [], wanted, false);
  } catch {
    root.described = []; // another hand was in the page, such as a translator's: begin anew
    root.replaceChildren();
    root.append(...wanted.map((each) => create(each, false)));
  }
  root.described = wanted;
  if (had && document.activeElement !== had) refocus(root, had);
}

/** What had the focus was moved, or is gone: who is at the keyboard goes on where it was, or at the content, not at the top. */
function refocus(root, had) {
  if (root.contains(had)) had.focus({ preventScroll: true });
  else if (document.activeElement === document.body) root.querySelector("#main")?.focus({ preventScroll: true });
}

function create(described, inSvg) {
  if (typeof described === "string") return document.createTextNode(described);
  const { tag, props, children } = described;
  if (FORBIDDEN.has(tag)) throw new Error(`no ${tag} is made here`);
  const isSvg = inSvg || tag === "svg";
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const child of children) element.append(create(child, isSvg));
  for (const [name, value] of Object.entries(props)) setProp(element, name, value, undefined);
  if (props.made) props.made(element);
  return element;
}

function setProp(element, name, value, before) {
  if (name === "key" || name === "made" || value === before) {
    if (name !== "value" && name !== "checked") return;
  }
  if (name === "key" || name === "made") return;
  if (name.startsWith("on")) {
    if (value && typeof value !== "function") throw new Error(`${name} must be a function`);
    element[name] = value ?? null;
  } else if (name === "style") {
    for (const [property, each] of Object.entries(value ?? {})) if (each !== before?.[property]) element.style.setProperty(property, each);
  } else if (PROPERTIES.has(name) && name in element) {
    if (element[name] !== value) element[name] = value ?? (typeof element[name] === "boolean" ? false : "");
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    if ((name === "href" || name === "src") && !ADDRESS.test(value)) throw new Error(`no address: ${name}`);
    element.setAttribute(name, value === true ? "" : value);
  }
}

function isSame(a, b) {
  return typeof a === typeof b && (typeof a === "string" || (a.tag === b.tag && a.key === b.key));
}

function patch(node, before, after, inSvg) {
  if (before === after) return;
  if (typeof after === "string") {
    if (before !== after) node.data = after;
    return;
  }
  const isSvg = inSvg || after.tag === "svg";
  patchChildren(node, before.children, after.children, isSvg);
  for (const name of Object.keys(before.props)) {
    if (!(name in after.props)) setProp(node, name, undefined, before.props[name]);
  }
  for (const [name, value] of Object.entries(after.props)) setProp(node, name, value, before.props[name]);
}

function patchChildren(parent, before, after, inSvg) {
  const nodes = [...parent.childNodes];
  let start = 0;
  while (start < before.length && start < after.length && isSame(before[start], after[start])) {
    patch(nodes[start], before[start], after[start], inSvg);
    start += 1;
  }
  let oldEnd = before.length;
  let newEnd = after.length;
  while (oldEnd > start && newEnd > start && isSame(before[oldEnd - 1], after[newEnd - 1])) {
    oldEnd -= 1;
    newEnd -= 1;
    patch(nodes[oldEnd], before[oldEnd], after[newEnd], inSvg);
  }
  const kept = new Map();
  for (let i = start; i < oldEnd; i += 1) {
    const each = before[i];
    if (typeof each === "object" && each.key !== undefined) kept.set(`${each.tag} ${each.key}`, i);
  }
  const places = []; // for each that is wanted: where it stands now, or -1
  for (let i = start; i < newEnd; i += 1) {
    const each = after[i];
    const key = typeof each === "object" && each.key !== undefined ? `${each.tag} ${each.key}` : undefined;
    places.push(kept.get(key) ?? -1);
    kept.delete(key);
  }
  const used = new Set(places);
  for (let i = start; i < oldEnd; i += 1) if (!used.has(i)) nodes[i].remove();
  const resting = rising(places);
  let follower = nodes[oldEnd] ?? null;
  for (let i = places.length - 1; i >= 0; i -= 1) {
    const at = places[i];
    const wanted = after[start + i];
    const node = at < 0 ? create(wanted, inSvg) : nodes[at];
    if (at >= 0) patch(node, before[at], wanted, inSvg);
    if (!resting.has(i)) move(parent, node, follower);
    follower = node;
  }
}

/** Moved as it is where the browser can: one that is taken out and put in again loses focus, scroll and a click half done. */
function move(parent, node, follower) {
  if (node.parentNode && parent.moveBefore) parent.moveBefore(node, follower);
  else parent.insertBefore(node, follower);
}

/** Positions of a longest run of places that rise: those nodes stand in the right order already, and are left alone. */
function rising(places) {
  const ends = []; // ends[n]: the position of the lowest place that ends a run of n + 1
  const previous = [];
  places.forEach((place, i) => {
    if (place < 0) return;
    let low = 0;
    for (let high = ends.length; low < high;) {
      const middle = (low + high) >> 1;
      if (places[ends[middle]] < place) low = middle + 1;
      else high = middle;
    }
    previous[i] = low > 0 ? ends[low - 1] : -1;
    ends[low] = i;
  });
  const found = new Set();
  for (let i = ends.at(-1) ?? -1; i >= 0; i = previous[i]) found.add(i);
  return found;
}
