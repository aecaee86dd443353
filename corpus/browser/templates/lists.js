"use strict";
// The lists over all documents: documents, hits, quarantine, duplicates. Each returns
// {node, crumbs, keys} for browser.js.

const COLUMNS = [
  ["name", "Document"], ["format", "Format"], ["status", "Status"], ["n_pages", "Pages", "num"],
  ["n_tables", "Tables", "num"], ["n_images", "Figures", "num"], ["n_modules", "Modules", "num"],
  ["language", "Language"], ["licence", "Licence"], ["bytes", "Size", "num"], ["cpu_s", "CPU s", "num"],
];

async function documentList(query, known) {
  const wanted = { sort: "name", ...query };
  const found = await source.documents(wanted);
  const address = (change) => "#/?" + new URLSearchParams({ ...query, page: 1, ...change });
  const rows = found.rows.map((row) => documentRow(row));
  const cursor = new Cursor(rows);
  const head = make("tr", {}, COLUMNS.map(([name, label, kind]) => {
    const sorted = wanted.sort === name;
    const down = wanted.descending === "1";
    // Numbers are most telling from the top.
    const next = sorted ? (down ? "0" : "1") : kind === "num" ? "1" : "0";
    return make("th", { class: kind, scope: "col", "aria-sort": sorted ? (down ? "descending" : "ascending") : null },
      link(address({ sort: name, descending: next }), label, sorted ? (down ? " ↓" : " ↑") : ""));
  }));
  const node = make("section", { class: "list-view" },
    filters(query, known, found.total, address),
    found.rows.length
      ? make("div", { class: "scroll", tabindex: "-1" }, make("table", { class: "list documents" }, make("thead", {}, head), make("tbody", {}, rows)))
      : make("p", { class: "nothing" }, known.n_documents ? "No document fits. " : "The corpus is empty. ", link("#/", "Show all")),
    pager(found.page, found.total, found.page_rows, (page) => address({ page })));
  return { node, crumbs: [], keys: listKeys(cursor, found, (page) => address({ page })) };
}

function documentRow(row) {
  const address = row.kept ? `#/d/${row.doc_id}/page/1` : `#/lost/${row.doc_id}`;
  const cell = {
    name: make("td", { class: "name" }, link(address, row.name || row.uri),
      row.title && row.title !== row.name ? make("small", {}, short(row.title, 120)) : ""),
    status: make("td", {}, status(row.status)),
    bytes: make("td", { class: "num" }, size(row.bytes)),
    cpu_s: make("td", { class: "num" }, seconds(row.cpu_s)),
  };
  return make("tr", { "data-open": address, title: row.uri }, COLUMNS.map(([name, , kind]) =>
    cell[name] || make("td", { class: kind }, kind === "num" ? (row[name] ? count(row[name]) : make("span", { class: "off" }, "–")) : row[name])));
}

function filters(query, known, total, address) {
  const pick = (name, label) => {
    const { [name]: chosen, ...rest } = query;
    const select = make("select", { "aria-label": label },
      make("option", { value: "all" }, `${label}: all`),
      known.facets[name].map(([value, n]) =>
        make("option", { value: `=${value}`, selected: chosen === value }, `${value || "unknown"} (${count(n)})`)));
    select.addEventListener("change", () => go(select.value === "all"
      ? "#/?" + new URLSearchParams({ ...rest, page: 1 }) : address({ [name]: select.value.slice(1) })));
    return select;
  };
  const text = make("input", { type: "search", id: "filter", value: query.text || "", placeholder: "Name, title or path",
    "aria-label": "Filter by name, title or path", autocomplete: "off" });
  text.addEventListener("change", () => go(address({ text: text.value })));
  const hasQuarantine = known.counts.quarantine > 0;
  return make("div", { class: "bar" }, text, pick("format", "Format"), pick("status", "Status"),
    pick("language", "Language"), pick("licence", "Licence"),
    make("span", { class: "total" }, plural(total, "document")),
    make("span", { class: "more" },
      hasQuarantine ? link("#/quarantine", `Quarantine (${count(known.counts.quarantine)})`) : "",
      known.has_duplicates ? link("#/duplicates", "Duplicates") : ""));
}

function listKeys(cursor, found, address) {
  const turn = (step) => {
    const page = found.page + step;
    if (page >= 1 && (page - 1) * found.page_rows < found.total) go(address(page));
  };
  return {
    move: (step) => cursor.move(step),
    open: () => cursor.items[cursor.index]?.dataset.open && go(cursor.items[cursor.index].dataset.open),
    turn,
    back: () => history.back(),
  };
}

async function hitList(query, known) {
  const text = query.text || "", page = Number(query.page || 1);
  const found = await source.search(text, page, query.doc_id);
  const address = (n) => "#/search?" + new URLSearchParams({ ...query, page: n });
  const rows = found.rows.map((hit) => {
    const open = `#/d/${hit.doc_id}/page/${hit.page}/${hit.place}`;
    return make("li", { "data-open": open, onclick: () => go(open) },
      make("p", { class: "where" }, dot(hit.category), link(open, hit.name), ` page ${count(hit.page)}`, make("span", { class: "soft" }, hit.category)),
      make("p", { class: "snippet" }, hit.snippet.map(([part, isHit]) => (isHit ? make("mark", {}, part) : part))));
  });
  const cursor = new Cursor(rows);
  const many = found.is_more ? `More than ${count(found.total)} elements, in the order of documents,` : plural(found.total, "element");
  const note = source.searchNote(known);
  const node = make("section", { class: "list-view narrow" },
    make("p", { class: "bar" }, text ? `${many} with “${short(text, 80)}”` : "Type words to find; the last one may be a beginning.",
      query.doc_id ? link("#/search?" + new URLSearchParams({ text }), "search all documents") : "",
      note ? make("span", { class: "soft" }, note) : ""),
    make("div", { class: "scroll" }, rows.length ? make("ol", { class: "hits" }, rows)
      : text ? make("p", { class: "nothing" }, "Nothing found. All words must be in one element.") : ""),
    pager(found.page, found.total, found.page_rows, address));
  return { node, crumbs: [["", "Search"]], searched: text, keys: listKeys(cursor, found, address) };
}

async function quarantineList(query) {
  const found = await source.quarantine(Number(query.page || 1));
  const address = (page) => `#/quarantine?page=${page}`;
  const rows = found.rows.map((row) => {
    const open = row.kept ? `#/d/${row.doc_id}/${row.page ? "page/" + row.page : "quarantine"}` : `#/lost/${row.doc_id}`;
    return make("tr", { "data-open": open }, make("td", { class: "name" }, link(open, row.uri)), ...faultCells(row));
  });
  const cursor = new Cursor(rows);
  const node = make("section", { class: "list-view" },
    make("p", { class: "bar" }, `${plural(found.total, "record")}: what could not be read, and why`),
    rows.length ? make("div", { class: "scroll" }, make("table", { class: "list" },
      make("thead", {}, make("tr", {}, make("th", {}, "File"), ...FAULT_HEAD())), make("tbody", {}, rows)))
      : make("p", { class: "nothing" }, "Nothing was left out."),
    pager(found.page, found.total, found.page_rows, address));
  return { node, crumbs: [["#/quarantine", "Quarantine"]], keys: listKeys(cursor, found, address) };
}

const FAULT_HEAD = () => [["Page", "num"], ["Step"], ["Reason"], ["Detail"], ["Another try"]].map(([label, kind]) =>
  make("th", { class: kind, scope: "col" }, label));
const faultCells = (row) => [make("td", { class: "num" }, row.page ? count(row.page) : "all"), make("td", {}, row.stage),
  make("td", {}, make("span", { class: "status bad" }, row.reason)), make("td", { class: "detail" }, row.detail),
  make("td", {}, row.retry ? "on the next run" : "no")];

async function lostDocument(docId) {
  const found = [];
  for (let page = 1; ; page++) { // a file given up as a whole has few records
    const part = await source.quarantine(page);
    found.push(...part.rows.filter((row) => row.doc_id === docId));
    if (found.length || page * part.page_rows >= part.total) break;
  }
  const name = found.length ? found[0].uri : "unknown file";
  const node = make("section", { class: "list-view" },
    make("p", { class: "bar" }, found.length ? "Nothing of this file could be read." : "This file is not in quarantine."),
    make("div", { class: "scroll" }, make("table", { class: "list" }, make("thead", {}, make("tr", {}, make("th", {}, "File"), ...FAULT_HEAD())),
      make("tbody", {}, found.map((row) => make("tr", {}, make("td", { class: "name" }, row.uri), ...faultCells(row)))))));
  return { node, crumbs: [["#/quarantine", "Quarantine"], ["", short(name.split("/").pop(), 60)]], keys: { back: () => history.back() } };
}

const DUPLICATE_KINDS = {
  exact: "the same bytes", near: "nearly the same text", variant: "the same text, other numbers",
  page: "the same page", image: "the same picture",
};
async function duplicateList(query) {
  const kind = query.kind || "", found = await source.duplicates(kind, Number(query.page || 1));
  const address = (page) => "#/duplicates?" + new URLSearchParams({ kind, page });
  const share = (value) => (value === null ? "" : `${Math.round(value * 1000) / 10} %`);
  const rows = found.rows.map((group) => {
    const places = group.members.map((member) => {
      const rest = member.image_id ? `figures/${member.image_id}` : `page/${member.page || 1}`;
      const alike = member.is_representative ? "first" : [share(member.similarity), member.number_agreement === null ? "" : `numbers ${share(member.number_agreement)}`].filter(Boolean).join(", ");
      return make("li", {}, link(`#/d/${member.doc_id}/${rest}`, member.uri || member.name || member.doc_id.slice(0, 12)),
        member.page ? ` page ${count(member.page)}` : "", make("span", { class: "soft" }, ` ${alike}`));
    });
    const more = group.n_members - places.length;
    return make("tr", {}, make("td", { class: "kind" }, make("span", { class: "tag" }, group.kind), make("small", {}, DUPLICATE_KINDS[group.kind] || "")),
      make("td", { class: "num" }, count(group.n_members)), make("td", {}, make("ul", { class: "members" }, places, more > 0 ? make("li", { class: "soft" }, `and ${count(more)} more`) : "")));
  });
  const cursor = new Cursor(rows);
  const kinds = Object.entries(found.kinds).map(([name, n]) => make("a", { href: `#/duplicates?kind=${encodeURIComponent(name)}`, "aria-current": name === kind ? "true" : null }, `${name} (${count(n)})`));
  const node = make("section", { class: "list-view" },
    make("p", { class: "bar" }, `${plural(found.total, "group")} of what the corpus holds more than once`,
      make("span", { class: "more" }, kind ? link("#/duplicates", "all kinds") : "", kinds)),
    rows.length ? make("div", { class: "scroll" }, make("table", { class: "list" },
      make("thead", {}, make("tr", {}, make("th", {}, "Kind"), make("th", { class: "num" }, "Members"), make("th", {}, "Where, and how alike to the first"))), make("tbody", {}, rows)))
      : make("p", { class: "nothing" }, "Nothing is held twice."),
    pager(found.page, found.total, found.page_rows, address));
  return { node, crumbs: [["#/duplicates", "Duplicates"]], keys: listKeys(cursor, found, address) };
}
