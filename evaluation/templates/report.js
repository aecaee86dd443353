"use strict";
(() => {
  const { models, benchmarks, texts, problems, groups } =
    JSON.parse(document.getElementById("data").textContent);
  const ROW_PX = 54;
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), rows = byId("rows"), box = byId("detail");

  function make(tag, cls, text) {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // ---- what is shown ----------------------------------------------------------------------
  const lowered = [];
  const holds = (number, text) => (lowered[number] ??= texts[number].toLowerCase()).includes(text);

  function share(problem, model) {
    const graded = problem.answers[model].filter((answer) => answer.score !== null);
    return graded.length ? graded.filter((answer) => answer.score === 1).length / graded.length : null;
  }
  const last = models.length - 1;
  const every = (problem, wanted) => models.every((_, model) => share(problem, model) === wanted);
  const changes = {
    "": ["all", () => true],
    gained: [`gained by ${models[last]}`, (p) => share(p, 0) !== null && share(p, last) > share(p, 0)],
    lost: [`lost by ${models[last]}`, (p) => share(p, last) !== null && share(p, last) < share(p, 0)],
    right: ["right in all", (p) => every(p, 1)],
    wrong: ["wrong in all", (p) => every(p, 0)],
  };

  function option(select, value, text) {
    const node = make("option", "", text);
    node.value = value;
    select.append(node);
  }
  benchmarks.forEach(([, title], index) => option(byId("f-benchmark"), index, title));
  models.forEach((label, index) => option(byId("f-model"), index, label));
  for (const [name, [text]] of Object.entries(changes)) {
    if (last > 0 || !["gained", "lost"].includes(name)) option(byId("f-change"), name, text);
  }
  const outcomes = new Map();
  for (const problem of problems) {
    for (const answer of problem.answers.flat()) {
      if (!outcomes.has(answer.group)) outcomes.set(answer.group, new Set());
      outcomes.get(answer.group).add(answer.outcome);
    }
  }
  for (const group of Object.keys(groups).filter((name) => outcomes.has(name))) {
    option(byId("f-verdict"), `group ${group}`, group);
    const members = [...outcomes.get(group)].sort();
    if (members.length > 1) members.forEach((one) => option(byId("f-verdict"), `only ${one}`, `– ${one}`));
  }

  let shown = problems;
  let current = 0;
  let dot = null; // chosen in a picture: { benchmark, model, before, after }

  function verdictMatches(answer, wanted) {
    if (!wanted) return true;
    return wanted === `group ${answer.group}` || wanted === `only ${answer.outcome}`;
  }

  // An answer is meant when it is of the chosen model and has the chosen verdict.
  function meant(problem) {
    const model = byId("f-model").value, verdict = byId("f-verdict").value;
    return problem.answers.flatMap((answers, index) =>
      model === "" || Number(model) === index ? answers.filter((a) => verdictMatches(a, verdict)) : []);
  }

  function matches(problem, text) {
    const benchmark = byId("f-benchmark").value;
    if (benchmark !== "" && Number(benchmark) !== problem.benchmark) return false;
    if (dot && !(problem.benchmark === dot.benchmark
      && Math.abs(share(problem, 0) - dot.before) < 1e-3
      && share(problem, 0) !== null && share(problem, dot.model) !== null
      && Math.abs(share(problem, dot.model) - dot.after) < 1e-3)) return false;
    if (!changes[byId("f-change").value][1](problem)) return false;
    const answers = meant(problem);
    if (!answers.length) return false;
    return !text || problem.id.toLowerCase().includes(text) || problem.task.toLowerCase().includes(text)
      || [problem.prompt, problem.reference, problem.document].some((t) => holds(t, text))
      || answers.some((a) => holds(a.text, text) || holds(a.detail, text) || holds(a.output, text));
  }

  function filter() {
    const text = byId("f-text").value.toLowerCase();
    shown = problems.filter((problem) => matches(problem, text));
    byId("count").textContent = `${shown.length} problem${shown.length === 1 ? "" : "s"}`
      + (dot ? " of the chosen dot" : "");
    rows.style.height = `${shown.length * ROW_PX}px`;
    list.scrollTop = 0;
    rows.replaceChildren();
    select(0);
  }

  // ---- the list: only the rows in view are in the page -------------------------------------
  function drawList() {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW_PX) - 4);
    const to = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_PX) + 4);
    const kept = new Set();
    for (const node of [...rows.children]) {
      const index = Number(node.dataset.index);
      if (index < from || index >= to) node.remove();
      else kept.add(index);
    }
    for (let index = from; index < to; index += 1) {
      if (!kept.has(index)) rows.append(entry(shown[index], index));
    }
    for (const node of rows.children) {
      node.setAttribute("aria-selected", String(Number(node.dataset.index) === current));
    }
  }

  function mark(group, label) {
    const node = make("i", "mark");
    node.style.background = groups[group] ?? "none";
    node.title = label;
    return node;
  }

  // One answer: the colour of its verdict. Several: the share of right ones as a pie.
  function tally(answers, model) {
    const right = answers.filter((answer) => answer.score === 1).length;
    const node = mark(answers[0]?.group, `${model}: ${right} of ${answers.length} right`);
    if (answers.length > 1) {
      const end = `${(100 * right) / answers.length}%`;
      node.style.background = `conic-gradient(${groups.right} ${end}, transparent ${end})`;
    }
    return node;
  }

  function entry(problem, index) {
    const node = make("div", "item");
    node.setAttribute("role", "option");
    node.setAttribute("aria-setsize", shown.length);
    node.setAttribute("aria-posinset", index + 1);
    node.id = `p${index}`;
    node.dataset.index = index;
    node.style.top = `${index * ROW_PX}px`;
    const marks = make("span", "marks");
    problem.answers.forEach((answers, model) => marks.append(tally(answers, models[model])));
    const [title, line] = headline(problem);
    node.append(marks, make("b", "", title), make("p", "", line));
    node.addEventListener("click", () => { select(index); list.focus(); });
    return node;
  }

  // Problems of public benchmarks have names. Else the question stands last in a prompt; of code to
  // complete, the module's name says more.
  function headline(problem) {
    const prompt = texts[problem.prompt];
    const lines = prompt.trim().split("\n").filter((line) => line.trim());
    if (problem.verifier === "verilog_bench") return [problem.id, problem.task];
    const module = problem.verifier === "verilog_sim" && prompt.match(/\bmodule\s+\w+/);
    return [problem.task || problem.id, module ? module[0] : (lines.pop() || "").slice(0, 300)];
  }

  function select(index) {
    current = Math.max(0, Math.min(index, shown.length - 1));
    const top = current * ROW_PX;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW_PX > list.scrollTop + list.clientHeight) {
      list.scrollTop = top + ROW_PX - list.clientHeight;
    }
    drawList();
    if (shown.length) list.setAttribute("aria-activedescendant", `p${current}`);
    else list.removeAttribute("aria-activedescendant");
    detail(shown[current]);
  }

  // ---- one problem --------------------------------------------------------------------------
  function detail(problem) {
    box.scrollTop = 0;
    if (!problem) {
      box.replaceChildren(make("p", "from", "No problem matches these filters."));
      return;
    }
    const source = texts[problem.document];
    const where = source && `From ${source}${problem.page ? `, page ${problem.page}` : ""}`;
    const chosen = new Set(meant(problem));
    const asked = make("div", "sides asked");
    for (const [title, number] of [["Prompt", problem.prompt], ["Reference answer", problem.reference]]) {
      const side = make("div");
      side.append(make("h4", "", title), make("pre", "", texts[number]));
      asked.append(side);
    }
    const sides = make("div", "sides");
    problem.answers.forEach((answers, model) => {
      const side = make("div");
      const right = answers.filter((answer) => answer.score === 1).length;
      const count = answers.length > 1 ? ` · ${right} of ${answers.length} right` : "";
      side.append(make("h4", "", models[model] + count));
      // Many samples of one problem: the first that is meant is open, the others on demand.
      const first = answers.findIndex((one) => chosen.has(one));
      side.append(...answers.map((one, index) =>
        answer(one, index, answers.length, chosen.has(one), index === Math.max(first, 0))));
      sides.append(side);
    });
    box.replaceChildren(
      make("h3", "", `${benchmarks[problem.benchmark][1]} · ${problem.task}`),
      make("p", "from", [where, `verifier ${problem.verifier}`, problem.id.slice(0, 60)].filter(Boolean).join(" · ")),
      asked, sides);
  }

  function answer(one, index, of, chosen, open) {
    const node = make("details", `answer${chosen ? "" : " dim"}`);
    const head = make("summary");
    const chip = make("span", "chip", one.outcome);
    chip.prepend(mark(one.group, one.group));
    head.append(chip, make("span", "why", of > 1 ? `answer ${index + 1}` : ""));
    const body = make("div");
    const fill = () => {
      if (body.firstChild) return;
      if (texts[one.detail]) body.append(make("span", "why", texts[one.detail]));
      if (one.official) body.append(make("span", "why", `upstream’s own rules: ${one.official}`));
      body.append(make("pre", "", texts[one.text] || "(empty)"));
      if (texts[one.output]) {
        body.append(make("span", "why", "compiler and simulator said"), make("pre", "output", texts[one.output]));
      }
    };
    node.addEventListener("toggle", () => { if (node.open) fill(); });
    node.append(head, body);
    if (open) { fill(); node.open = true; }
    return node;
  }

  // ---- keys, filters, pictures --------------------------------------------------------------
  function nextAnswer() {
    const heads = [...box.querySelectorAll("summary")];
    const at = heads.indexOf(document.activeElement);
    heads[(at + 1) % heads.length]?.focus();
  }

  function openAll() {
    const all = [...box.querySelectorAll("details")];
    const open = all.some((node) => !node.open);
    all.forEach((node) => { node.open = open; });
  }

  const page = () => Math.max(1, Math.floor(list.clientHeight / ROW_PX) - 1);
  const anywhere = {
    j: () => select(current + 1), k: () => select(current - 1), n: nextAnswer, o: openAll,
    "/": () => { byId("f-text").focus(); byId("f-text").select(); },
    Escape: () => list.focus(),
  };
  const inList = {
    ArrowDown: anywhere.j, ArrowUp: anywhere.k, Home: () => select(0), End: () => select(shown.length - 1),
    PageDown: () => select(current + page()), PageUp: () => select(current - page()),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape" || (event.key === "Enter" && event.target.tagName === "INPUT")) {
        event.preventDefault();
        list.focus();
      }
      return;
    }
    const act = (event.target === list && inList[event.key]) || anywhere[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  });

  for (const id of ["f-benchmark", "f-model", "f-verdict", "f-change"]) {
    byId(id).addEventListener("change", filter);
  }
  let waiting = 0;
  byId("f-text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 80);
  });
  const form = list.closest("section").querySelector("form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { dot = null; setTimeout(filter); });
  list.addEventListener("scroll", drawList);
  new ResizeObserver(drawList).observe(list);

  for (const node of document.querySelectorAll("[id^='dot-']")) {
    const [, benchmark, model, before, after] = node.id.split("-").map(Number);
    const chosen = { benchmark, model, before, after };
    const found = problems.filter((problem) => problem.benchmark === benchmark
      && share(problem, 0) !== null && share(problem, model) !== null
      && Math.abs(share(problem, 0) - before) < 1e-3 && Math.abs(share(problem, model) - after) < 1e-3);
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `${found.length} problem${found.length === 1 ? "" : "s"}: `
      + `${Math.round(100 * before)} % of ${models[0]}, ${Math.round(100 * after)} % of ${models[model]}`;
    node.prepend(title);
    node.setAttribute("role", "button");
    node.setAttribute("tabindex", "0");
    node.setAttribute("aria-label", title.textContent);
    const choose = () => {
      form.reset(); // filters again when the form is empty
      dot = chosen;
      byId("answers").scrollIntoView();
      list.focus({ preventScroll: true });
    };
    node.addEventListener("click", choose);
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
    });
  }
  filter();
})();
