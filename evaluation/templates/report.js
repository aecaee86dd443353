"use strict";
(() => {
  const { models, problems } = JSON.parse(document.getElementById("data").textContent);
  const colours = {
    "right": "#2a9d60", "partly right": "#6f9c2e", "wrong answer": "#b8801a",
    "no answer in the form asked": "#7c8696", "did not compile": "#a5485b",
    "refused by the gate": "#7b5ea7", "ran into a limit": "#444b59", "no verdict": "#5b6b8c",
  };
  const byId = (id) => document.getElementById(id);
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const share = (problem, model) => {
    const graded = (problem.answers[model] || []).filter((a) => a.score !== null);
    return graded.length ? graded.filter((a) => a.score === 1).length / graded.length : null;
  };
  const [first, last] = [models[0], models[models.length - 1]];
  const changes = {
    "": ["all", () => true],
    gained: ["gained by " + last, (p) => share(p, last) > share(p, first)],
    lost: ["lost by " + last, (p) => share(p, last) < share(p, first)],
    right: ["right in all", (p) => models.every((m) => share(p, m) === 1)],
    wrong: ["wrong in all", (p) => models.every((m) => share(p, m) === 0)],
  };
  const option = (select, value, text) => {
    const node = make("option", "", text);
    node.value = value;
    select.append(node);
  };
  const titles = new Map(problems.map((p) => [p.benchmark, p.title]));
  titles.forEach((title, name) => option(byId("f-benchmark"), name, title));
  for (const [name, [text]] of Object.entries(changes)) {
    if (models.length > 1 || !["gained", "lost"].includes(name)) option(byId("f-change"), name, text);
  }
  const outcomes = new Set(problems.flatMap((p) => models.flatMap((m) => (p.answers[m] || []).map((a) => a.outcome))));
  [...outcomes].sort().forEach((outcome) => option(byId("f-outcome"), outcome, outcome));

  let shown = [];
  let current = 0;

  function filter() {
    const benchmark = byId("f-benchmark").value, outcome = byId("f-outcome").value;
    const matches = changes[byId("f-change").value][1], text = byId("f-text").value.toLowerCase();
    shown = problems.filter((p) => {
      const answers = models.flatMap((m) => p.answers[m] || []);
      return (!benchmark || p.benchmark === benchmark) && matches(p)
        && (!outcome || answers.some((a) => a.outcome === outcome))
        && (!text || [p.prompt, p.reference, p.document, ...answers.map((a) => a.text)].some((t) => t.toLowerCase().includes(text)));
    });
    byId("count").textContent = `${shown.length} problem${shown.length === 1 ? "" : "s"}`;
    byId("list").replaceChildren(...shown.map(entry));
    select(0);
  }

  function entry(problem, index) {
    const node = make("div", "item");
    node.setAttribute("role", "option");
    node.id = `p${index}`;
    const marks = make("span", "marks");
    for (const model of models) {
      const best = (problem.answers[model] || []).find((a) => a.score === 1) || (problem.answers[model] || [])[0];
      const mark = make("i");
      mark.style.background = best ? colours[best.group] : "none";
      mark.title = `${model}: ${best ? best.group : "no answer"}`;
      marks.append(mark);
    }
    node.append(marks, make("b", "", problem.task || problem.title), make("p", "", gist(problem)));
    node.addEventListener("click", () => { select(index); byId("list").focus(); });
    return node;
  }

  // The question stands last in a prompt; of code to complete, the module's name says more.
  function gist(problem) {
    const module = problem.verifier === "verilog_sim" && problem.prompt.match(/\bmodule\s+\w+/);
    return module ? module[0] : problem.prompt.trim().split("\n").filter((line) => line.trim()).pop() || "";
  }

  function select(index) {
    const list = byId("list");
    list.children[current]?.setAttribute("aria-selected", "false");
    current = Math.max(0, Math.min(index, shown.length - 1));
    const node = list.children[current];
    node?.setAttribute("aria-selected", "true");
    if (node) {
      list.setAttribute("aria-activedescendant", node.id);
      if (node.offsetTop < list.scrollTop + list.offsetTop) list.scrollTop = node.offsetTop - list.offsetTop;
      const end = node.offsetTop - list.offsetTop + node.offsetHeight;
      if (end > list.scrollTop + list.clientHeight) list.scrollTop = end - list.clientHeight;
    }
    detail(shown[current]);
  }

  function detail(problem) {
    const box = byId("detail");
    if (!problem) { box.replaceChildren(make("p", "from", "No problem matches these filters.")); return; }
    const from = problem.document ? `${problem.document}${problem.page ? `, page ${problem.page}` : ""}` : "";
    const sides = make("div", "sides");
    for (const model of models) {
      const side = make("div");
      side.append(make("h4", "", model), ...(problem.answers[model] || []).map(answer));
      sides.append(side);
    }
    box.replaceChildren(
      make("h3", "", `${problem.title} · ${problem.task}`),
      make("p", "from", [from && `From ${from}`, `verifier ${problem.verifier}`, problem.id.slice(0, 12)].filter(Boolean).join(" · ")),
      make("h4", "", "Prompt"), make("pre", "", problem.prompt),
      make("h4", "", "Reference answer"), make("pre", "", problem.reference), sides);
    box.scrollTop = 0;
  }

  function answer(one) {
    const node = make("div", "answer");
    const chip = make("span", "chip", one.outcome);
    chip.style.background = colours[one.group];
    node.append(chip, make("span", "why", one.detail), make("pre", "", one.text || "(empty)"));
    return node;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") byId("list").focus();
      return;
    }
    const inList = event.target === byId("list");
    if (event.key === "j" || (inList && event.key === "ArrowDown")) select(current + 1);
    else if (event.key === "k" || (inList && event.key === "ArrowUp")) select(current - 1);
    else if (event.key === "/") byId("f-text").focus();
    else return;
    event.preventDefault();
  });
  for (const id of ["f-benchmark", "f-change", "f-outcome"]) byId(id).addEventListener("change", filter);
  byId("f-text").addEventListener("input", filter);
  filter();
})();
