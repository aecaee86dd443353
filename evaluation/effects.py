"""How much better, as ratios: of accuracy, of odds, of errors; each with its paired interval.

    found = effects(base, tuned, clusters)     # values in [0, 1] of the same problems
    found.odds_ratio.value, found.odds_ratio.low

A ratio of accuracies means little beside its ceiling: from 63 % nothing can double. The odds ratio
((p / (1 - p)) of one model over that of the other) and the share of errors that are gone
(1 - (1 - p_tuned) / (1 - p_base)) have no such ceiling, so all three stand side by side.

Not covered: ratios of models that answered different problems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evaluation.statistics import CONFIDENCE, resampled_means, unseen

Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Effect:
    """A ratio with its 95 % interval; a bound that the data does not give is None."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Effects:
    """All three; None where the ratio does not exist (nothing right, or nothing wrong)."""

    ratio: Effect | None
    odds_ratio: Effect | None
    error_reduction: Effect | None


class _Pair(NamedTuple):
    """Means of two models: as seen, and as far as a resampling lets them lie."""

    before: float
    after: float
    before_range: tuple[np.ndarray, np.ndarray]
    after_range: tuple[np.ndarray, np.ndarray]


def effects(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], *, seed: int = 0
) -> Effects:
    """`second` over `first`, values in [0, 1] of the same problems, resampled by cluster.

    Where resampling shows no spread (all right, all wrong, or no problem that differs) the bounds
    come from the exact binomial one, as in `statistics.mean_interval`. One cluster bounds nothing.
    Raises `ValueError` when the values are not paired, or none.
    """
    pair = _pair(first, second, clusters, seed)
    return Effects(
        _effect(_ratio, pair), _effect(_odds_ratio, pair), _effect(_error_reduction, pair)
    )


def _pair(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], seed: int
) -> _Pair:
    if len(first) != len(second):
        raise ValueError(f"paired values differ in number: {len(first)} and {len(second)}")
    before = resampled_means(first, clusters, seed=seed)
    after = resampled_means(second, clusters, seed=seed)
    margin = unseen(len(set(clusters)))
    means = float(np.mean(first)), float(np.mean(second))
    if len(set(clusters)) == 1:
        anything = (np.zeros_like(before), np.ones_like(before))
        return _Pair(*means, anything, anything)
    if list(first) == list(second):
        within = (before, before)
        return _Pair(*means, within, (before - margin, before + margin))
    return _Pair(*means, _range(before, means[0], margin), _range(after, means[1], margin))


def _range(resampled: np.ndarray, mean: float, margin: float) -> tuple[np.ndarray, np.ndarray]:
    if mean == 0:
        return resampled, resampled + margin
    if mean == 1:
        return resampled - margin, resampled
    return resampled, resampled


def _effect(measure: Measure, pair: _Pair) -> Effect | None:
    """All three measures grow with `after` and fall with `before`."""
    value = float(measure(np.array(pair.before), np.array(pair.after)))
    if not np.isfinite(value):
        return None
    tail = (1 - CONFIDENCE) / 2
    # An order statistic, not an interpolation, which would mix a number with an infinity.
    lows = _defined(measure, pair.before_range[1], pair.after_range[0])
    highs = _defined(measure, pair.before_range[0], pair.after_range[1])
    return Effect(
        value,
        _finite(np.quantile(lows, tail, method="lower")),
        _finite(np.quantile(highs, 1 - tail, method="higher")),
    )


def _defined(measure: Measure, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    found = measure(np.clip(before, 0, 1), np.clip(after, 0, 1))
    return found[~np.isnan(found)]


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None


def _ratio(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(after / before)


def _odds_ratio(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(after * (1 - before) / (before * (1 - after)))


def _error_reduction(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(1 - (1 - after) / (1 - before))
