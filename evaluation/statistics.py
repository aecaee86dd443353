"""Estimates and their uncertainty: pass@k, clustered bootstrap intervals, paired tests.

Everything is over problems, not over samples: several answers to one problem, and several
phrasings of one fact, are one cluster, resampled together. (Treating 5 samples of 153 problems as
765 independent ones halves the standard error that is really there.)

Ratios of two models are in `effects`, what a benchmark is able to show at all in `power`.

Not covered: correction for looking at many benchmarks at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
_EXACT_FLIPS = 14


class Interval(NamedTuple):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class McNemar(NamedTuple):
    """Problems that only one of two models solves, and the exact two-sided p-value."""

    only_first: int
    only_second: int
    p_value: float


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate that one of `k` samples passes, from `correct` of `samples` that did.

    1 - C(n-c, k) / C(n, k), Chen et al. 2021. Raises `ValueError` unless 0 <= c <= n and
    1 <= k <= n.
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} needs 0 <= correct <= samples >= k, got {correct} of {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_interval(values: Sequence[float], clusters: Sequence[str], *, seed: int = 0) -> Interval:
    """Mean of `values` in [0, 1], with a percentile bootstrap over `clusters` (a label per value).

    When all values are 0, or all 1, resampling shows no spread at all; the bound is then the exact
    binomial one of as many clusters (0 of 50 right: at most 7 %). One cluster has no spread to
    resample and says nothing: 0 to 1.
    Raises `ValueError` when there are no values.
    """
    sums, counts = _by_cluster(values, clusters)
    value, low, high = _bootstrap(sums, counts, seed)
    if len(sums) == 1:
        return Interval(value, 0.0, 1.0)
    if value == 0:
        high = unseen(len(sums))
    elif value == 1:
        low = 1 - unseen(len(sums))
    return Interval(value, low, high)


def paired_difference(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], *, seed: int = 0
) -> Interval:
    """Mean of `second - first` on the same problems, with its bootstrap interval.

    When the two never differ the interval is that of a difference not seen in so many clusters;
    with one cluster it is everything, -1 to 1.
    """
    gains = _gains(first, second)
    sums, counts = _by_cluster(gains, clusters)
    if len(sums) == 1:
        return Interval(float(sums[0] / counts[0]), -1.0, 1.0)
    if not any(gains):
        return Interval(0.0, -unseen(len(sums)), unseen(len(sums)))
    return Interval(*_bootstrap(sums, counts, seed))


def sign_flip_p_value(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], *, seed: int = 0
) -> float:
    """Two-sided p-value of the paired randomisation test: flip the sign of each cluster's gain.

    Exact up to 14 clusters that differ, else from `RESAMPLES` random flips.
    """
    sums, _ = _by_cluster(_gains(first, second), clusters)
    gains = sums[sums != 0]
    if len(gains) == 0:
        return 1.0
    seen = abs(gains.sum()) - 1e-9
    if len(gains) <= _EXACT_FLIPS:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(gains))))
        return float(np.mean(np.abs(signs @ gains) >= seen))
    rng = np.random.default_rng(seed)
    beyond = 0
    for count in _blocks(len(gains)):
        flipped = (2.0 * rng.integers(0, 2, size=(count, len(gains))) - 1) @ gains
        beyond += int(np.sum(np.abs(flipped) >= seen))
    return float((1 + beyond) / (1 + RESAMPLES))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Exact test of whether two models differ, from the problems that only one of them solves."""
    from scipy.stats import binomtest

    pairs = list(zip(first, second, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    discordant = only_first + only_second
    p_value = binomtest(only_first, discordant, 0.5).pvalue if discordant else 1.0
    return McNemar(only_first, only_second, float(p_value))


def resampled_means(
    values: Sequence[float], clusters: Sequence[str], *, seed: int = 0
) -> np.ndarray:
    """`RESAMPLES` bootstrap means of `values`.

    Two calls with the same clusters and seed draw the same clusters: their means are paired.
    """
    return _resampled_means(*_by_cluster(values, clusters), seed)


def clustered_error(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Standard error of the mean of `values` when whole clusters are drawn; 0 for one cluster.

    The closed form of Miller 2024 (arXiv 2411.00640, section 2.2), with the factor C / (C - 1) for
    a number C of clusters that is small.
    """
    sums, counts = _by_cluster(values, clusters)
    if len(sums) == 1:
        return 0.0
    off = sums - counts * sums.sum() / counts.sum()
    correction = len(sums) / (len(sums) - 1)
    return float(np.sqrt(correction * np.sum(off**2)) / counts.sum())


def unseen(clusters: int) -> float:
    """Upper bound (Clopper-Pearson) of a share that was seen 0 times in so many clusters."""
    return float(1 - ((1 - CONFIDENCE) / 2) ** (1 / clusters))


def _gains(first: Sequence[float], second: Sequence[float]) -> list[float]:
    if len(first) != len(second):
        raise ValueError(f"paired values differ in number: {len(first)} and {len(second)}")
    return [b - a for a, b in zip(first, second, strict=True)]


def _bootstrap(sums: np.ndarray, counts: np.ndarray, seed: int) -> tuple[float, float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(_resampled_means(sums, counts, seed), [tail, 1 - tail])
    return float(sums.sum() / counts.sum()), float(low), float(high)


def _by_cluster(values: Sequence[float], clusters: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Sum and size of each cluster, clusters in sorted order so that input order is no matter."""
    if len(values) != len(clusters) or not values:
        raise ValueError(f"{len(values)} values with {len(clusters)} cluster labels")
    names, members = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    sums = np.zeros(len(names))
    # Sorted within a cluster: floating-point sums must not depend on the rows' order.
    order = np.lexsort((np.asarray(values), members))
    np.add.at(sums, members[order], np.asarray(values, dtype=float)[order])
    return sums, np.bincount(members).astype(float)


def _resampled_means(sums: np.ndarray, counts: np.ndarray, seed: int) -> np.ndarray:
    """Means of `RESAMPLES` draws of clusters with replacement."""
    rng = np.random.default_rng(seed)
    means: list[np.ndarray] = []
    for count in _blocks(len(sums)):
        drawn = rng.integers(0, len(sums), size=(count, len(sums)))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    return np.concatenate(means)


def _blocks(width: int) -> Iterator[int]:
    """Sizes that add up to `RESAMPLES`, of rows of so many numbers: memory stays bounded."""
    block = max(1, 2_000_000 // width)
    for start in range(0, RESAMPLES, block):
        yield min(block, RESAMPLES - start)
