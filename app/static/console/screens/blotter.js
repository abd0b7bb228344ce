/**
 * The blotter: panels of live records, kept in the address and in layouts with names.
 *
 * @module
 */

import { choice, copy, field, h, openDialog, toast } from "../kit/dom.js";
import { Panel } from "./panel.js";

/** @typedef {import("./panel.js").Layout} Layout */

const LAYOUTS = "tidegate.layouts";
const INTERVAL = "500ms";

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const offered = h("datalist", { id: "topics" });
  const place = h("div", { class: "panels" });
  const saved = choice([["", "layouts…"]], "", { "aria-label": "Saved layouts", onchange: () => load(saved.value) });
  /** @type {Panel[]} */
  let panels = [];
  /** @type {string[]} */
  let topics = [];

  const keep = () => remember({ panels: JSON.stringify(panels.map(({ layout }) => layout)) });
  const add = (/** @type {Layout} */ layout) => {
    const panel = new Panel(link, layout, { topics, onChange: keep, onClose: close });
    panels.push(panel);
    place.append(panel.element);
  };
  const close = (/** @type {Panel} */ panel) => {
    panel.close();
    panel.element.remove();
    panels = panels.filter((each) => each !== panel);
    keep();
  };
  const load = (/** @type {string} */ name) => {
    const layout = layouts()[name];
    if (!layout) return;
    for (const panel of [...panels]) close(panel);
    for (const each of layout) add(structuredClone(each));
    keep();
  };
  const offer = () => {
    saved.replaceChildren(...["", ...Object.keys(layouts())].map((name) => h("option", { value: name }, name || "layouts…")));
  };
  const addAnother = () => {
    add({ topic: topics[0] ?? "", interval: INTERVAL });
    keep();
  };
  element.append(
    offered,
    h("div", { class: "toolbar" }, h("button", { onclick: addAnother }, "Add a panel"), saved,
      h("button", { onclick: () => void save(panels.map(({ layout }) => layout)).then(offer) }, "Save the layout"),
      h("button", { onclick: () => void copy(location.href) }, "Copy the link")),
    place,
  );
  offer();
  let isLeft = false;
  const begin = async () => {
    topics = (await link.gateway.topics().catch(() => [])).map(({ topic }) => topic);
    if (isLeft) return;
    offered.append(...topics.map((topic) => h("option", { value: topic })));
    const given = layoutOf(query, topics);
    for (const layout of given) add(layout);
    keep();
  };
  void begin();
  return () => {
    isLeft = true;
    for (const panel of panels) panel.close();
  };
}

/**
 * Return what the address asks for: panels, a topic, or the first topic there is.
 *
 * @param {URLSearchParams} query
 * @param {string[]} topics
 * @returns {Layout[]}
 */
function layoutOf(query, topics) {
  try {
    const panels = JSON.parse(query.get("panels") ?? "[]");
    if (Array.isArray(panels) && panels.length > 0) return panels.filter((panel) => typeof panel?.topic === "string");
  } catch {
    toast("The link is not whole: its layout cannot be read.");
  }
  const topic = query.get("topic") ?? topics.find((name) => name === "market") ?? topics[0] ?? "";
  return [{ topic, interval: query.get("interval") ?? INTERVAL, filter: query.get("filter") ?? "" }];
}

/** @returns {Record<string, Layout[]>} */
function layouts() {
  return JSON.parse(localStorage.getItem(LAYOUTS) ?? "{}");
}

/** @param {Layout[]} panels */
async function save(panels) {
  const name = h("input", { required: true, maxlength: 60, autocomplete: "off" });
  const { dialog, closed } = openDialog("Save the layout", h("form", { class: "form", method: "dialog", onsubmit: () => store() }, field("Name", name), h("button", { class: "primary" }, "Save")));
  const store = () => {
    localStorage.setItem(LAYOUTS, JSON.stringify({ ...layouts(), [name.value]: panels }));
    dialog.close();
    toast(`Saved as ${name.value}, in this browser`);
  };
  name.focus();
  await closed;
}
