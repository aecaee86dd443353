"""The report's pictures, as inline SVG text that takes its text colour from the page.

Same input, same bytes: no dates, fixed ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from evaluation.results import BenchmarkResult

# Baseline first. Distinct in lightness too, so that they survive print and colour blindness.
MODEL_COLOURS = ("#8d99ae", "#1f78b4", "#e08214", "#6a3d9a", "#33a02c")
OUTCOME_COLOURS = {
    "right": "#2a9d60",
    "partly right": "#a6d96a",
    "wrong answer": "#e0a030",
    "no answer in the form asked": "#c9ced6",
    "did not compile": "#b56576",
    "refused by the gate": "#7b5ea7",
    "ran into a limit": "#444b59",
    "no verdict": "#ffffff",
}
_INK = "#010203"  # replaced by the page's text colour

_GROUPS = {
    "pass": "right",
    "partial": "partly right",
    "mismatch": "wrong answer",
    "runtime": "wrong answer",
    "interface": "did not compile",
    "compile": "did not compile",
    # A hedge or a wall of text is no answer; the other rejections are of code.
    **dict.fromkeys(
        ("rejected:ambiguous", "rejected:wordy", "rejected:digits", "rejected:too_long"),
        "no answer in the form asked",
    ),
}


def outcome_group(outcome: str) -> str:
    """Which of `OUTCOME_COLOURS` an outcome belongs to."""
    if outcome in _GROUPS:
        return _GROUPS[outcome]
    return {
        "rejected": "refused by the gate",
        "limit": "ran into a limit",
        "infra": "no verdict",
    }.get(outcome.partition(":")[0], "no answer in the form asked")


def score_bars(results: Sequence[BenchmarkResult], models: Sequence[str]) -> str:
    """Headline metric of every benchmark and model, with 95 % intervals."""
    figure, axes = _figure(7.2, 3.4)
    width = 0.8 / len(models)
    for index, model in enumerate(models):
        places = [i + (index - (len(models) - 1) / 2) * width for i in range(len(results))]
        scores = [result.scores[model].get(result.metric) for result in results]
        values = [score.value * 100 if score else 0.0 for score in scores]
        below = [(s.value - s.low) * 100 if s else 0.0 for s in scores]
        above = [(s.high - s.value) * 100 if s else 0.0 for s in scores]
        colour = MODEL_COLOURS[index % len(MODEL_COLOURS)]
        axes.bar(places, values, width * 0.92, color=colour, label=model)
        axes.errorbar(
            places, values, yerr=[below, above], fmt="none", ecolor=_INK, elinewidth=1, capsize=3
        )
        for place, value, high in zip(places, values, above, strict=True):
            axes.annotate(
                f"{value:.1f}", (place, value + high), (0, 3), textcoords="offset points",
                ha="center", fontsize=8.5, color=_INK,
            )  # fmt: skip
    axes.set_xticks(range(len(results)), [_title(r) for r in results])
    axes.set_ylabel("% of problems, 95 % interval")
    axes.set_ylim(0, min(112, max(12, axes.get_ylim()[1] * 1.12)))
    axes.legend(frameon=False, labelcolor=_INK, loc="upper right", ncols=len(models), fontsize=9)
    return _svg(figure, "Score of each model on each benchmark with 95 % intervals")


def differences(results: Sequence[BenchmarkResult]) -> str:
    """Every comparison with the baseline as a point with its interval; 0 is no difference."""
    comparisons = [(r, c) for r in results for c in r.comparisons]
    figure, axes = _figure(7.2, 0.9 + 0.5 * len(comparisons))
    for place, (_, comparison) in enumerate(comparisons):
        colour = {"gain": "#2a9d60", "loss": "#c0392b"}.get(comparison.finding, "#7c8696")
        low, value, high = (
            100 * x for x in (comparison.low, comparison.difference, comparison.high)
        )
        axes.plot([low, high], [place, place], color=colour, lw=3, solid_capstyle="round")
        axes.plot([value], [place], "o", color=colour, ms=8)
    axes.axvline(0, color=_INK, lw=1, ls=(0, (3, 3)))
    several = len({c.model for _, c in comparisons}) > 1
    labels = [r.title + (f" · {c.model}" if several else "") for r, c in comparisons]
    axes.set_yticks(range(len(comparisons)), labels)
    axes.set_ylim(len(comparisons) - 0.4, -0.6)
    axes.set_xlabel("difference to the baseline in points, paired 95 % interval")
    return _svg(figure, "Paired difference of each model to the baseline with 95 % intervals")


def outcomes(results: Sequence[BenchmarkResult], models: Sequence[str]) -> str:
    """How the answers ended, as shares of all answers."""
    rows = [(result, model) for result in results for model in models]
    figure, axes = _figure(7.2, 1.5 + 0.34 * len(rows))
    seen: set[str] = set()
    for place, (result, model) in enumerate(rows):
        counts: dict[str, int] = {}
        for outcome, count in result.outcomes[model].items():
            group = outcome_group(outcome)
            counts[group] = counts.get(group, 0) + count
        total, left = sum(counts.values()), 0.0
        for group, colour in OUTCOME_COLOURS.items():
            share = 100 * counts.get(group, 0) / total
            if share:
                axes.barh(
                    place, share, 0.72, left, color=colour, edgecolor="#88888866", lw=0.5,
                    label=None if group in seen else group,
                )  # fmt: skip
                seen.add(group)
                left += share
    axes.set_yticks(range(len(rows)), [f"{_title(r, ' ')} · {model}" for r, model in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of answers")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: list(OUTCOME_COLOURS).index(labels[i]))
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        frameon=False, labelcolor=_INK, loc="outside upper left", ncols=3, fontsize=8.5,
    )  # fmt: skip
    return _svg(figure, "Outcomes of the answers of each model on each benchmark")


def _title(result: BenchmarkResult, joint: str = "\n") -> str:
    title = result.title.replace(", ", f",{joint}")
    return title if result.metric == "accuracy" else f"{title}{joint}{result.metric}"


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_INK)
        axes.spines[side].set_alpha(0.35)
    axes.tick_params(colors=_INK, labelsize=9.5, length=0)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
        label.set_fontsize(9.5)
    return figure, axes


def _svg(figure: Any, description: str) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": description, "font.family": "sans-serif"}
    with rc_context(settings):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r'font: [^;"]*?(\d+(?:\.\d+)?)px[^;"]*', r"font-size: \1px", text)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", text, count=1)
    label = f'role="img" aria-label="{description}" '
    return text.replace("<svg ", f"<svg {label}", 1)
