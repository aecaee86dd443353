"""The report's pictures, as inline SVG text that takes its text colour from the page.

Same input, same bytes: no dates, fixed ids. Titles and labels are other people's text: nothing in
them is taken for markup or mathematics.
"""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

from evaluation.outcomes import GROUP_COLOURS, outcome_group
from evaluation.results import BenchmarkResult

# Baseline first. Distinct in lightness too, so that they survive print and colour blindness.
MODEL_COLOURS = ("#8d99ae", "#1f78b4", "#e08214", "#6a3d9a", "#33a02c")
GAIN, LOSS, SAME = "#2a9d60", "#c0392b", "#7c8696"
_INK = "#010203"  # replaced by the page's text colour
_UNNEEDED_ID = re.compile(
    r' id="(?:figure|axes|patch|text|line2d|matplotlib\.axis|[xy]tick|legend|\w+Collection)_\d+"'
)

_LABEL_LETTERS = 34

P = ParamSpec("P")


def _plain_texts(draw: Callable[P, str]) -> Callable[P, str]:
    """`$` in a name is a dollar sign; text stays text in the SVG."""

    def drawn(*arguments: P.args, **keywords: P.kwargs) -> str:
        from matplotlib import rc_context

        settings = {
            "text.parse_math": False, "svg.fonttype": "none", "font.family": "sans-serif",
        }  # fmt: skip
        with rc_context(settings):
            return draw(*arguments, **keywords)

    return drawn


@_plain_texts
def score_bars(results: Sequence[BenchmarkResult], models: Sequence[str]) -> str:
    """Headline metric of every benchmark and model, with 95 % intervals."""
    step = len(models) + 0.7
    figure, axes = _figure(7.2, 1.0 + 0.27 * step * len(results))
    for index, model in enumerate(models):
        colour = MODEL_COLOURS[index % len(MODEL_COLOURS)]
        for row, result in enumerate(results):
            score = result.scores[model].get(result.metric)
            place = row * step + index
            if score is None:
                axes.text(1, place, "no verdict", va="center", fontsize=8.5, color=_INK)
                continue
            value, low, high = (100 * x for x in (score.value, score.low, score.high))
            axes.barh(place, value, 0.78, color=colour)
            axes.plot([low, high], [place, place], color=_INK, lw=1.1)
            axes.plot([low, high], [place, place], "|", color=_INK, ms=5)
            axes.text(high + 1.2, place, f"{value:.1f}", va="center", fontsize=8.5, color=_INK)
    middle = (len(models) - 1) / 2
    axes.set_yticks([row * step + middle for row in range(len(results))], map(_title, results))
    axes.set_ylim(len(results) * step - 0.9, -0.8)
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("% of problems, 95 % interval")
    return _svg(figure, "Score of each model on each benchmark with 95 % intervals")


@_plain_texts
def differences(results: Sequence[BenchmarkResult]) -> str:
    """Every comparison with the baseline as a point with its interval; 0 is no difference."""
    comparisons = [(r, c) for r in results for c in r.comparisons]
    figure, axes = _figure(7.2, 0.9 + 0.5 * len(comparisons))
    for place, (_, comparison) in enumerate(comparisons):
        colour = {"gain": GAIN, "loss": LOSS}.get(comparison.finding, SAME)
        low, value, high = (
            100 * x for x in (comparison.low, comparison.difference, comparison.high)
        )
        axes.plot([low, high], [place, place], color=colour, lw=3, solid_capstyle="round")
        axes.plot([value], [place], "o", color=colour, ms=8)
    axes.axvline(0, color=_INK, lw=1, ls=(0, (3, 3)))
    several = len({c.model for _, c in comparisons}) > 1
    labels = [_short(r.title) + (f"\n{_short(c.model)}" if several else "") for r, c in comparisons]
    axes.set_yticks(range(len(comparisons)), labels)
    axes.set_ylim(len(comparisons) - 0.4, -0.6)
    axes.set_xlabel("difference to the baseline in points, paired 95 % interval")
    return _svg(figure, "Paired difference of each model to the baseline with 95 % intervals")


@_plain_texts
def outcomes(results: Sequence[BenchmarkResult], models: Sequence[str]) -> str:
    """How the answers ended, as shares of all answers."""
    rows = [(result, model) for result in results for model in models]
    figure, axes = _figure(7.2, 1.5 + 0.34 * len(rows))
    seen: dict[str, Any] = {}
    for place, (result, model) in enumerate(rows):
        counts: Counter[str] = Counter()
        for outcome, count in result.outcomes[model].items():
            counts[outcome_group(outcome)] += count
        left = 0.0
        for group, colour in GROUP_COLOURS.items():
            if counts[group]:
                share = 100 * counts[group] / counts.total()
                [seen[group]] = axes.barh(
                    place, share, 0.72, left, color=colour, edgecolor="#88888866", lw=0.5
                )
                left += share
    axes.set_yticks(range(len(rows)), [f"{_title(r, ' ')} · {_short(model)}" for r, model in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of answers")
    groups = [group for group in GROUP_COLOURS if group in seen]
    figure.legend(
        [seen[group] for group in groups], groups,
        frameon=False, labelcolor=_INK, loc="outside upper left", ncols=3, fontsize=8.5,
    )  # fmt: skip
    return _svg(figure, "Outcomes of the answers of each model on each benchmark")


@_plain_texts
def scatter(
    pairs: Mapping[tuple[float, float], int], baseline: str, model: str, title: str, name: str
) -> str:
    """Problems by their share of right answers of both models; a dot's area is their number.

    A dot's id is `name` and its place, so that the page can show its problems.
    """
    figure, axes = _figure(3.5, 3.4)
    axes.plot([0, 100], [0, 100], color=_INK, lw=1, ls=(0, (3, 3)), alpha=0.5)
    most = max(pairs.values())
    for (before, after), count in sorted(pairs.items()):
        colour = GAIN if after > before else LOSS if after < before else SAME
        size = 30 + 620 * count / max(most, 8)
        dot = axes.scatter(
            [100 * before], [100 * after], s=size, color=colour, alpha=0.75, lw=0, clip_on=False
        )
        dot.set_gid(f"{name}-{before:.4f}-{after:.4f}")
        dot.set_zorder(3)
        if size > 110:
            axes.text(
                100 * before, 100 * after, str(count), ha="center", va="center", fontsize=9,
                color="#ffffff", zorder=4,
            )  # fmt: skip
    axes.set_xlim(-9, 109)
    axes.set_ylim(-9, 109)
    axes.set_xticks(range(0, 101, 25))
    axes.set_yticks(range(0, 101, 25))
    axes.set_xlabel(f"{_short(baseline)}, % right")
    axes.set_ylabel(f"{_short(model)}, % right")
    return _svg(figure, f"{title}: problems by the right answers of {baseline} and of {model}")


def _short(name: str) -> str:
    """A name that leaves room for the picture."""
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1]}…"


def _title(result: BenchmarkResult, joint: str = "\n") -> str:
    title = _short(result.title).replace(", ", f",{joint}")
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
    with rc_context({"svg.hashsalt": description}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r'font: [^;"]*?(\d+(?:\.\d+)?)px[^;"]*', r"font-size: \1px", text)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", text, count=1)
    text = _UNNEEDED_ID.sub("", text)
    label = f'role="img" aria-label="{html.escape(description)}" '
    return text.replace("<svg ", f"<svg {label}", 1)
