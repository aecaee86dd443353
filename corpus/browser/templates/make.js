"use strict";
// Small builders. Texts come from documents: they are only ever set as text.
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...content) {
  return fill(document.createElement(tag), attributes, content);
}
function draw(tag, attributes = {}, ...content) {
  return fill(document.createElementNS(SVG, tag), attributes, content);
}
function fill(node, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...content.flat().filter((item) => item !== undefined && item !== null && item !== ""));
  return node;
}

const count = (n) => Number(n).toLocaleString("en");
const plural = (n, word, many = word + "s") => `${count(n)} ${n === 1 ? word : many}`;
const short = (text, limit) => (text.length > limit ? text.slice(0, limit - 1) + "…" : text);
function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const unit = bytes < 1e6 ? ["kB", 1e3] : bytes < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  const value = bytes / unit[1];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit[0]}`;
}
function seconds(value) {
  if (value === undefined || value === null) return "";
  return value < 10 ? value.toFixed(2) : count(Math.round(value));
}
const link = (address, ...content) => make("a", { href: address }, ...content);
const button = (label, act, more = {}) => make("button", { type: "button", onclick: act, ...more }, label);
const status = (name) => make("span", { class: "status " + (STATUS[name] || "") }, name);
const STATUS = { ok: "good", partial: "part", quarantined: "bad" };

// Categories in groups that share a colour and a switch; unknown ones fall under "other".
const GROUPS = {
  Title: "title", NarrativeText: "text", ListItem: "text", UncategorizedText: "text", Address: "text",
  EmailAddress: "text", Table: "table", Image: "figure", FigureCaption: "figure", Formula: "formula",
  CodeSnippet: "code", Header: "margin", Footer: "margin", PageNumber: "margin", PageBreak: "margin",
};
const GROUP_NAMES = {
  title: "Titles", text: "Text", table: "Tables", figure: "Figures", formula: "Formulas", code: "Code",
  margin: "Header, footer", other: "Other",
};
const groupOf = (category) => (Object.hasOwn(GROUPS, category) ? GROUPS[category] : "other");
const dot = (category) => make("span", { class: `dot of-${groupOf(category)}` });

// A list of which one item is chosen, by key or by click.
class Cursor {
  constructor(items, choose = () => {}) {
    this.items = items;
    this.index = -1;
    this.choose = choose;
  }
  move(step) {
    if (this.items.length) this.select(Math.max(0, Math.min(this.items.length - 1, this.index + step)));
  }
  select(index, quiet = false) {
    if (this.items[this.index]) this.items[this.index].removeAttribute("aria-current");
    this.index = index;
    const item = this.items[index];
    if (!item) return;
    item.setAttribute("aria-current", "true");
    item.scrollIntoView({ block: "nearest" });
    if (!quiet) this.choose(index);
  }
}

function pager(page, total, rows, address) {
  const last = Math.max(1, Math.ceil(total / rows));
  if (last < 2) return "";
  const to = (n, label, name) => (n < 1 || n > last
    ? make("span", { class: "off", "aria-hidden": "true" }, label)
    : link(address(n), label));
  const nav = make("nav", { class: "pager", "aria-label": "Pages of the list" },
    to(1, "« first"), to(page - 1, "‹ previous"),
    make("span", {}, `${count((page - 1) * rows + 1)} – ${count(Math.min(total, page * rows))} of ${count(total)}`),
    to(page + 1, "next ›"), to(last, "last »"));
  return nav;
}
