"use strict";
// Where the data comes from: the server. `source-files.js` offers the same from files.
const source = (() => {
  const kept = new Map(); // pieces seen last, so that going back is quick
  async function load(path) {
    const response = await fetch(path);
    const body = await response.json();
    if (!response.ok) throw new Error(body.error || response.statusText);
    return body;
  }
  async function piece(doc, name) {
    const path = `data/${doc}/${name}.json`;
    if (!kept.has(path)) {
      kept.set(path, load(path));
      if (kept.size > 40) kept.delete(kept.keys().next().value);
      kept.get(path).catch(() => kept.delete(path));
    }
    return kept.get(path);
  }
  const list = (name, query) => load(`${name}.json?${new URLSearchParams(query)}`);
  return {
    corpus: () => load("corpus.json"),
    documents: (query) => list("documents", query),
    quarantine: (page) => list("quarantine", { page }),
    duplicates: (kind, page) => list("duplicates", { kind, page }),
    search: (text, page, doc) => list("search", { text, page, ...(doc ? { doc_id: doc } : {}) }),
    searchNote: () => "",
    piece,
    pagePicture: (doc, page) => `data/${doc}/page-${page}.png`,
    figurePicture: (doc, id) => `data/${doc}/figure-${id}`,
  };
})();
