"use strict";
// Where we are (the address behind #), and the keys.
let shown = { keys: {} };
let turn = 0; // answers that come after the next step are dropped

function go(address) {
  if (address === (location.hash || "#/")) show();
  else location.hash = address;
}
const placeOf = () => {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  return { parts: path.split("/").slice(1).map(decodeURIComponent), query: Object.fromEntries(new URLSearchParams(query)) };
};

async function show() {
  const mine = ++turn;
  hideTip();
  document.body.classList.add("waiting");
  let next;
  try {
    const { parts: [kind, ...rest], query } = placeOf();
    const known = await source.corpus();
    if (mine === turn) about(known);
    if (kind === "") next = await documentList(query, known);
    else if (kind === "search") next = await hitList(query, known);
    else if (kind === "quarantine") next = await quarantineList(query);
    else if (kind === "duplicates") next = await duplicateList(query);
    else if (kind === "lost") next = await lostDocument(rest[0]);
    else if (kind === "d") next = await documentView(rest);
    else throw new Error("there is no such page");
  } catch (error) {
    next = { node: make("p", { class: "nothing" }, `This cannot be shown: ${error.message}. `, link("#/", "All documents")),
      crumbs: [], keys: { back: () => go("#/") } };
  }
  if (mine !== turn) return;
  const scrolled = next.place && next.place === shown.place ? document.querySelector(".left")?.scrollTop : 0;
  shown = next;
  // Opened from a link or by going back, the words stand where they can be changed.
  if (next.searched && document.activeElement !== $("search")) $("search").value = next.searched;
  $("main").replaceChildren(next.node);
  if (scrolled) document.querySelector(".left").scrollTop = scrolled;
  $("crumbs").replaceChildren(...next.crumbs.map(([address, label]) => (address ? link(address, label) : make("span", {}, label))));
  document.body.classList.remove("waiting");
  if (document.activeElement === document.body) $("main").focus({ preventScroll: true });
}

function about(known) {
  const counts = known.counts;
  $("about").textContent = `${known.name} · ${plural(counts.documents, "document")}, ${plural(counts.pages, "page")}, ` +
    `${plural(counts.tables, "table")}, ${plural(counts.images, "figure")} · read ${known.created.slice(0, 16).replace("T", " ")} UTC`;
}

function search() {
  const text = $("search").value.trim();
  if (text) go("#/search?" + new URLSearchParams({ text }));
}

const KEYS = {
  j: () => shown.keys.move?.(1), ArrowDown: () => shown.keys.move?.(1),
  k: () => shown.keys.move?.(-1), ArrowUp: () => shown.keys.move?.(-1),
  h: () => shown.keys.turn?.(-1), ArrowLeft: () => shown.keys.turn?.(-1),
  l: () => shown.keys.turn?.(1), ArrowRight: () => shown.keys.turn?.(1),
  "+": () => shown.keys.zoom?.("in"), "=": () => shown.keys.zoom?.("in"), "-": () => shown.keys.zoom?.("out"), 0: () => shown.keys.zoom?.("fit"),
  b: () => shown.keys.boxes?.(),
  "/": () => { $("search").focus(); $("search").select(); },
  "?": () => $("help").showModal(),
  Escape: () => shown.keys.back?.(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const active = document.activeElement;
  const typing = active && ["INPUT", "SELECT", "TEXTAREA"].includes(active.tagName);
  if (typing) {
    if (event.key === "Escape") { active.blur(); $("main").focus({ preventScroll: true }); event.preventDefault(); }
    else if (event.key === "Enter" && active.id === "search") search();
    return;
  }
  if (event.key === "Enter") {
    if (!["A", "BUTTON", "SUMMARY"].includes(active?.tagName)) shown.keys.open?.();
    return;
  }
  if (/^[1-9]$/.test(event.key) && shown.keys.panel) { shown.keys.panel(Number(event.key)); return; }
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : undefined;
  if (act) { act(); event.preventDefault(); }
});
$("help-button").addEventListener("click", () => $("help").showModal());
document.addEventListener("click", (event) => { // a row opens by a click anywhere in it
  const row = event.target.closest?.("tr[data-open]");
  if (row && row.dataset.open && !event.target.closest("a, button") && !String(getSelection())) go(row.dataset.open);
});
window.addEventListener("hashchange", show);
show();
