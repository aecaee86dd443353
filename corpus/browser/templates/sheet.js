"use strict";
// A page as it was read: its image with the boxes of elements, beside the list of the elements.
const view = { zoom: 1, boxes: true, hidden: new Set() }; // kept from page to page

async function sheetPanel(doc, pageNumber, place) {
  const at = doc.pages.findIndex((page) => page.page === pageNumber);
  const page = doc.pages[at];
  if (!page) return { node: make("p", { class: "nothing" }, `This document has no page ${pageNumber}.`), keys: {} };
  const part = Math.floor((place || 0) / doc.part_elements);
  const { elements, first } = page.n_elements
    ? await source.piece(doc.doc_id, `page-${page.page}-${part}`) : { elements: [], first: 0 };
  const sheet = new Sheet(doc, page, elements, first);
  const turn = (step) => doc.pages[at + step] && go(`#/d/${doc.doc_id}/page/${doc.pages[at + step].page}`);
  const list = make("aside", { class: "elements", "aria-label": "Elements of the page" }, sheet.listNodes());
  const node = make("div", { class: "sheet-view" }, make("section", { class: "stage", "aria-label": "Page" },
    toolbar(doc, at, turn, sheet), sheet.banner(), sheet.frame), list);
  sheet.paint();
  if (place !== undefined) requestAnimationFrame(() => sheet.choose(place - first, true));
  return { node, keys: {
    move: (step) => sheet.cursor.move(step), open: () => sheet.open(), turn,
    zoom: (change) => sheet.zoom(change), boxes: () => sheet.toggleBoxes(),
  } };
}

function toolbar(doc, at, turn, sheet) {
  const total = doc.pages.length, page = doc.pages[at];
  const number = make("input", { type: "number", min: 1, max: doc.pages[total - 1].page, value: page.page, "aria-label": "Page" });
  number.addEventListener("change", () => go(`#/d/${doc.doc_id}/page/${Math.max(1, Number(number.value) || 1)}`));
  const zoom = sheet.hasImage ? make("span", { class: "zoom" }, button("−", () => sheet.zoom("out"), { "aria-label": "Smaller" }),
    button("fit", () => sheet.zoom("fit"), { title: "Whole page (0)" }), button("+", () => sheet.zoom("in"), { "aria-label": "Larger" })) : "";
  return make("div", { class: "toolbar" },
    make("span", { class: "turn" }, button("‹", () => turn(-1), { "aria-label": "Previous page", disabled: at === 0 }),
      number, ` of ${count(doc.pages[total - 1].page)} `, button("›", () => turn(1), { "aria-label": "Next page", disabled: at === total - 1 })),
    make("span", { class: "chips" }, sheet.chips()), zoom);
}

class Sheet {
  constructor(doc, page, elements, first) {
    Object.assign(this, { doc, page, elements, first });
    this.hasImage = page.image_dpi > 0 && page.width_pt > 0;
    this.items = elements.map((element, n) => this.item(element, n));
    this.cursor = new Cursor(this.items, (n) => this.chosen(n));
    this.frame = make("div", { class: "frame", tabindex: "-1" });
  }

  banner() {
    const faults = this.doc.quarantine.filter((row) => row.page === this.page.page);
    const notes = [...this.page.flags, this.page.text_source === "ocr" ? "text by OCR" : "", this.page.text_source === "none" ? "no text" : "",
      this.page.rotation ? `turned by ${this.page.rotation}°` : ""].filter(Boolean).map((note) => note.replaceAll("_", " "));
    return [
      faults.map((row) => make("p", { class: "banner bad" }, make("strong", {}, `In quarantine: ${row.reason.replaceAll("_", " ")}. `), row.detail)),
      notes.length ? make("p", { class: "banner" }, [...new Set(notes)].join(" · ")) : "",
    ];
  }

  chips() {
    const counts = new Map();
    for (const element of this.elements) counts.set(groupOf(element.category), (counts.get(groupOf(element.category)) || 0) + 1);
    return Object.keys(GROUP_NAMES).filter((group) => counts.has(group)).map((group) => {
      const chip = make("button", { type: "button", class: "chip", "aria-pressed": String(!view.hidden.has(group)) },
        make("span", { class: `dot of-${group}` }), `${GROUP_NAMES[group]} ${counts.get(group)}`);
      chip.addEventListener("click", () => {
        view.hidden.has(group) ? view.hidden.delete(group) : view.hidden.add(group);
        chip.setAttribute("aria-pressed", String(!view.hidden.has(group)));
        this.paint();
      });
      return chip;
    });
  }

  // ---- the list
  listNodes() {
    const total = this.page.n_elements, size = this.doc.part_elements;
    const go_to = (place) => `#/d/${this.doc.doc_id}/page/${this.page.page}/${place}`;
    const part = total > size ? make("nav", { class: "pager" },
      this.first ? link(go_to(this.first - size), "‹ previous") : make("span", { class: "off" }, "‹ previous"),
      make("span", {}, `${count(this.first + 1)} – ${count(this.first + this.elements.length)} of ${count(total)}`),
      this.first + size < total ? link(go_to(this.first + size), "next ›") : make("span", { class: "off" }, "next ›")) : "";
    const title = total ? `${plural(total, "element")} in reading order` : "No elements on this page";
    return [make("h2", {}, title), part, make("ol", { class: "items" }, this.items)];
  }
  item(element, n) {
    return make("li", { onclick: () => this.choose(n) },
      make("p", { class: "kind" }, dot(element.category), element.category, make("span", { class: "place" }, count(this.first + n + 1))),
      make("p", { class: "text" }, element.text ? short(element.text, 220) : make("span", { class: "off" }, "no text")));
  }
  choose(n, toSheet = false) {
    this.cursor.select(n, true);
    this.chosen(n, toSheet);
  }
  chosen(n, quiet = false) {
    const element = this.elements[n];
    if (!element) return;
    for (const item of this.items) item.querySelector(".more")?.remove();
    for (const item of this.items) item.classList.remove("whole");
    this.items[n].classList.add("whole");
    this.items[n].append(this.details(element));
    this.items[n].scrollIntoView({ block: "nearest" });
    for (const node of this.frame.querySelectorAll("[data-n]")) {
      const isChosen = Number(node.dataset.n) === n;
      node.classList.toggle("chosen", isChosen);
      if (isChosen) node.scrollIntoView({ block: quiet ? "center" : "nearest", inline: "nearest" });
    }
    this.drawCells(element);
  }
  details(element) {
    const box = element.bbox_pt && element.bbox_pt.map((value) => Math.round(value * 10) / 10).join(", ");
    const facts = [
      ["section", element.section_path.join(" › ")], ["level", element.level || ""], ["box, pt", box || "none"],
      ...Object.entries(element.metadata), ["element", element.element_id],
    ].filter(([, value]) => value !== "");
    const open = this.target(element);
    return make("div", { class: "more" },
      element.text.length > 220 ? make("p", { class: "full" }, element.text) : "",
      element.n_chars > element.text.length ? make("p", { class: "soft" }, `${count(element.n_chars)} characters, the first shown`) : "",
      open ? make("p", {}, link(open[0], open[1])) : "",
      make("dl", { class: "facts" }, facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value))))));
  }
  target(element) {
    const base = `#/d/${this.doc.doc_id}`;
    if (!element.is) return undefined;
    if (element.category === "Table") return [`${base}/tables/${element.is}`, "Table beside its picture"];
    if (this.doc.modules.some((module) => module.module_id === element.is)) return [`${base}/modules/${element.is}`, "Module with ports and source"];
    return [`${base}/figures/${element.is}`, "Figure with its caption"];
  }
  open() {
    const element = this.elements[this.cursor.index];
    const target = element && this.target(element);
    if (target) go(target[0]);
  }

  // ---- the sheet
  paint() {
    if (!this.hasImage) return this.frame.replaceChildren(this.flow());
    const { width_pt: wide, height_pt: high } = this.page;
    this.svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, class: "page", role: "img", "aria-label": `Page ${this.page.page}` },
      draw("image", { href: source.pagePicture(this.doc.doc_id, this.page.page), width: wide, height: high, preserveAspectRatio: "none" }));
    const area = (box) => (box[2] - box[0]) * (box[3] - box[1]);
    const shown = this.elements.map((element, n) => ({ element, n }))
      .filter(({ element }) => element.bbox_pt && !view.hidden.has(groupOf(element.category)))
      .sort((a, b) => area(b.element.bbox_pt) - area(a.element.bbox_pt)); // small ones on top
    this.cells = draw("g", { class: "cells" });
    const boxes = draw("g", { class: "boxes" });
    for (const { element, n } of shown) {
      const [x0, y0, x1, y1] = element.bbox_pt;
      const rect = draw("rect", { x: x0, y: y0, width: Math.max(1, x1 - x0), height: Math.max(1, y1 - y0), rx: 1.5,
        class: `box of-${groupOf(element.category)}`, "data-n": n });
      rect.addEventListener("click", () => this.choose(n));
      rect.addEventListener("pointermove", (event) => showTip(event, element));
      rect.addEventListener("pointerleave", hideTip);
      boxes.append(rect);
    }
    this.svg.append(this.continued(), boxes, this.cells);
    this.svg.classList.toggle("bare", !view.boxes);
    this.frame.replaceChildren(this.svg);
    this.svg.style.width = `${view.zoom * 100}%`;
    if (this.cursor.index >= 0) this.svg.querySelector(`[data-n="${this.cursor.index}"]`)?.classList.add("chosen");
  }
  continued() { // tables that began on an earlier page
    const group = draw("g", { class: "boxes" });
    for (const table of this.doc.tables) for (const [page, box] of table.parts) {
      if (page !== this.page.page || page === table.page || !box || view.hidden.has("table")) continue;
      const rect = draw("rect", { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1], rx: 1.5, class: "box of-table continued" });
      rect.addEventListener("click", () => go(`#/d/${this.doc.doc_id}/tables/${table.table_id}`));
      rect.addEventListener("pointermove", (event) => showTip(event, { category: "Table", text: `Goes on from page ${table.page}. ${table.caption}` }));
      rect.addEventListener("pointerleave", hideTip);
      group.append(rect);
    }
    return group;
  }
  flow() { // no image of the page: the text as it was read
    if (!this.elements.length) return make("p", { class: "nothing" }, "Nothing was read from this page.");
    return make("article", { class: "flow" }, this.elements.map((element, n) => {
      if (view.hidden.has(groupOf(element.category))) return "";
      const tag = element.category === "Title" ? `h${Math.min(6, element.level + 1)}` : element.category === "CodeSnippet" ? "pre" : "p";
      return make("div", { class: "block", "data-n": n, onclick: () => this.choose(n) },
        make("span", { class: "label" }, dot(element.category), element.category),
        make(tag, {}, element.text || make("span", { class: "off" }, "no text")));
    }));
  }
  async drawCells(element) {
    if (!this.svg) return;
    this.cells.replaceChildren();
    if (element.category !== "Table" || !element.is) return;
    const cells = this.cells;
    const table = await source.piece(this.doc.doc_id, `table-${element.is}-0`);
    for (const cell of table.cells) {
      if (!cell.bbox_pt || (cell.page && cell.page !== this.page.page)) continue;
      const [x0, y0, x1, y1] = cell.bbox_pt;
      cells.append(draw("rect", { x: x0, y: y0, width: Math.max(0, x1 - x0), height: Math.max(0, y1 - y0), class: cell.is_header ? "cell head" : "cell" }));
    }
  }
  zoom(change) {
    if (!this.svg) return;
    const whole = (this.frame.clientHeight - 4) / (this.frame.clientWidth * (this.page.height_pt / this.page.width_pt));
    view.zoom = change === "fit" ? Math.min(1, whole) : Math.max(0.2, Math.min(5, view.zoom * (change === "in" ? 1.25 : 0.8)));
    this.svg.style.width = `${view.zoom * 100}%`;
  }
  toggleBoxes() {
    view.boxes = !view.boxes;
    if (this.svg) this.svg.classList.toggle("bare", !view.boxes);
  }
}

function showTip(event, element) {
  const tip = $("tip");
  tip.replaceChildren(make("strong", {}, dot(element.category), element.category), make("span", {}, short(element.text, 400)));
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 12);
  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? event.clientY + 18 : Math.max(8, event.clientY - tip.offsetHeight - 12)}px`;
}
function hideTip() { $("tip").hidden = true; }
