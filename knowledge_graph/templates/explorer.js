"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const TYPES = ["module", "port", "parameter", "identifier", "attribute", "term"];
const MAX_NODES = 60, MAX_HITS = 60, MAX_LABEL = 28;

// ---- the graph by number
const touching = data.entities.map(() => []);
data.relations.forEach((relation, n) => {
  touching[relation[0]].push(n);
  if (relation[2] !== relation[0]) touching[relation[2]].push(n);
});
const children = data.communities.map(() => []);
const tops = [];
data.communities.forEach((community, n) => {
  (community.parent < 0 ? tops : children[community.parent]).push(n);
});
const homeOf = new Map(); // entity -> its finest community
[...data.communities.keys()]
  .sort((a, b) => data.communities[a].level - data.communities[b].level)
  .forEach((n) => data.communities[n].members.forEach((member) => homeOf.set(member, n)));
const haystack = data.entities.map((entity) => [entity.name, ...entity.aliases].join("\n").toLowerCase());

// ---- small builders; texts are only ever set as text
function make(tag, attributes = {}, ...content) {
  return fill(document.createElement(tag), attributes, content);
}
function draw(tag, attributes = {}, ...content) {
  return fill(document.createElementNS(SVG, tag), attributes, content);
}
function fill(node, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (name === "dot") node.style.setProperty("--dot", value);
    else node.setAttribute(name, value);
  }
  node.append(...content);
  return node;
}
const plural = (n, word, many = word + "s") => `${n.toLocaleString("en")} ${n === 1 ? word : many}`;
const short = (text, limit = MAX_LABEL) => (text.length > limit ? text.slice(0, limit - 1) + "…" : text);
const colourOf = (type) => `var(--${TYPES.includes(type) ? type : "term"})`;
const hueOf = (n) => `hsl(${(n * 137.5) % 360} 52% 52%)`;
const rootOf = (n) => (data.communities[n].parent < 0 ? n : rootOf(data.communities[n].parent));

// ---- where we are: {kind: "all" | "community" | "entity", n}
let view = { kind: "all", n: 0 };
let items = []; // what the list and the picture show: {kind, n}
let chosen = -1;

const hashOf = (place) => (place.kind === "all" ? "#" : `#${place.kind}=${place.n}`);
function go(place) { // shown at once: the next key may come before the hashchange event does
  location.hash = hashOf(place);
  show(place);
}
function fromHash() {
  const match = /^#(community|entity)=(\d+)$/.exec(location.hash);
  const n = match ? Number(match[2]) : 0;
  const size = match && match[1] === "entity" ? data.entities.length : data.communities.length;
  show(match && n < size ? { kind: match[1], n } : { kind: "all", n: 0 });
}
function back() {
  if (view.kind === "entity" && homeOf.has(view.n)) go({ kind: "community", n: homeOf.get(view.n) });
  else if (view.kind === "community" && data.communities[view.n].parent >= 0)
    go({ kind: "community", n: data.communities[view.n].parent });
  else go({ kind: "all", n: 0 });
}

function show(place) {
  view = place;
  chosen = -1;
  $("search").value = "";
  if (place.kind === "all") showAll();
  else if (place.kind === "community") showCommunity(place.n);
  else showEntity(place.n);
  showCrumbs();
}

function showCrumbs() {
  const trail = [];
  let community = view.kind === "community" ? view.n : view.kind === "entity" ? homeOf.get(view.n) : undefined;
  for (; community !== undefined && community >= 0; community = data.communities[community].parent) {
    const n = community;
    const label = short(data.communities[n].label, 40);
    trail.unshift(make("button", { onclick: () => go({ kind: "community", n }) }, label));
  }
  if (view.kind === "entity") trail.push(make("button", {}, short(data.entities[view.n].name, 40)));
  const all = make("button", { onclick: () => go({ kind: "all", n: 0 }) }, "All communities");
  $("crumbs").replaceChildren(all, ...trail);
}

// ---- the three views
function showAll() {
  setList(tops.map((n) => ({ kind: "community", n })), "Communities by size");
  const nodes = tops.map((n) => {
    const [x, y, r] = data.communities[n].circle;
    return { kind: "community", n, x, y, r };
  });
  paint(nodes, []);
  legend([]);
  const total = data.totals.communities;
  note(tops.length < total ? `${tops.length} of ${plural(total, "community", "communities")} shown, the largest` : "");
  panelAll();
}

function showCommunity(n) {
  const community = data.communities[n];
  const members = [...community.members].sort((a, b) => data.entities[b].rank - data.entities[a].rank);
  const inner = children[n].map((child) => ({ kind: "community", n: child }));
  setList([...inner, ...members.map((member) => ({ kind: "entity", n: member }))], "Groups and entities inside");
  paintEntities(members.slice(0, MAX_NODES), -1);
  const drawn = Math.min(members.length, MAX_NODES);
  note(drawn < community.size ? `${drawn} of ${plural(community.size, "entity", "entities")} drawn, the highest ranked` : "");
  panelCommunity(community, inner);
}

function showEntity(n) {
  const near = new Map();
  for (const number of touching[n]) {
    const [head, , tail, asserted, strength] = data.relations[number];
    const other = head === n ? tail : head;
    near.set(other, (near.get(other) || 0) + (asserted ? 10 : 0) + strength);
  }
  const others = [...near.keys()].sort((a, b) => near.get(b) - near.get(a) || a - b);
  setList(others.map((other) => ({ kind: "entity", n: other })), "Related entities");
  paintEntities([n, ...others.slice(0, MAX_NODES - 1)], n);
  note(others.length >= MAX_NODES ? `${MAX_NODES - 1} of ${plural(others.length, "neighbour")} in this page drawn, the strongest` : "");
  panelEntity(n);
}

// ---- the list
function setList(entries, title) {
  items = entries;
  chosen = -1;
  $("list-title").textContent = entries.length ? title : "";
  $("list").replaceChildren(...entries.map((entry, index) => {
    const thing = entry.kind === "entity" ? data.entities[entry.n] : data.communities[entry.n];
    const dot = entry.kind === "entity" ? colourOf(thing.type) : hueOf(rootOf(entry.n));
    const count = entry.kind === "entity" ? thing.mentions : thing.size;
    return make("li", { role: "option", id: `option-${index}`, "aria-selected": "false", onclick: () => go(entry) },
      make("span", { class: "dot", dot }),
      make("span", {}, short(entry.kind === "entity" ? thing.name : thing.label, 70)),
      make("span", { class: "count" }, count.toLocaleString("en")));
  }));
}
function choose(index) {
  if (!items.length) return;
  chosen = Math.max(0, Math.min(items.length - 1, index));
  [...$("list").children].forEach((row, n) => row.setAttribute("aria-selected", String(n === chosen)));
  const row = $("list").children[chosen];
  $("list").setAttribute("aria-activedescendant", row.id);
  row.scrollIntoView({ block: "nearest" });
  highlight(items[chosen]);
}
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return show(view);
  const whole = text.trim().toLowerCase();
  const hits = [];
  haystack.forEach((hay, n) => {
    if (!words.every((word) => hay.includes(word))) return;
    const exact = hay.split("\n").includes(whole) ? 2 : hay.startsWith(whole) ? 1 : 0;
    hits.push([exact, data.entities[n].rank, n]);
  });
  hits.sort((a, b) => b[0] - a[0] || b[1] - a[1]);
  const title = hits.length ? `${plural(hits.length, "entity", "entities")} found` : "";
  setList(hits.slice(0, MAX_HITS).map((hit) => ({ kind: "entity", n: hit[2] })), title);
  if (hits.length) choose(0);
  else $("list-title").textContent = "Nothing found among the entities shown here";
}

// ---- the picture
function paint(nodes, edges) {
  const svg = $("picture");
  const pad = 30;
  const left = Math.min(0, ...nodes.map((node) => node.x - node.r)) - pad;
  const right = Math.max(0, ...nodes.map((node) => node.x + node.r)) + pad;
  const top = Math.min(0, ...nodes.map((node) => node.y - node.r)) - pad;
  const bottom = Math.max(0, ...nodes.map((node) => node.y + node.r)) + pad;
  const least = nodes.length && nodes[0].kind === "entity" ? 460 : 240;
  const wide = Math.max(right - left, least), high = Math.max(bottom - top, least * 0.8);
  svg.setAttribute("viewBox", `${(left + right - wide) / 2} ${(top + bottom - high) / 2} ${wide} ${high}`);
  const box = svg.getBoundingClientRect();
  const unit = Math.max(wide / (box.width || wide), high / (box.height || high)); // one pixel
  svg.replaceChildren(
    draw("g", {}, ...edges.map((edge) => line(edge, unit))),
    draw("g", {}, ...nodes.map((node) => (node.kind === "community" ? bubble(node, unit) : dot(node, unit)))));
}
function line({ a, b, asserted, predicate }, unit) {
  const shape = draw("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, class: asserted ? "" : "loose",
    "stroke-width": (asserted ? 1.6 : 1) * unit, "data-a": a.n, "data-b": b.n });
  shape.append(draw("title", {}, `${data.entities[a.n].name} ${predicate} ${data.entities[b.n].name}`));
  return shape;
}
function bubble(node, unit) {
  const community = data.communities[node.n];
  const size = Math.min(13 * unit, node.r / 2.4);
  const width = Math.floor((node.r * 1.75) / (size * 0.56)), most = Math.floor((node.r * 1.35) / (size * 1.2));
  const names = community.label.split(" · ").map((name) => short(name, Math.max(width, 3)));
  const lines = size > 7 * unit ? (most >= names.length ? names : wrap(names[0], width, most)) : [];
  const text = draw("text", { "text-anchor": "middle", "font-size": size });
  lines.forEach((words, n) =>
    text.append(draw("tspan", { x: node.x, y: node.y + (n - (lines.length - 1) / 2) * size * 1.2 + size * 0.35 }, words)));
  return group(node, "bubble", hueOf(node.n), `${community.label}: ${plural(community.size, "entity", "entities")}`,
    draw("circle", { cx: node.x, cy: node.y, r: node.r }), text);
}
function dot(node, unit) {
  const entity = data.entities[node.n];
  const label = draw("text", { x: node.x, y: node.y + node.r + 13 * unit, "text-anchor": "middle",
    "font-size": (node.centre ? 15 : 12) * unit, "font-weight": node.centre ? 650 : 400 }, short(inView(entity.name)));
  return group(node, "entity" + (node.centre ? " chosen" : ""), colourOf(entity.type),
    `${entity.name}: ${entity.type}, ${plural(entity.mentions, "mention")}`,
    draw("circle", { cx: node.x, cy: node.y, r: node.r }), label);
}
function inView(name) { // a member of the entity in view needs no prefix
  const scope = view.kind === "entity" ? data.entities[view.n].name + "." : "";
  return scope && name.startsWith(scope) ? name.slice(scope.length) : name;
}
function group(node, kind, dot, title, ...shapes) {
  const element = draw("g", { class: `node ${kind}`, dot, "data-key": node.kind + node.n, onclick: () => go(node) },
    draw("title", {}, title), ...shapes);
  element.addEventListener("mouseenter", () => highlight(node));
  element.addEventListener("mouseleave", () => highlight(null));
  return element;
}
function highlight(entry) {
  const key = entry ? entry.kind + entry.n : "";
  for (const node of document.querySelectorAll("svg .node"))
    node.classList.toggle("chosen", node.dataset.key === key || (view.kind === "entity" && node.dataset.key === "entity" + view.n));
  for (const edge of document.querySelectorAll("svg line")) {
    const lit = entry && entry.kind === "entity" && [edge.dataset.a, edge.dataset.b].includes(String(entry.n));
    edge.classList.toggle("lit", Boolean(lit));
  }
}
function wrap(text, width, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = (lines[lines.length - 1] + " " + word).trim();
    if (longer.length <= width || !lines[lines.length - 1]) lines[lines.length - 1] = short(longer, Math.max(width, 3));
    else if (lines.length < most) lines.push(short(word, Math.max(width, 3)));
    else break;
  }
  return lines;
}

// ---- entities: a small force layout, the same each time
function paintEntities(numbers, centre) {
  const place = new Map(numbers.map((n, index) => [n, index]));
  const most = Math.max(...numbers.map((n) => data.entities[n].mentions), 1);
  const nodes = numbers.map((n, index) => {
    const angle = index * 2.39996, reach = 46 * Math.sqrt(index + (centre < 0 ? 0.4 : 0));
    return { kind: "entity", n, x: reach * Math.cos(angle), y: reach * Math.sin(angle),
      r: 5 + 11 * Math.sqrt(data.entities[n].mentions / most), centre: n === centre };
  });
  const edges = [], seen = new Set();
  for (const n of numbers) for (const number of touching[n]) {
    const [head, predicate, tail, asserted] = data.relations[number];
    const pair = `${Math.min(head, tail)}-${Math.max(head, tail)}`;
    if (seen.has(pair) || !place.has(head) || !place.has(tail) || head === tail) continue;
    seen.add(pair);
    edges.push({ a: nodes[place.get(head)], b: nodes[place.get(tail)], asserted, predicate });
  }
  relax(nodes, edges, centre >= 0);
  paint(nodes, edges);
  legend([...new Set(numbers.map((n) => data.entities[n].type))]);
}
function relax(nodes, edges, pinned) {
  const spread = 105;
  for (let step = 0; step < 260; step++) {
    const heat = 1 - step / 260;
    for (const node of nodes) { node.dx = -node.x * 0.03; node.dy = -node.y * 0.045; }
    for (let i = 0; i < nodes.length; i++) for (let j = 0; j < i; j++) {
      const a = nodes[i], b = nodes[j];
      const x = a.x - b.x || 0.1, y = (a.y - b.y || 0.1) * 1.5; // labels are wide: keep rows apart
      const far = Math.max(x * x + y * y, 60), push = (spread * spread) / far;
      const size = Math.sqrt(far);
      a.dx += (x / size) * push; a.dy += (y / size) * push;
      b.dx -= (x / size) * push; b.dy -= (y / size) * push;
    }
    for (const { a, b, asserted } of edges) {
      const x = a.x - b.x, y = a.y - b.y, size = Math.hypot(x, y) || 1;
      const pull = ((size - spread) / size) * (asserted ? 0.09 : 0.04);
      a.dx -= x * pull; a.dy -= y * pull; b.dx += x * pull; b.dy += y * pull;
    }
    nodes.forEach((node, index) => {
      if (pinned && index === 0) { node.x = 0; node.y = 0; return; }
      const size = Math.hypot(node.dx, node.dy) || 1, stride = Math.min(size, 26 * heat + 1);
      node.x += (node.dx / size) * stride; node.y += (node.dy / size) * stride;
    });
  }
}
function legend(types) {
  const lines = types.length ? [make("span", {}, "— stated"), make("span", {}, "┄ share sentences")] : [];
  $("legend").replaceChildren(...TYPES.filter((type) => types.includes(type)).map((type) =>
    make("span", {}, make("span", { class: "dot", dot: colourOf(type) }), type)), ...lines);
}
function note(text) { $("note").textContent = text; }

// ---- the panel
function panel(...content) {
  $("panel").replaceChildren(...content.filter(Boolean));
  $("panel").scrollTop = 0;
}
function section(title, content) {
  return content.length ? make("div", {}, make("h3", {}, title), ...content) : null;
}
function panelAll() {
  const { entities, relations, communities, documents } = data.totals;
  const best = data.entities.slice(0, 12).map((entity, n) => entityLine(n));
  panel(make("h2", {}, "What these documents are about"),
    make("p", {}, `${plural(documents, "document")} · ${plural(entities, "entity", "entities")} · ` +
      `${plural(relations, "relation")} · ${plural(communities, "community", "communities")}`),
    make("p", { class: "meta" }, "Each bubble is a community: entities that are related to each other " +
      "more than to the rest. Open one to see its entities, and an entity to see its facts and where they stand."),
    section("Highest ranked entities", best));
}
function entityLine(n) {
  const entity = data.entities[n];
  return make("div", { class: "fact" }, make("span", { class: "tag", dot: colourOf(entity.type) }, entity.type),
    make("button", { onclick: () => go({ kind: "entity", n }) }, entity.name),
    make("span", { class: "meta" }, `  ${plural(entity.mentions, "mention")}`));
}
function panelCommunity(community, inner) {
  const groups = inner.map((entry) => make("div", { class: "fact" },
    make("button", { onclick: () => go(entry) }, data.communities[entry.n].label),
    make("span", { class: "meta" }, `  ${data.communities[entry.n].size}`)));
  const members = [...community.members].sort((a, b) => data.entities[b].rank - data.entities[a].rank);
  panel(make("h2", {}, community.label),
    make("p", { class: "meta" }, `${plural(community.size, "entity", "entities")}, ` +
      `${plural(community.members.length, "of them", "of them")} shown on this page`),
    section("Summary", community.summary ? [make("p", {}, community.summary)] : []),
    section("Groups inside", groups),
    section("Entities", members.slice(0, 15).map(entityLine)));
}
function panelEntity(n) {
  const entity = data.entities[n];
  const stated = touching[n].filter((number) => data.relations[number][3]);
  const loose = touching[n].filter((number) => !data.relations[number][3]);
  panel(make("h2", {}, entity.name),
    make("p", {}, make("span", { class: "tag", dot: colourOf(entity.type) }, entity.type),
      make("span", { class: "meta" }, `${plural(entity.mentions, "mention")} in ${plural(entity.docs, "document")}, ` +
        plural(entity.degree, "neighbour"))),
    section("Also written", entity.aliases.length ? [make("p", { class: "aliases" }, ...entity.aliases.map((alias) => make("span", {}, alias)))] : []),
    section("Facts", entity.facts.map(([predicate, value, unit, quotes]) =>
      factLine([make("span", { class: "meta" }, predicate.replaceAll("_", " ") + " "), `${value} ${unit}`.trim()], quotes))),
    section("Stated relations", stated.map((number) => relationLine(n, number))),
    section("Found in", entity.places.map(([doc, page, surface]) =>
      make("p", {}, `“${surface}” `, make("cite", {}, `${data.documents[doc]}, page ${page}`)))),
    section("Share sentences with", loose.map((number) => relationLine(n, number))));
}
function relationLine(n, number) {
  const [head, predicate, tail, asserted, , quotes] = data.relations[number];
  const end = (other) => other === n ? data.entities[other].name
    : make("button", { onclick: () => go({ kind: "entity", n: other }) }, data.entities[other].name);
  const words = asserted ? [end(head), make("span", { class: "predicate" }, predicate.replaceAll("_", " ")), end(tail)]
    : [end(head === n ? tail : head)];
  return factLine(words, quotes, asserted ? "" : " loose");
}
function factLine(words, quotes, kind = "") {
  return make("div", { class: "fact" + kind }, ...words, ...quotes.map(([doc, page, text]) =>
    make("blockquote", {}, text, make("br"), make("cite", {}, `${data.documents[doc]}, page ${page}`))));
}

// ---- keys
$("search").addEventListener("input", (event) => search(event.target.value));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = document.activeElement === $("search");
  if (event.key === "/" && !typing) { $("search").focus(); event.preventDefault(); }
  else if (event.key === "Escape") {
    if (typing && $("search").value) show(view);
    else back();
    $("list").focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    choose(chosen + (event.key === "ArrowDown" ? 1 : -1)); event.preventDefault();
  } else if (event.key === "Enter" && chosen >= 0 && document.activeElement.tagName !== "BUTTON") {
    go(items[chosen]); $("list").focus(); event.preventDefault();
  }
});
window.addEventListener("hashchange", () => {
  if (hashOf(view) !== (location.hash || "#")) fromHash();
});
window.addEventListener("resize", () => { if (!$("search").value) show(view); });
const shownEntities = data.entities.length;
const shownRelations = data.entities.reduce((sum, entity) => sum + entity.facts.length, data.relations.length);
$("shown").textContent = `${shownEntities.toLocaleString("en")} of ${plural(data.totals.entities, "entity", "entities")} ` +
  `and ${shownRelations.toLocaleString("en")} of ${plural(data.totals.relations, "relation")} are in this page, the highest ranked`;
fromHash();
