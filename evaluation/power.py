"""The smallest difference between two models that a benchmark can show.

    found = smallest_visible(base, tuned, clusters, samples=4)
    found.difference        # seen in 80 of 100 repetitions at the 5 % level
    found.at_best           # what more samples of the same problems could bring it down to

A benchmark that sees 8 points cannot tell a model that gained 5 from one that gained nothing, so
"no difference shown" is to be read beside this figure.

Source: Miller 2024 (arXiv 2411.00640, section 5): (z_0.975 + z_0.8) standard errors of the paired
difference. With few problems the exact test asks for more: fewer than 6 problems that differ can
never reach 5 % (2 / 2^5 = 0.0625), however large the gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.statistics import CONFIDENCE, clustered_error

POWER = 0.8
_LEAST_DIFFERING = 6


@dataclass(frozen=True)
class Power:
    """Differences in [0, 1]; None where no difference, however large, could be shown."""

    difference: float | None
    at_best: float | None  # with any number of samples; None too where these values do not tell


def smallest_visible(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], *, samples: int
) -> Power:
    """What these problems with `samples` answers each can see, from the spread of these values.

    `first` and `second` are the shares of right answers by problem, in [0, 1].
    """
    floor = _floor(len(set(clusters)), samples)
    if floor is None:
        return Power(None, None)
    gains = [b - a for a, b in zip(first, second, strict=True)]
    error = clustered_error(gains, clusters)
    seen = max(_errors() * error, floor)
    if samples < 2 or error == 0:
        return Power(min(seen, 1.0), None)
    noise = sum(_sampling_variance(p, samples) for p in (*first, *second)) / len(gains) ** 2
    rest = math.sqrt(max(error**2 - noise, 0.0))
    return Power(min(seen, 1.0), min(seen, _errors() * rest, 1.0))


def _errors() -> float:
    """How many standard errors a difference has to be."""
    from scipy.stats import norm

    return float(norm.ppf(1 - (1 - CONFIDENCE) / 2) + norm.ppf(POWER))


def _sampling_variance(share: float, samples: int) -> float:
    """Variance of a share of right answers among `samples`, estimated without bias."""
    return share * (1 - share) / (samples - 1)


def _floor(clusters: int, samples: int) -> float | None:
    """The gain of every answer's chance that makes 6 of `clusters` problems differ in 80 %."""
    if clusters < _LEAST_DIFFERING:
        return None
    from scipy.stats import beta

    # P(Binomial(n, q) >= 6) = P(Beta(6, n - 5) <= q)
    share = float(beta.ppf(POWER, _LEAST_DIFFERING, clusters - _LEAST_DIFFERING + 1))
    return float(1 - (1 - share) ** (1 / samples))
