"""The report: one HTML file that needs nothing else, from a summary and the sample rows.

Answers, prompts and document names are hostile text: the page holds them as JSON in which `<` is
escaped, and a script puts them in as text, never as markup. The page's policy
(Content-Security-Policy) lets it load nothing and run no script but its own, which a hash names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from evaluation import plots
from evaluation.categories import Category, by_category
from evaluation.outcomes import GROUP_COLOURS
from evaluation.publication import Summary
from evaluation.report_samples import shown_samples
from evaluation.results import BenchmarkResult, Comparison
from workspace import publish
from workspace.page_style import report_style
from workspace.page_templates import page_templates
from workspace.script_data import embed_json, source_hash
from workspace.shards import Row

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def write_report(path: Path, summary: Summary, samples: Sequence[Row]) -> None:
    """Write the page to `path`, atomically."""
    publish.write_text(path, render(summary, samples))


def render(summary: Summary, samples: Sequence[Row]) -> str:
    """The page's HTML."""
    models = [model.label for model in summary.models]
    titles = {result.name: result.title for result in summary.benchmarks}
    comparisons = [(r, c) for r in summary.benchmarks for c in r.comparisons]
    shown = shown_samples(samples, models, titles)
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return _environment().get_template("report.html").render(
        summary=summary,
        models=models,
        colours=dict(zip(models, plots.MODEL_COLOURS * len(models), strict=False)),
        comparisons=[(r, c, _sentence(r, c)) for r, c in comparisons],
        categories=_categories(samples, summary),
        score_svg=Markup(plots.score_bars(summary.benchmarks, models)),  # noqa: S704
        difference_svg=Markup(plots.differences(summary.benchmarks) if comparisons else ""),  # noqa: S704
        outcome_svg=Markup(plots.outcomes(summary.benchmarks, models)),  # noqa: S704
        scatters=_scatters(samples, summary),
        shown=shown,
        style=Markup(_style()),  # noqa: S704  our own files, like the script
        script=Markup(script),  # noqa: S704
        script_hash=source_hash(script),
        data=Markup(embed_json({**shown.data, "groups": dict(GROUP_COLOURS)})),  # noqa: S704
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    environment = page_templates(_TEMPLATES)
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}"
    environment.filters["points"] = lambda value: _signed(100 * value)
    environment.filters["times"] = lambda value: "∞" if value is None else f"{value:.2f}"
    environment.filters["share"] = lambda value: "∞" if value is None else _signed(100 * value)
    return environment


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\u2212")


def _style() -> str:
    own = [(_TEMPLATES / name).read_text(encoding="utf-8") for name in ("bars.css", "report.css")]
    return report_style() + "".join(own)


def _sentence(result: BenchmarkResult, comparison: Comparison) -> str:
    """One plain sentence about a comparison."""
    before = result.scores[comparison.baseline][result.metric].value
    after = result.scores[comparison.model][result.metric].value
    numbers = f"{100 * before:.1f} % to {100 * after:.1f} %"
    interval = (
        f"95 % interval {_signed(100 * comparison.low)} to {_signed(100 * comparison.high)} points"
    )
    return {
        "gain": f"{comparison.model} is better than the baseline: {numbers} ({interval}).",
        "loss": f"{comparison.model} is worse than the baseline: {numbers} ({interval}).",
        "no difference shown": f"no significant gain of {comparison.model} over the baseline: "
        f"{numbers}; {comparison.problems} problems cannot tell these apart ({interval}).",
    }[comparison.finding]


def _categories(samples: Sequence[Row], summary: Summary) -> list[tuple[str, list[Category]]]:
    """Benchmarks with more than one kind of question, in the report's order, and the kinds."""
    excluded = {result.name: result.excluded.keys() for result in summary.benchmarks}
    kinds: dict[str, list[Category]] = {}
    for category in by_category(samples, excluded):
        kinds.setdefault(category.benchmark, []).append(category)
    return [
        (result.title, kinds[result.name])
        for result in summary.benchmarks
        if len(kinds.get(result.name, ())) > 1
    ]


def _scatters(samples: Sequence[Row], summary: Summary) -> list[dict[str, Any]]:
    """A picture for each comparison; none where a model has no verdicts."""
    shares = _shares(samples)
    models = [model.label for model in summary.models]
    found = []
    for index, result in enumerate(summary.benchmarks):
        for comparison in result.comparisons:
            before = shares.get((result.name, comparison.baseline), {})
            after = shares.get((result.name, comparison.model), {})
            shared = (before.keys() & after.keys()) - result.excluded.keys()
            pairs = Counter((round(before[r], 4), round(after[r], 4)) for r in shared)
            if pairs:
                name = f"dot-{index}-{models.index(comparison.model)}"
                svg = plots.scatter(
                    pairs, comparison.baseline, comparison.model, result.title, name
                )
                title = result.title if len(models) == 2 else f"{result.title}: {comparison.model}"
                found.append({"title": title, "svg": Markup(svg)})  # noqa: S704
    return found


def _shares(samples: Sequence[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """Share of right answers by benchmark and model, then problem."""
    graded: dict[tuple[str, str], dict[str, list[bool]]] = {}
    for row in samples:
        if row["score"] is not None:
            problems = graded.setdefault((row["benchmark"], row["model"]), {})
            problems.setdefault(row["row_id"], []).append(row["score"] == 1.0)
    return {
        place: {row_id: sum(right) / len(right) for row_id, right in problems.items()}
        for place, problems in graded.items()
    }
