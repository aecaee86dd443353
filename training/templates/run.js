"use strict";
(() => {
  const { stages, rollouts } = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 200, LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 20;

  function make(tag, cls, text) {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function draw(parent, tag, attributes, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  const colour = (index) => `--colour:var(--c${index % 5})`;

  function shown(value) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    if (size < 1e-3) return value.toExponential(1);
    return String(+value.toPrecision(4));
  }

  // ---- axes -------------------------------------------------------------------------------
  function ticks(low, high, count, least = 0) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(least, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough));
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(+(n * step).toPrecision(12));
    return found;
  }
  function powers(low, high) {
    const found = [];
    for (let n = Math.ceil(Math.log10(low)); n <= Math.floor(Math.log10(high)); n++) found.push(10 ** n);
    return found.length > 1 ? found : [low, high];
  }
  function scale(chart) {
    let low = Math.min(...chart.series.flatMap((s) => s.low));
    let high = Math.max(...chart.series.flatMap((s) => s.high));
    if (chart.log) {
      const a = Math.log(low), b = Math.log(high);
      return { marks: powers(low, high), place: (v) => (Math.log(Math.max(v, low)) - a) / (b - a) };
    }
    if (low > 0 && low < 0.5 * high) low = 0;
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const pad = (high - low) * 0.04;
    high += pad;
    if (low !== 0) low -= pad;
    return { marks: ticks(low, high, 4), place: (v) => (v - low) / (high - low) };
  }

  // ---- one chart --------------------------------------------------------------------------
  function paint(figure, chart, stage) {
    const svg = figure.querySelector("svg");
    const width = figure.clientWidth - 24;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const last = Math.max(stage.total, 2), y = scale(chart);
    const px = (step) => LEFT + ((step - 1) / (last - 1)) * (width - LEFT - RIGHT);
    const py = (value) => HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
    for (const value of y.marks) {
      draw(svg, "line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(value), y2: py(value) });
      draw(svg, "text", { x: LEFT - 6, y: py(value) + 4, "text-anchor": "end" }, shown(value));
    }
    for (const step of ticks(0, last, 5, 1)) {
      if (step >= 1) draw(svg, "text", { x: px(step), y: HEIGHT - 5, "text-anchor": step > 0.94 * last ? "end" : "middle" }, shown(step));
    }
    for (const step of stage.saves) {
      draw(svg, "line", { class: "save", x1: px(step), x2: px(step), y1: HEIGHT - BOTTOM - 5, y2: HEIGHT - BOTTOM + 1 });
    }
    for (const one of stage.restarts) {
      draw(svg, "line", { class: "restart", x1: px(one.step), x2: px(one.step), y1: TOP, y2: HEIGHT - BOTTOM });
    }
    chart.series.forEach((series, index) => {
      const group = draw(svg, "g", { style: colour(index) });
      const at = (values) => series.x.map((step, i) => `${px(step).toFixed(1)},${py(values[i]).toFixed(1)}`);
      if (series.x.some((_, i) => series.high[i] > series.low[i])) {
        draw(group, "polygon", { class: "area", points: [...at(series.high), ...at(series.low).reverse()].join(" ") });
      }
      draw(group, "polyline", { class: "line", points: at(series.y).join(" ") });
      if (series.dots || series.x.length < 3) {
        series.x.forEach((step, i) => draw(group, "circle", { class: "point", cx: px(step), cy: py(series.y[i]), r: 3 }));
      }
    });
    figure.cursor = draw(svg, "line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    figure.px = px;
    figure.stepAt = (x) => 1 + ((x - LEFT) / (width - LEFT - RIGHT)) * (last - 1);
  }

  function nearest(series, step) {
    let low = 0, high = series.x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (series.x[middle] < step) low = middle + 1; else high = middle;
    }
    return low > 0 && step - series.x[low - 1] < series.x[low] - step ? low - 1 : low;
  }

  function said(chart, stage, step) {
    const first = chart.series.reduce((a, b) => (b.x.length > a.x.length ? b : a));
    const at = nearest(first, step);
    const from = at > 0 ? first.x[at - 1] + 1 : 1;
    const span = !first.dots && from < first.x[at] ? `steps ${from}–${first.x[at]}` : `step ${first.x[at]}`;
    const lines = chart.series.map((series) => {
      const i = nearest(series, step), many = shown(series.high[i]) !== shown(series.low[i]);
      const where = series === first ? "" : ` (step ${series.x[i]})`;
      return `${series.name} ${shown(series.y[i])}${many ? ` (${shown(series.low[i])}–${shown(series.high[i])})` : ""}${series.dots ? where : ""}`;
    });
    const near = stage.restarts.filter((one) => Math.abs(one.step - step) <= Math.max(1, stage.total / 80));
    for (const one of near) {
      const lost = one.reached - one.step + 1;
      lines.push(`attempt ${one.attempt} went on at step ${one.step}${lost > 0 ? `, ${lost} trained again` : ""}`);
    }
    return { step: first.x[at], text: [span, ...lines].join("\n") };
  }

  document.querySelectorAll(".charts").forEach((box) => {
    const stage = stages[Number(box.dataset.stage)];
    const figures = stage.charts.map((chart) => {
      const figure = make("figure", "chart");
      const caption = make("figcaption", "", chart.title);
      if (chart.unit || chart.log) caption.append(make("span", "unit", [chart.unit, chart.log ? "log" : ""].filter(Boolean).join(", ")));
      chart.series.forEach((series, index) => {
        const key = make("span", "key", `${series.name} ${shown(series.y.at(-1))}`);
        key.style.cssText = colour(index);
        caption.append(key);
      });
      const svg = document.createElementNS(SVG, "svg");
      const main = chart.series[0];
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${chart.title}: ${shown(main.y[0])} at step ${main.x[0]}, ${shown(main.y.at(-1))} at step ${main.x.at(-1)}`);
      figure.append(caption, svg);
      box.append(figure);
      return figure;
    });
    const hide = () => figures.forEach((figure) => {
      figure.cursor.setAttribute("visibility", "hidden");
      figure.querySelector(".tip")?.remove();
    });
    figures.forEach((figure, index) => {
      const svg = figure.querySelector("svg");
      svg.addEventListener("pointermove", (event) => {
        const inside = event.clientX - svg.getBoundingClientRect().left;
        const { step, text } = said(stage.charts[index], stage, figure.stepAt(inside));
        hide();
        for (const other of figures) {
          other.cursor.setAttribute("x1", other.px(step));
          other.cursor.setAttribute("x2", other.px(step));
          other.cursor.setAttribute("visibility", "visible");
        }
        const tip = make("div", "tip", text);
        figure.append(tip);
        const room = figure.clientWidth - tip.offsetWidth - 4;
        tip.style.left = `${Math.max(4, Math.min(room, inside + 26))}px`;
        tip.style.top = "34px";
      });
      svg.addEventListener("pointerleave", hide);
    });
    const repaint = () => figures.forEach((figure, index) => paint(figure, stage.charts[index], stage));
    new ResizeObserver(repaint).observe(box);
    repaint();
  });

  // ---- answers ----------------------------------------------------------------------------
  const picker = document.getElementById("step");
  if (picker) {
    const when = ({ stage, step }) => (several ? `${stage}, step ${step}` : `step ${step}`);
    const several = new Set(rollouts.map((rollout) => rollout.stage)).size > 1;
    const steps = [...new Set(rollouts.map(when))];
    const place = document.getElementById("rollouts"), name = document.getElementById("step-name");
    picker.max = steps.length - 1;
    picker.value = steps.length - 1;
    const unjudged = { evaluation: "the model’s answer", reference: "the row’s own answer" };
    const badge = (rollout) => {
      if (unjudged[rollout.outcome]) return make("span", "reward none", unjudged[rollout.outcome]);
      if (rollout.reward === null) return make("span", "reward none", `no reward: ${rollout.outcome}`);
      const kind = rollout.reward >= 1 ? "good" : "bad";
      return make("span", `reward ${kind}`, `reward ${shown(rollout.reward)} · ${rollout.outcome}`);
    };
    const show = () => {
      const step = steps[Number(picker.value)];
      name.textContent = step;
      place.replaceChildren();
      const own = rollouts.filter((rollout) => when(rollout) === step);
      for (const prompt of new Set(own.map((rollout) => rollout.prompt))) {
        const block = make("article", "asked");
        block.append(make("h4", "", "Prompt"), make("pre", "", prompt));
        const sides = make("div", "sides");
        for (const rollout of own.filter((one) => one.prompt === prompt)) {
          const side = make("div");
          side.append(badge(rollout), make("pre", "", rollout.answer || "(empty)"));
          sides.append(side);
        }
        block.append(sides);
        place.append(block);
      }
    };
    picker.addEventListener("input", show);
    show();
  }
})();
