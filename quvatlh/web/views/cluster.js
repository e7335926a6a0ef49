// The nodes and their replicas, the tokens that open the door, a backup, and a link for another browser.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { bytes, count, span, spanMs } from "../lib/format.js";
import { ask, asking, attempt, button, card, confirm, copyable, listed, own, pairs, state, table, waiting, when } from "../lib/parts.js";

const ROLES = {
  viewer: "sees",
  producer: "sees, adds and deletes tasks",
  operator: "and changes them, queues, workers, schedules",
  admin: "and the cluster itself, and tokens",
  worker: "claims tasks, and nothing else",
};

/** What it is for, in one line. */
const scope = (token) => `queues ${token.queues.join(" ")} · groups ${token.groups.join(" ")}`;

export default function cluster(page) {
  const told = page.watch("/v1/cluster", { topics: ["master", "worker"], everyMs: 2000, slowMs: 500 });
  const tokens = page.may("GET /v1/tokens") ? page.watch("/v1/tokens", { topics: ["token"], everyMs: 30_000 }) : null;

  async function link() {
    const still = asking();
    let made = "";
    await attempt("a link was made: it works once, for ten minutes", async () => {
      made = `${location.origin}${(await api.send("POST", "/v1/session/link")).url}`;
    });
    if (made && still()) await ask({ title: "For another browser", text: "It logs in as you are, once, within ten minutes.", body: () => copyable(made), submit: "Done", action: async () => true });
  }

  async function make() {
    const made = await ask({
      title: "New token", submit: "Make",
      text: "Who has it may do what its role says, to tasks whose queue and group match a pattern: * is any text, ? one character.",
      fields: [
        { name: "name", label: "Name" },
        { name: "role", label: "Role", kind: "choice", value: "viewer", options: Object.entries(ROLES).map(([name, words]) => [name, `${name}: ${words}`]) },
        { name: "queues", label: "Queues", value: "*", hint: "patterns, separated by spaces" },
        { name: "groups", label: "Groups", value: "*", hint: "patterns, separated by spaces" },
        { name: "expires", label: "Expires after", hint: "such as 12h or 30d; empty for never" },
      ],
      action: (values) => api.send("POST", "/v1/tokens", { name: values.name.trim(), role: values.role, queues: listed(values.queues), groups: listed(values.groups), expires: values.expires.trim() || null }),
    });
    if (!made) return;
    tokens.refresh();
    await ask({ title: `Token ${made.name}`, text: "Its secret is shown this once: nobody can tell it again.", body: () => copyable(made.secret), submit: "Done", action: async () => true });
  }

  function revoke(token) {
    const mine = token.name === page.session.name ? " You are logged in by it yourself." : "";
    return confirm(`Revoke ${token.name}?`, `Who uses it is shut out at once, on every node, and for good.${mine}`, "Revoke", async () => {
      const done = await api.send("DELETE", api.path("/v1/tokens", token.name));
      tokens.refresh();
      return done;
    });
  }

  function remove(node) {
    return confirm(`Remove ${node.name}?`, "It is no member from then on, and its replica does not count. Stop it, too: it does not stop by itself.", "Remove", () => api.send("DELETE", api.path("/v1/cluster/members", node.id)));
  }

  function render() {
    const wait = waiting(told);
    if (wait) return wait;
    const data = told.data;
    return [
      card("Nodes", { wide: true }, table([
        { head: "Node", kind: "grow", cell: (node) => [own(node.name), node.name === data.node ? h("span", { class: "dim" }, " (this page)") : null] },
        { head: "Is", cell: (node) => (node.name === data.master ? state("master") : node.state === "up" ? state("replica") : state(node.state)) },
        { head: "Behind", kind: "num", cell: (node) => (node.name === data.master ? "–" : node.lag === null ? h("span", { class: "dim", title: "only the master knows" }, "–") : count(node.lag)) },
        { head: "Term", kind: "num hide", cell: (node) => own(node.term === null ? "–" : count(node.term)) },
        { head: "Log", kind: "num", cell: (node) => bytes(node.log_bytes) },
        { head: "Snapshot", kind: "num", cell: (node) => bytes(node.snapshot_bytes) },
        { head: "Peer", kind: "hide", cell: (node) => h("code", {}, own(node.peer)) },
        { head: "HTTP", kind: "hide", cell: (node) => (/^https?:\/\/[\w.[\]:-]+\/?$/.test(node.http) ? h("a", { href: node.http, rel: "noreferrer" }, node.http) : h("code", {}, own(node.http))) },
        page.may("DELETE /v1/cluster/members/{id}") && data.nodes.length > 1 ? { head: "", kind: "tight", cell: (node) => button("Remove", () => remove(node), { kind: "danger", label: `Remove ${node.name}` }) } : null,
      ].filter(Boolean), data.nodes, { key: (node) => node.id, caption: "Nodes", reached: true }), data.warning ? h("p", { class: "problem" }, data.warning) : null),
      h("div", { class: "grid two" },
        card("The log", {}, pairs([["Master", data.master ? own(data.master) : state("lost", "none is known")], ["Term", count(data.term)], ["Last entry here", count(data.index)], ["Log time", data.clock.behind === "0s" ? "goes on with the clocks" : state("lost", `stands still: the clocks are ${span(spanMs(data.clock.behind))} behind it`)], ["This page is of", own(data.node)]]),
          page.may("GET /v1/cluster/backup") ? h("p", {}, h("a", { class: "button", href: "/v1/cluster/backup", download: "" }, "Save a backup")) : null),
        card("Log in elsewhere", {}, h("p", {}, "A phone, or another browser: make a link that logs it in as you are. Or run ", h("code", {}, "quvatlh open"), "."), button("Make a link", link))),
      tokens && card("Tokens", { wide: true, more: page.may("POST /v1/tokens") ? button("New token", make) : null }, waiting(tokens) ?? table([
        { head: "Name", kind: "grow", cell: (token) => [own(token.name), token.name === page.session.name ? h("span", { class: "dim" }, " (you)") : null, h("small", { class: "narrow-only" }, own(scope(token)))] },
        { head: "Role", cell: (token) => token.role },
        { head: "Queues", kind: "hide", cell: (token) => token.queues.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) },
        { head: "Groups", kind: "hide", cell: (token) => token.groups.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) },
        { head: "Made", kind: "tight hide", cell: (token) => when(token.created_at) },
        { head: "Expires", kind: "tight", cell: (token) => token.expired ? "expired" : token.expires_at ? when(token.expires_at) : "never" },
        page.may("DELETE /v1/tokens/{name}") ? { head: "", kind: "tight", cell: (token) => button("Revoke", () => revoke(token), { kind: "danger", label: `Revoke ${token.name}` }) } : null,
      ].filter(Boolean), tokens.data.items, { caption: "Tokens" })),
    ];
  }
  return { title: "Cluster", render };
}
