// Nobody is logged in: how to get in.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { copyable } from "../lib/parts.js";

export default function login(page) {
  let wrong = "";
  const used = page.place.query.link === "used";
  async function enter(event) {
    event.preventDefault();
    const token = event.target.elements.token.value.trim();
    try {
      await api.send("POST", "/v1/session", undefined, { Authorization: `Bearer ${token}` });
      location.hash = "#/";
      location.reload();
    } catch (error) {
      wrong = error.message;
      page.redraw();
    }
  }
  return {
    title: "Log in",
    render: () => h("div", { class: "login card" },
      h("h1", {}, "Qu'vatlh"),
      used ? h("p", { class: "problem" }, "That link was used already, or is too old. Each one works once.") : null,
      h("p", {}, "On a machine that has a token, run"),
      copyable(`quvatlh open --url ${location.origin}`),
      h("p", {}, "and open the link that it prints. Or give a token here; it is exchanged for a session and not kept:"),
      h("form", { onsubmit: enter },
        h("label", {}, h("span", {}, "Token"), h("input", { name: "token", type: "password", required: true, autocomplete: "off" })),
        wrong ? h("p", { class: "problem", role: "alert" }, wrong) : null,
        h("footer", {}, h("button", { type: "submit", class: "primary" }, "Log in")))),
  };
}
