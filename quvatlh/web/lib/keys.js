// Keys of one letter: what they do, and whether they do it. Off, they are off for this browser until they are turned on again:
// who speaks to his machine, or hits keys without wanting to, has no use for them.

import { h } from "./dom.js";
import { ask } from "./parts.js";

const STORED = "quvatlh-keys";
const KEYS = [["p", "holds the page still, or lets it go on"], ["/", "leads to the search"], ["?", "opens this"]];
const ALWAYS = [["Tab", "goes from one thing to the next"], ["Escape", "closes what is on top"]];

let isOn = true; // where the browser keeps nothing, for as long as the page is open

export function areOn() {
  try {
    return isOn && localStorage.getItem(STORED) !== "off";
  } catch {
    return isOn;
  }
}

function turn(on) {
  isOn = true;
  try {
    if (on) localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, "off");
  } catch {
    isOn = on; // kept by this page alone
  }
}

export function help() {
  const rows = (keys) => keys.map(([key, words]) => [h("dt", { key: `${key} key` }, h("kbd", {}, key)), h("dd", { key: `${key} does` }, words)]);
  return ask({
    title: "Keys",
    fields: [{ name: "on", label: "Keys of one letter do something; remembered by this browser", kind: "check", value: areOn() }],
    body: (values) => [h("dl", { class: "pairs" }, rows([...(values.on ? KEYS : []), ...ALWAYS]))],
    submit: "Done",
    action: async (values) => turn(values.on),
  });
}
