// The nodes and their replicas, the tokens that open the door, a backup, and a link for another browser.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { ask, attempt, button, card, confirm, copyable, own, pairs, state, table, waiting, when } from "../lib/parts.js";

export default function cluster(page) {
  const told = page.watch("/v1/cluster", { topics: ["master", "worker"], everyMs: 2000, slowMs: 500 });
  const tokens = page.watch("/v1/tokens", { topics: ["token"], everyMs: 30_000 });

  async function link() {
    let made = "";
    await attempt("a link was made: it works once, for ten minutes", async () => {
      made = `${location.origin}${(await api.send("POST", "/v1/session/link")).url}`;
    });
    if (made) await ask({ title: "For another browser", text: "It logs in as you are, once, within ten minutes.", body: () => copyable(made), submit: "Done", action: async () => true });
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
        { head: "Entries behind", kind: "num", cell: (node) => (node.name === data.master ? "–" : node.lag === null ? h("span", { class: "dim", title: "only the master knows" }, "–") : count(node.lag)) },
        { head: "Peer", kind: "hide", cell: (node) => h("code", {}, own(node.peer)) },
        { head: "HTTP", kind: "hide", cell: (node) => (/^https?:\/\/[\w.[\]:-]+\/?$/.test(node.http) ? h("a", { href: node.http, rel: "noreferrer" }, node.http) : h("code", {}, own(node.http))) },
        page.mayChange && data.nodes.length > 1 ? { head: "", kind: "tight", cell: (node) => button("Remove", () => remove(node), { kind: "danger", label: `Remove ${node.name}` }) } : null,
      ].filter(Boolean), data.nodes, { key: (node) => node.id, caption: "Nodes" })),
      h("div", { class: "grid two" },
        card("The log", {}, pairs([["Master", data.master ? own(data.master) : state("lost", "none is known")], ["Term", count(data.term)], ["Last entry here", count(data.index)], ["This page is of", own(data.node)]]),
          h("p", {}, h("a", { class: "button", href: "/v1/cluster/backup", download: "" }, "Save a backup"))),
        card("Log in elsewhere", {}, h("p", {}, "A phone, or another browser: make a link that logs it in as you are. Or run ", h("code", {}, "quvatlh open"), "."), button("Make a link", link))),
      card("Tokens", { wide: true }, waiting(tokens) ?? table([
        { head: "Name", kind: "grow", cell: (token) => [own(token.name), token.name === page.session.name ? h("span", { class: "dim" }, " (you)") : null] },
        { head: "Role", cell: (token) => token.role },
        { head: "Queues", kind: "hide", cell: (token) => token.queues.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) },
        { head: "Groups", kind: "hide", cell: (token) => token.groups.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) },
        { head: "Made", kind: "tight", cell: (token) => when(token.created_at) },
      ], tokens.data.items, { caption: "Tokens" })),
    ];
  }
  return { title: "Cluster", render };
}
