"""The report: one HTML file that needs nothing else, from a summary and the sample rows.

Answers, prompts and document names are hostile text: the page holds them as JSON in which `<` is
escaped, and a script puts them in as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from evaluation import plots
from evaluation.publication import Summary
from evaluation.results import BenchmarkResult, Comparison
from workspace import publish
from workspace.shards import Row

_TEMPLATES = Path(__file__).resolve().parent / "templates"
# More would make the page slow; samples.parquet has them all.
MAX_PROBLEMS_SHOWN = 400  # of each benchmark
MAX_TEXT = 20_000


def write_report(path: Path, summary: Summary, samples: Sequence[Row]) -> None:
    """Write the page to `path`, atomically."""
    publish.write_text(path, render(summary, samples))


def render(summary: Summary, samples: Sequence[Row]) -> str:
    """The page's HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}"
    environment.filters["points"] = lambda value: f"{100 * value:+.1f}".replace("-", "\u2212")
    models = [model.label for model in summary.models]
    comparisons = [c for result in summary.benchmarks for c in result.comparisons]
    problems = _problems(samples, _titles(summary))
    return environment.get_template("report.html").render(
        summary=summary,
        models=models,
        colours=dict(zip(models, plots.MODEL_COLOURS * len(models), strict=False)),
        findings=[_finding(r, c) for r in summary.benchmarks for c in r.comparisons],
        by_task=_by_task(samples, summary),
        score_svg=plots.score_bars(summary.benchmarks, models),
        difference_svg=plots.differences(summary.benchmarks) if comparisons else "",
        outcome_svg=plots.outcomes(summary.benchmarks, models),
        problems_total=len({(row["benchmark"], row["row_id"]) for row in samples}),
        problems_shown=len(problems),
        data=_as_script_data({"models": models, "problems": problems}),
    )


def _finding(result: BenchmarkResult, comparison: Comparison) -> dict[str, str]:
    """One plain sentence about a comparison."""
    before = result.scores[comparison.baseline][result.metric].value
    after = result.scores[comparison.model][result.metric].value
    numbers = f"{100 * before:.1f} % to {100 * after:.1f} %"
    interval = f"95 % interval {100 * comparison.low:+.1f} to {100 * comparison.high:+.1f} points"
    interval = interval.replace("-", "\u2212")
    sentences = {
        "gain": f"{comparison.model} is better than the baseline: {numbers} ({interval}).",
        "loss": f"{comparison.model} is worse than the baseline: {numbers} ({interval}).",
        "no difference shown": f"no significant gain of {comparison.model} over the baseline: "
        f"{numbers}; {comparison.problems} problems cannot tell these apart ({interval}).",
    }
    return {
        "title": result.title,
        "kind": comparison.finding,
        "text": sentences[comparison.finding],
    }


def _by_task(samples: Sequence[Row], summary: Summary) -> list[dict[str, Any]]:
    """Share of right answers for each kind of question, benchmark and model."""
    counts: dict[tuple[str, str], dict[str, list[int]]] = {}
    problems: dict[tuple[str, str], set[str]] = {}
    for row in samples:
        if row["score"] is None:
            continue
        place = (row["benchmark"], row["task"])
        problems.setdefault(place, set()).add(row["row_id"])
        tally = counts.setdefault(place, {}).setdefault(row["model"], [0, 0])
        tally[0] += row["score"] == 1.0
        tally[1] += 1
    order = {result.name: index for index, result in enumerate(summary.benchmarks)}
    titles = _titles(summary)
    return [
        {
            "title": titles[place[0]],
            "task": place[1],
            "problems": len(problems[place]),
            "shares": {m: right / total for m, (right, total) in counts[place].items()},
        }
        for place in sorted(counts, key=lambda place: (order[place[0]], place[1]))
    ]


def _problems(samples: Sequence[Row], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """The sample browser's data: problems with every model's answers, limited in number."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    shown: dict[str, int] = {}
    for row in samples:
        place = (row["benchmark"], row["row_id"])
        if place not in found:
            if shown.get(row["benchmark"], 0) >= MAX_PROBLEMS_SHOWN:
                continue
            shown[row["benchmark"]] = shown.get(row["benchmark"], 0) + 1
            found[place] = _problem(row, titles[row["benchmark"]])
        found[place]["answers"].setdefault(row["model"], []).append(
            {
                "text": row["answer"][:MAX_TEXT],
                "score": row["score"],
                "outcome": row["outcome"],
                "detail": row["detail"],
                "official": row["official"],
                "output": row["output"],
                "group": plots.outcome_group(row["outcome"]),
            }
        )
    return list(found.values())


def _problem(row: Mapping[str, Any], title: str) -> dict[str, Any]:
    return {
        "benchmark": row["benchmark"],
        "title": title,
        "id": row["row_id"],
        "task": row["task"],
        "verifier": row["verifier"],
        "prompt": row["prompt"][:MAX_TEXT],
        "reference": row["reference"][:MAX_TEXT],
        "document": row["document"],
        "page": row["page"],
        "answers": {},
    }


def _titles(summary: Summary) -> dict[str, str]:
    return {result.name: result.title for result in summary.benchmarks}


def _as_script_data(value: Any) -> str:
    """JSON that cannot end its <script> element or start a comment in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text
