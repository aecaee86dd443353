"use strict";
// A document: the column with its facts, panels and outline, and the panel that is open.

const PANELS = [
  ["page", "Pages", (doc) => doc.pages.length], ["tables", "Tables", (doc) => doc.n_tables],
  ["figures", "Figures", (doc) => doc.n_images], ["summaries", "Summaries", (doc) => doc.summaries.length],
  ["chunks", "Chunks", (doc) => doc.n_chunks], ["modules", "Modules", (doc) => doc.n_modules],
  ["quarantine", "Quarantine", (doc) => doc.quarantine.length], ["about", "About", () => undefined],
];

async function documentView([docId, panel = "page", item, place]) {
  const doc = await source.piece(docId, "document");
  const opened = await openPanel(doc, panel, item, place);
  const node = make("div", { class: "document" },
    make("aside", { class: "left", "aria-label": "Document" }, panelLinks(doc, panel), factList(doc), outline(doc, panel === "page" ? openTitles(doc, Number(item), place) : new Set())),
    make("div", { class: "panel" }, opened.node));
  const choosePanel = (n) => {
    const [name, , amount] = PANELS[n - 1] || [];
    if (name && amount(doc) !== 0) go(`#/d/${docId}/${name}${name === "page" ? "/" + doc.pages[0].page : ""}`);
  };
  return { node, crumbs: [[`#/d/${docId}/page/1`, short(doc.name, 70)]], place: docId,
    keys: { ...opened.keys, panel: choosePanel, back: () => go(panel === "page" ? "#/" : `#/d/${docId}/page/1`) } };
}

async function openPanel(doc, panel, item, place) {
  if (panel === "page") return sheetPanel(doc, Number(item || 1), place === undefined ? undefined : Number(place));
  const panels = { tables: tablesPanel, figures: figuresPanel, summaries: summariesPanel, chunks: chunksPanel,
    modules: modulesPanel, quarantine: faultsPanel, about: aboutPanel };
  if (!Object.hasOwn(panels, panel)) return { node: make("p", { class: "nothing" }, "There is no such view."), keys: {} };
  return panels[panel](doc, item);
}

function panelLinks(doc, open) {
  return make("nav", { class: "panels", "aria-label": "Views of the document" }, PANELS.map(([name, label, amount], n) => {
    const many = amount(doc);
    const inside = [make("kbd", {}, String(n + 1)), make("span", {}, label), many === undefined ? "" : make("span", { class: "count" }, count(many))];
    if (many === 0) return make("span", { class: "off" }, inside);
    const first = name === "page" ? `/${doc.pages[0].page}` : "";
    return make("a", { href: `#/d/${doc.doc_id}/${name}${first}`, "aria-current": name === open ? "page" : null, class: name === "quarantine" ? "bad" : null }, inside);
  }));
}

function factList(doc) {
  const facts = [["format", doc.format], ["status", status(doc.status)], ["size", size(doc.bytes)],
    ["language", doc.language || "unknown"], ["licence", doc.licence || "unknown"]];
  return make("dl", { class: "facts" }, facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// The titles that an element stands under or, without one, those of the page.
function openTitles(doc, page, place) {
  if (place === undefined) return new Set(doc.pages.length > 1 ? doc.outline.filter((title) => title.place[0] === page) : []);
  const before = doc.outline.filter(({ place: [p, n] }) => p < page || (p === page && n <= Number(place)));
  return new Set(before.slice(-1));
}

function outline(doc, open) {
  if (!doc.outline.length) return "";
  const titles = doc.outline.map((title) => make("li", { class: `level-${Math.min(5, title.level)}` },
    make("a", { href: `#/d/${doc.doc_id}/page/${title.place[0]}/${title.place[1]}`, "aria-current": open.has(title) ? "true" : null },
      make("span", {}, title.text), make("span", { class: "count" }, count(title.place[0])))));
  const list = make("ol", { class: "outline" }, titles);
  requestAnimationFrame(() => list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }));
  return [make("h2", {}, doc.outline.length >= doc.max_listed ? `Outline, the first ${count(doc.max_listed)}` : "Outline"), list];
}
