"use strict";
// Where the data comes from: files beside the page, as scripts, since a page that is a file may
// not read other files. Lists are filtered here. `source-served.js` offers the same from a server.
const arrived = new Map();
function corpusPiece(path, value) { // called by each file under data/
  const waiting = arrived.get(path);
  if (waiting) waiting(value);
}
const source = (() => {
  const ROWS = 50;
  const kept = new Map();
  let documents, overview;

  function load(path) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      arrived.set(path, resolve);
      script.onerror = () => reject(new Error(`${path} is not in this folder`));
      script.onload = () => { arrived.delete(path); script.remove(); };
      script.src = `data/${path}.js`;
      document.head.append(script);
    });
  }
  async function piece(doc, name) {
    const path = `${doc}/${name}`;
    if (!kept.has(path)) {
      kept.set(path, load(path));
      if (kept.size > 40) kept.delete(kept.keys().next().value);
      kept.get(path).catch(() => kept.delete(path));
    }
    return kept.get(path);
  }
  async function corpus() {
    overview ??= await load("corpus");
    return overview;
  }
  async function allDocuments() {
    if (!documents) {
      documents = [];
      const { n_document_files } = await corpus();
      for (let k = 0; k < n_document_files; k++) documents.push(...(await load(`documents-${k}`)));
    }
    return documents;
  }
  async function listDocuments(query) {
    const words = (query.text || "").toLowerCase().split(/\s+/).filter(Boolean);
    const found = (await allDocuments()).filter((row) =>
      ["format", "status", "language", "licence"].every((name) => query[name] === undefined || row[name] === query[name])
      && words.every((word) => `${row.name}\n${row.title}\n${row.uri}`.toLowerCase().includes(word)));
    const by = query.sort || "name", sign = query.descending === "1" ? -1 : 1;
    const value = (row) => (typeof row[by] === "string" ? row[by].toLowerCase() : row[by] ?? -1);
    found.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    return paged(found, Number(query.page || 1));
  }
  function paged(rows, page) {
    return { total: rows.length, page, page_rows: ROWS, rows: rows.slice((page - 1) * ROWS, page * ROWS) };
  }
  async function quarantine(page) {
    return paged(await load("quarantine"), page);
  }
  async function listDuplicates(kind, page) {
    const groups = await load("duplicates"), kinds = {};
    for (const group of groups) kinds[group.kind] = (kinds[group.kind] || 0) + 1;
    return { kinds, ...paged(groups.filter((group) => !kind || group.kind === kind), page) };
  }
  // Every word must be in the text. The files are read one after the other and not kept.
  async function search(text, page, doc) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = [];
    const { n_search_files } = await corpus();
    const names = new Map((await allDocuments()).map((row) => [row.doc_id, row.name]));
    for (let k = 0; words.length && k < n_search_files && hits.length < 1000; k++) {
      for (const [doc_id, element_page, place, category, body] of await load(`search-${k}`)) {
        if (doc && doc_id !== doc) continue;
        const low = body.toLowerCase();
        if (words.every((word) => low.includes(word)))
          hits.push({ doc_id, name: names.get(doc_id) || "", page: element_page, place, category, snippet: snippet(body, words) });
      }
    }
    return { query: text, is_more: hits.length >= 1000, ...paged(hits, page) };
  }
  function snippet(body, words) {
    const low = body.toLowerCase();
    if (low.length !== body.length) return [[short(body, 240), false]]; // letters that change length
    const first = Math.max(0, low.indexOf(words[0]) - 80), end = Math.min(body.length, first + 240);
    const pieces = [];
    let at = first;
    if (first > 0) pieces.push(["…", false]);
    while (at < end) {
      const next = words.map((word) => [low.indexOf(word, at), word]).filter(([n]) => n >= 0 && n < end)
        .sort((a, b) => a[0] - b[0] || b[1].length - a[1].length)[0];
      if (!next) break;
      if (next[0] > at) pieces.push([body.slice(at, next[0]), false]);
      at = next[0] + next[1].length;
      pieces.push([body.slice(next[0], at), true]);
    }
    if (at < end) pieces.push([body.slice(at, end), false]);
    if (end < body.length) pieces.push(["…", false]);
    return pieces;
  }
  return {
    corpus, documents: listDocuments, quarantine, search, piece,
    duplicates: listDuplicates,
    searchNote: (known) => known.search_note || "",
    pagePicture: (doc, page) => `data/${doc}/page-${page}.png`,
    figurePicture: (doc, id) => `data/${doc}/figure-${id}`,
  };
})();
