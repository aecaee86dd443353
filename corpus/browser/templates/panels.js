"use strict";
// The panels of a document other than its pages. Each returns {node, keys}.

const toPage = (doc, place, label) => (place
  ? link(`#/d/${doc.doc_id}/page/${place[0]}/${place[1]}`, label || `page ${count(place[0])}, ${count(place[1] + 1)}`) : "");

// Cards fetch what they show when they come near the window.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    near.unobserve(entry.target);
    entry.target.dispatchEvent(new Event("near"));
  }
}, { rootMargin: "600px" });
function whenNear(card, act) {
  const tell = (error) => card.append(make("p", { class: "banner bad" }, `This cannot be shown: ${error.message}`));
  card.addEventListener("near", () => Promise.resolve(act()).catch(tell), { once: true });
  near.observe(card);
}

function cards(nodes, ids, item, opens = []) {
  const cursor = new Cursor(nodes);
  nodes.forEach((node, n) => node.addEventListener("click", () => cursor.select(n, true)));
  const at = ids.indexOf(item);
  if (at >= 0) requestAnimationFrame(() => { cursor.select(at); nodes[at].scrollIntoView({ block: "start" }); });
  return { move: (step) => cursor.move(step), open: () => opens[cursor.index] && go(opens[cursor.index]) };
}

function panel(title, note, ...content) {
  return make("section", { class: "cards" }, make("header", { class: "bar" }, make("h2", {}, title), note ? make("span", { class: "soft" }, note) : ""), ...content);
}
const listed = (doc, shown, total) => (shown < total ? `the first ${count(shown)} of ${count(total)}` : "");

// ---- tables, each beside its picture
function tablesPanel(doc, item) {
  const nodes = doc.tables.map((table, n) => tableCard(doc, table, n));
  const opens = doc.tables.map((table) => table.place && `#/d/${doc.doc_id}/page/${table.place[0]}/${table.place[1]}`);
  return { node: panel(plural(doc.n_tables, "table"), listed(doc, nodes.length, doc.n_tables), nodes),
    keys: cards(nodes, doc.tables.map((table) => table.table_id), item, opens) };
}
function tableCard(doc, table, n) {
  const body = make("div", { class: "pair" });
  const pages = table.pages.length > 1 ? `pages ${table.pages.map(count).join(", ")}` : "";
  const card = make("article", { class: "card" },
    make("h3", {}, table.caption || `Table ${n + 1}, without a caption`),
    make("p", { class: "soft" }, `${count(table.n_rows)} × ${count(table.n_cols)} · `, toPage(doc, table.place, table.place && `page ${count(table.place[0])}`), pages ? ` (${pages})` : "",
      table.section_path.length ? ` · ${table.section_path.join(" › ")}` : ""), body);
  whenNear(card, async () => {
    const pictures = table.parts.map(([page, box]) => crop(doc, page, box)).filter(Boolean);
    if (!pictures.length) body.classList.add("alone");
    else body.append(make("div", { class: "pictures" }, pictures));
    body.append(await tableNode(doc, table));
  });
  return card;
}
function crop(doc, pageNumber, box, pad = 6) {
  const page = doc.pages.find((known) => known.page === pageNumber);
  if (!page || !page.image_dpi || !box) return undefined;
  const [x0, y0, x1, y1] = box;
  const wide = Math.max(4, x1 - x0) + 2 * pad, high = Math.max(4, y1 - y0) + 2 * pad;
  const svg = draw("svg", { viewBox: `${x0 - pad} ${y0 - pad} ${wide} ${high}`, class: "crop", role: "img", "aria-label": `Picture from page ${pageNumber}` },
    draw("image", { href: source.pagePicture(doc.doc_id, pageNumber), width: page.width_pt, height: page.height_pt, preserveAspectRatio: "none" }));
  svg.style.maxWidth = `${Math.round(wide * 1.5)}px`; // not larger than print seen near
  return make("div", { class: "picture" }, svg);
}
async function tableNode(doc, table) {
  const wide = Math.min(table.n_cols, table.max_columns);
  const node = make("table", { class: "grid" });
  const more = make("p", { class: "soft" });
  let part = 0;
  async function add() {
    const piece = await source.piece(doc.doc_id, `table-${table.table_id}-${part}`);
    const last = Math.min(table.n_rows, piece.first + table.part_rows);
    const { body, overlaps } = tableBody(piece, last, wide);
    node.append(body);
    part += 1;
    const notes = [];
    if (last < table.n_rows) notes.push(`rows 1 – ${count(last)} of ${count(table.n_rows)} `, button("more rows", add, { class: "plain" }), " ");
    if (wide < table.n_cols) notes.push(`the first ${count(wide)} of ${count(table.n_cols)} columns `);
    if (overlaps) notes.push(`${plural(overlaps, "cell")} under another`);
    more.replaceChildren(...notes);
  }
  if (table.n_rows) await add();
  return make("div", { class: "read" }, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table as read" }, node), more);
}
function tableBody(piece, last, wide) {
  const at = new Map(), covered = new Set();
  let overlaps = 0;
  for (const cell of piece.cells) {
    if (covered.has(`${cell.row},${cell.col}`)) { overlaps += 1; continue; }
    const down = Math.max(1, Math.min(cell.row_span, last - cell.row)), across = Math.max(1, Math.min(cell.col_span, wide - cell.col));
    at.set(`${cell.row},${cell.col}`, { cell, down, across });
    for (let r = cell.row; r < cell.row + down; r++) for (let c = cell.col; c < cell.col + across; c++) covered.add(`${r},${c}`);
  }
  const body = make("tbody");
  for (let r = piece.first; r < last; r++) {
    const row = make("tr");
    for (let c = 0; c < wide; c++) {
      const found = at.get(`${r},${c}`);
      if (found) row.append(cellNode(found, piece.kinds[c]));
      else if (!covered.has(`${r},${c}`)) row.append(make("td", { class: "hole" }));
    }
    body.append(row);
  }
  return { body, overlaps };
}
function cellNode({ cell, down, across }, kind) {
  const isNumber = kind && kind[0] === "number" && !cell.is_header;
  return make(cell.is_header ? "th" : "td", { class: isNumber ? "num" : null, rowspan: down > 1 ? down : null, colspan: across > 1 ? across : null,
    title: isNumber && kind[1] ? `number, ${kind[1]}` : null }, cell.text);
}

// ---- figures
function figuresPanel(doc, item) {
  const seen = new Map();
  for (const figure of doc.figures) seen.set(figure.sha256, (seen.get(figure.sha256) || 0) + 1);
  const nodes = doc.figures.map((figure) => {
    const frame = make("div", { class: "picture" });
    const card = make("figure", { class: "card" }, frame,
      make("figcaption", {}, make("strong", {}, figure.caption || "Without a caption"),
        make("p", { class: "soft" }, toPage(doc, figure.place, figure.place && `page ${count(figure.place[0])}`), ` · ${count(figure.width_px)} × ${count(figure.height_px)} px`,
          seen.get(figure.sha256) > 1 ? ` · the same picture ${count(seen.get(figure.sha256))} times` : "")));
    whenNear(card, () => frame.append(make("img", { src: source.figurePicture(doc.doc_id, figure.image_id), alt: figure.caption || "Figure without a caption" })));
    return card;
  });
  const opens = doc.figures.map((figure) => figure.place && `#/d/${doc.doc_id}/page/${figure.place[0]}/${figure.place[1]}`);
  return { node: panel(plural(doc.n_images, "figure"), listed(doc, nodes.length, doc.n_images), make("div", { class: "tiles" }, nodes)),
    keys: cards(nodes, doc.figures.map((figure) => figure.image_id), item, opens) };
}

// ---- summaries
function summariesPanel(doc, item) {
  const levels = ["document", "section", "table", "figure"];
  const rank = (row) => (levels.indexOf(row.level) + 1 || 9);
  const rows = [...doc.summaries].sort((a, b) => rank(a) - rank(b));
  const nodes = rows.map((row) => make("article", { class: "card prose" },
    make("p", { class: "soft" }, make("span", { class: "tag" }, row.level), ` ${row.method}`),
    row.title ? make("h3", {}, row.title) : "", make("p", {}, row.text),
    row.sources.length ? make("p", { class: "soft" }, "from elements on ", row.sources.map(([place], n) => [n ? " · " : "", toPage(doc, place)]).flat()) : ""));
  const opens = rows.map((row) => row.sources.length && `#/d/${doc.doc_id}/page/${row.sources[0][0][0]}/${row.sources[0][0][1]}`);
  return { node: panel(plural(rows.length, "summary", "summaries"), "", nodes), keys: cards(nodes, rows.map((row) => row.target_id), item, opens) };
}

// ---- chunks
async function chunksPanel(doc, item) {
  const part = Math.max(0, Number(item || 1) - 1);
  const { chunks } = await source.piece(doc.doc_id, `chunks-${part}`);
  const nodes = chunks.map((chunk) => make("article", { class: "card prose" },
    make("p", { class: "soft" }, make("span", { class: "tag" }, chunk.kind), ` ${plural(chunk.tokens, "token")} · `,
      chunk.pages.map((page, n) => [n ? ", " : "page ", link(`#/d/${doc.doc_id}/page/${page}`, count(page))]).flat(),
      ` · ${plural(chunk.element_ids.length, "element")}`, chunk.section_path.length ? ` · ${chunk.section_path.join(" › ")}` : ""),
    make("pre", { class: chunk.kind === "code" ? "wrap" : "wrap prose" }, chunk.text)));
  const address = (n) => `#/d/${doc.doc_id}/chunks/${n}`;
  const turn = (step) => part + step >= 0 && (part + step) * doc.part_chunks < doc.n_chunks && go(address(part + 1 + step));
  return { node: panel(plural(doc.n_chunks, "chunk"), "", nodes, pager(part + 1, doc.n_chunks, doc.part_chunks, address)), keys: { ...cards(nodes, [], ""), turn } };
}

// ---- RTL modules
function modulesPanel(doc, item) {
  const nodes = doc.modules.map((module) => {
    const body = make("div");
    const card = make("article", { class: "card" }, make("h3", {}, module.name),
      make("p", { class: "soft" }, `${module.language} · lines ${count(module.line_start)} – ${count(module.line_end)} · `, toPage(doc, module.place, "element")), body);
    whenNear(card, async () => body.append(...moduleNodes(await source.piece(doc.doc_id, `module-${module.module_id}`))));
    return card;
  });
  return { node: panel(plural(doc.n_modules, "module"), listed(doc, nodes.length, doc.n_modules), nodes),
    keys: cards(nodes, doc.modules.map((module) => module.module_id), item) };
}
function moduleNodes(module) {
  const rows = (title, head, lines) => (lines.length ? make("div", { class: "scroll" },
    make("table", { class: "grid" }, make("caption", {}, title), make("thead", {}, make("tr", {}, head.map((name) => make("th", {}, name)))),
      make("tbody", {}, lines.map((line) => make("tr", {}, line.map((value) => make("td", {}, String(value)))))))) : "");
  return [
    module.comment ? make("p", { class: "comment" }, module.comment) : "",
    rows(plural(module.ports.length, "port"), ["name", "direction", "bits", "type", "comment"],
      module.ports.map((port) => [port.name, port.direction, port.width || "by parameter", port.type, port.comment])),
    rows(plural(module.parameters.length, "parameter"), ["name", "default", "local", "comment"],
      module.parameters.map((parameter) => [parameter.name, parameter.value, parameter.is_local ? "yes" : "", parameter.comment])),
    rows(plural(module.instances.length, "instance"), ["module", "name", "line"], module.instances.map((one) => [one.module, one.name, one.line])),
    make("details", { open: module.source.length < 4000 }, make("summary", {}, "Source"), make("pre", {}, module.source)),
  ].filter(Boolean);
}

// ---- what was lost, and what is known
function faultsPanel(doc) {
  const rows = doc.quarantine.map((row) => {
    const [page, ...rest] = faultCells(row);
    const open = row.page ? `#/d/${doc.doc_id}/page/${row.page}` : "";
    return make("tr", { "data-open": open }, open ? make("td", { class: "num" }, link(open, count(row.page))) : page, ...rest);
  });
  const cursor = new Cursor(rows);
  return { node: panel(plural(rows.length, "record"), "what could not be read, and why",
    make("div", { class: "scroll" }, make("table", { class: "list" }, make("thead", {}, make("tr", {}, FAULT_HEAD())), make("tbody", {}, rows)))),
  keys: { move: (step) => cursor.move(step), open: () => rows[cursor.index]?.dataset.open && go(rows[cursor.index].dataset.open) } };
}
function aboutPanel(doc) {
  const steps = Object.entries(doc.cpu_s || {}).filter(([name]) => name !== "total").sort((a, b) => b[1] - a[1]);
  const facts = [["title", doc.title], ["parser", doc.parser], ["document", doc.doc_id], ...Object.entries(doc.metadata),
    ...doc.uris.map((uri, n) => [n ? "also at" : "file", uri])];
  return { keys: {}, node: panel("About", "",
    make("article", { class: "card" }, make("dl", { class: "facts wide" }, facts.filter(([, value]) => value !== "").map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))))),
    steps.length ? make("article", { class: "card" }, make("h3", {}, `${seconds(doc.cpu_s.total)} CPU seconds to read`),
      make("table", { class: "grid" }, make("tbody", {}, steps.map(([name, spent]) =>
        make("tr", {}, make("th", {}, name), make("td", { class: "num" }, spent.toFixed(3))))))) : "") };
}
