"""The curves of a run's page: what is drawn of each stage's metrics, thinned for a page.

    curves_of(read_history(run / "sft"))      # charts with series, restarts and saves as marks

A series has at most `POINTS` points; each stands for equally many steps in a row and holds their
mean, least and most, so that a spike among 100,000 steps is still seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from training.metrics import History, StepMetrics

POINTS: Final = 600
_MOST_SAVES: Final = 200
_GIB: Final = float(1 << 30)

Value = Callable[[StepMetrics], float | None]


@dataclass(frozen=True)
class Series:
    """`x` are the last steps of each point's span."""

    name: str
    x: list[int] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    dots: bool = False  # few values, far apart


@dataclass(frozen=True)
class Chart:
    title: str
    unit: str
    series: list[Series]
    log: bool = False


def _extra(name: str) -> Value:
    return lambda step: step.extra.get(name)


def _share(name: str) -> Value:
    """In percent."""

    def value(step: StepMetrics) -> float | None:
        share = step.extra.get(name)
        return None if share is None else 100 * share

    return value


def _memory(name: str) -> Value:
    def value(step: StepMetrics) -> float | None:
        return step.memory[name] / _GIB if name in step.memory else None

    return value


# Title, unit, series by name; what a stage does not have is not drawn.
_CHARTS: Final[Sequence[tuple[str, str, dict[str, Value]]]] = (
    ("Loss", "", {"training": lambda s: s.loss, "unseen rows": _extra("eval_loss")}),
    ("Reward", "", {"mean": _extra("reward")}),
    ("Learning rate", "", {"rate": lambda s: s.learning_rate}),
    ("Gradient norm", "", {"before clipping": lambda s: s.grad_norm}),
    ("Tokens per second", "", {"all ranks": lambda s: s.tokens_per_s}),
    ("Model FLOPs utilisation", "%", {"MFU": lambda s: None if s.mfu is None else 100 * s.mfu}),
    (
        "Memory of rank 0",
        "GiB",
        {
            "host": _memory("host"),
            "GPU, tensors": _memory("gpu_allocated"),
            "GPU, held": _memory("gpu_reserved"),
        },
    ),
    (
        "Seconds of a step",
        "s",
        {
            "whole step": lambda s: s.seconds,
            "waiting for data": lambda s: s.data_wait_s,
            "held up by a save": lambda s: s.checkpoint_s,
        },
    ),
    ("Right tokens", "%", {"of the answers": _share("mean_token_accuracy")}),
    ("Entropy", "", {"of the next token": _extra("entropy")}),
)


def curves_of(history: History) -> dict[str, Any]:
    """Charts and marks of a stage as JSON values."""
    steps = history.steps
    charts = [
        chart
        for title, unit, values in _CHARTS
        if (chart := _chart(title, unit, values, steps)) is not None
    ]
    charts += _verifier_charts(steps)
    saves = [step.step - 1 for step in steps if step.checkpoint_s > 0]
    return {
        "total": steps[-1].total_steps if steps else 0,
        "charts": [asdict(chart) for chart in charts],
        "restarts": [restart._asdict() for restart in history.restarts],
        "saves": saves[:: max(1, -(-len(saves) // _MOST_SAVES))],
    }


def _verifier_charts(steps: Sequence[StepMetrics]) -> list[Chart]:
    """By kind of verifier: rewards and cheats; and the shares that teach nothing."""
    names = sorted({name for step in steps for name in step.extra})
    rewards = {kind: _extra(f"reward/{kind}") for kind in _kinds(names, "reward/")}
    cheats = {kind: _share(f"gate_reject/{kind}") for kind in _kinds(names, "gate_reject/")}
    shares: dict[str, Value] = {
        "no verdict": _share("no_verdict_rate"),
        "refused as cheats": _share("gate_reject_rate"),
        "groups all alike": _share("frac_reward_zero_std"),
    }
    found = (
        _chart("Reward by verifier", "", rewards, steps) if len(rewards) > 1 else None,
        _chart("Refused as cheats, by verifier", "%", cheats, steps) if len(cheats) > 1 else None,
        _chart("Answers that teach nothing", "%", shares, steps),
    )
    return [chart for chart in found if chart is not None]


def _kinds(names: Sequence[str], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _chart(
    title: str, unit: str, values: dict[str, Value], steps: Sequence[StepMetrics]
) -> Chart | None:
    series = [
        thinned(name, [(s.step, v) for s in steps if (v := value(s)) is not None], len(steps))
        for name, value in values.items()
    ]
    shown = [one for one in series if one.x]
    if not shown or all(value == 0 for one in shown for value in one.high):
        return None
    if title == "Seconds of a step":
        shown = [one for one in shown if any(one.high)]
    least = min(value for one in shown for value in one.low)
    most = max(value for one in shown for value in one.high)
    return Chart(title, unit, shown, log=title == "Gradient norm" and 0 < 50 * least < most)


def thinned(name: str, points: Sequence[tuple[int, float]], steps: int) -> Series:
    """At most `POINTS` points; `steps` is how many steps there are in all."""
    points = [(step, value) for step, value in points if math.isfinite(value)]
    series = Series(name, dots=len(points) * 4 < steps)
    span = max(1, -(-len(points) // POINTS))
    for start in range(0, len(points), span):
        part = points[start : start + span]
        values = [value for _, value in part]
        series.x.append(part[-1][0])
        series.y.append(_short(sum(values) / len(values)))
        series.low.append(_short(min(values)))
        series.high.append(_short(max(values)))
    return series


def _short(value: float) -> float:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}")
