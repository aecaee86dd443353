"""How good the planner's predictions are: published runs against what it would have said.

    result = judge(read_runs(Path("runs.csv")), load())
    result.throughput.median, result.memory.worst_under

Errors are fractions of the measured value. Rows that cannot be compared are kept with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from training.planner.calibration import Calibration
from training.planner.memory import peak_memory
from training.planner.published import Run, RunTable, Unjudged
from training.planner.speed import estimate


class Prediction(NamedTuple):
    """One run, measured and predicted; None where the row does not say."""

    run: Run
    tokens_per_second_per_gpu: float
    peak_gib: float

    @property
    def throughput_error(self) -> float | None:
        """(predicted - measured) / measured."""
        measured = self.run.tokens_per_second_per_gpu
        return None if measured is None else self.tokens_per_second_per_gpu / measured - 1

    @property
    def memory_error(self) -> float | None:
        """(predicted - measured) / measured."""
        measured = self.run.peak_gib
        return None if measured is None else self.peak_gib / measured - 1


class Score(NamedTuple):
    """Absolute errors of a set of runs; NaN where there are none."""

    median: float
    p90: float
    n: int
    worst_under: float = math.nan  # by how much of the measured value a prediction fell short


class Backtest(NamedTuple):
    """A judged table."""

    throughput: Score
    memory: Score
    predictions: list[Prediction]
    unjudged: list[Unjudged]

    def as_json(self) -> dict[str, object]:
        """Plain JSON: fractions, counts, every row that was left out, every row by its error."""
        memory = _plain(self.memory)
        memory["worst_under"] = _finite(self.memory.worst_under)
        return {
            "throughput": _plain(self.throughput),
            "memory": memory,
            "groups": {
                name: _plain(score_throughput(members))
                for name, members in groups(self.predictions).items()
            },
            "unjudged": [row._asdict() for row in self.unjudged],
            "rows": [_row(prediction) for prediction in self.predictions],
        }


def judge(table: RunTable, constants: Calibration) -> Backtest:
    """Predict every run of a table and score the predictions."""
    predictions = [predict(run, constants) for run in table.runs]
    return Backtest(
        throughput=score_throughput(predictions),
        memory=score_memory(predictions),
        predictions=predictions,
        unjudged=table.unjudged,
    )


def predict(run: Run, constants: Calibration) -> Prediction:
    """What the planner says of one run."""
    speed = estimate(run.shape, run.job, run.layout, run.machine, constants)
    memory = peak_memory(run.shape, run.job, run.layout, constants)
    return Prediction(run, speed.tokens_per_second_per_gpu, memory.total)


def groups(predictions: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """Runs by kind of model and arithmetic: `dense 16-bit`, `experts 8-bit or less`."""
    found: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        run = prediction.run
        kind = "experts" if run.shape.is_moe else "dense"
        bits = "16-bit" if run.is_sixteen_bit else "8-bit or less"
        found.setdefault(f"{kind} {bits}", []).append(prediction)
    return dict(sorted(found.items()))


def score_throughput(predictions: Iterable[Prediction]) -> Score:
    """Errors of tokens per second."""
    errors = [item.throughput_error for item in predictions]
    return _score([error for error in errors if error is not None])


def score_memory(predictions: Iterable[Prediction]) -> Score:
    """Errors of peak memory."""
    errors = [error for item in predictions if (error := item.memory_error) is not None]
    worst = max((-error for error in errors), default=math.nan)
    return _score(errors)._replace(worst_under=max(0.0, worst) if errors else math.nan)


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _score(errors: Sequence[float]) -> Score:
    sizes = [abs(error) for error in errors]
    return Score(quantile(sizes, 0.5), quantile(sizes, 0.9), len(sizes))


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _plain(score: Score) -> dict[str, float | int | None]:
    return {"median": _finite(score.median), "p90": _finite(score.p90), "n": score.n}


def _row(prediction: Prediction) -> dict[str, object]:
    run = prediction.run
    return {
        "line": run.line,
        "source": run.source,
        "model": run.model,
        "layout": run.layout.label,
        "tokens_per_s_per_gpu": run.tokens_per_second_per_gpu,
        "predicted_tokens_per_s_per_gpu": round(prediction.tokens_per_second_per_gpu, 1),
        "throughput_error": _finite(prediction.throughput_error),
        "peak_mem_gib": run.peak_gib,
        "predicted_peak_mem_gib": round(prediction.peak_gib, 1),
        "memory_error": _finite(prediction.memory_error),
        "assumed": list(run.assumed),
    }
