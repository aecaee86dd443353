"""Scores of a published evaluation, for a terminal and for a table in the UI."""

from __future__ import annotations

from pathlib import Path

from evaluation.publication import Summary as Evaluation
from evaluation.results import BenchmarkResult, Comparison, Score


def score_rows(evaluation: Evaluation) -> list[dict[str, object]]:
    """One row per benchmark and model."""
    return [
        {
            "benchmark": result.name,
            "model": model,
            "metric": metric,
            "value": round(score.value, 4),
            "low": round(score.low, 4),
            "high": round(score.high, 4),
            "problems": score.problems,
        }
        for result in evaluation.benchmarks
        for model in _labels(evaluation)
        for metric, score in result.scores[model].items()
    ]


def score_lines(evaluation: Evaluation) -> tuple[str, ...]:
    """Each benchmark's headline metric for every model, and the paired differences."""
    lines: list[str] = []
    for result in evaluation.benchmarks:
        lines.append(f"{result.name} ({result.metric}, {result.problems} problems)")
        lines += [f"  {model:<24} {_score(result, model)}" for model in _labels(evaluation)]
        lines += _official_lines(result, _labels(evaluation))
        lines += [f"  {_comparison(found)}" for found in result.comparisons]
        if result.without_verdict:
            lines.append(f"  {result.without_verdict} answer(s) without a verdict")
    return tuple(lines)


def _official_lines(result: BenchmarkResult, models: list[str]) -> list[str]:
    """The same by upstream's own rules, where the benchmark has them."""
    metric = f"official_{result.metric}"
    found = {model: result.scores[model].get(metric) for model in models}
    lines = [
        f"  {model:<24} {score.value:6.1%}  official, all {score.problems} problems"
        for model, score in found.items()
        if score is not None
    ]
    if result.excluded:
        lines.append(f"  {len(result.excluded)} faulty problem(s) are not in the first figures")
    return lines


def leaderboard_place(folder: Path) -> dict[str, Path]:
    """Where the table of all evaluations is, beside the evaluation in `folder`."""
    page = folder.parent / "leaderboard.html"
    return {"leaderboard": page} if page.exists() else {}


def _labels(evaluation: Evaluation) -> list[str]:
    """The baseline first."""
    return [model.label for model in evaluation.models]


def _score(result: BenchmarkResult, model: str) -> str:
    score: Score | None = result.scores[model].get(result.metric)
    if score is None:
        return "no verdicts"
    return f"{score.value:6.1%}  [{score.low:.1%}, {score.high:.1%}]"


def _comparison(found: Comparison) -> str:
    return (
        f"{found.model} minus {found.baseline}: {100 * found.difference:+.1f} points "
        f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}] on {found.problems} pairs, "
        f"p = {found.p_value:.1g}: {found.finding}"
    )
