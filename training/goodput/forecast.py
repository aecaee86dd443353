"""What share of its time a run would train, at another rate of failures.

With a save that holds the steps up for δ, every τ seconds of training, and a failure each M
seconds, after which R seconds pass until steps are trained again (first order, τ ≪ M):

    ETTR ≈ 1 − δ/τ − (τ/2 + R)/M            largest at τ* = √(2 δ M)

The optimum is Young's (CACM 17:9, 1974), refined by Daly (FGCS 22:3, 2006); the model of ETTR is
that of Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"
(2024). A failure costs half an interval of work on average, and the restart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MTBF_HOURS = (1.0, 3.0, 8.0, 24.0, 168.0)


class Rhythm(NamedTuple):
    """What a run was measured to do, in seconds; None where it did not happen."""

    save_s: float | None  # δ: steps wait for a save
    interval_s: float | None  # τ: training between two saves
    recovery_s: float | None  # R: from the last step before a failure to the first after it


class Outlook(NamedTuple):
    """At one mean time between failures of the whole job."""

    mtbf_h: float
    ettr: float  # with the measured interval
    best_interval_s: float
    best_ettr: float


def ettr(save_s: float, interval_s: float, recovery_s: float, mtbf_s: float) -> float:
    """Share of the time that trains, between 0 and 1."""
    return max(0.0, 1 - save_s / interval_s - (interval_s / 2 + recovery_s) / mtbf_s)


def best_interval(save_s: float, mtbf_s: float) -> float:
    """τ*, in seconds."""
    return math.sqrt(2 * save_s * mtbf_s)


def outlook(rhythm: Rhythm, recovery_s: float) -> list[Outlook]:
    """For each of `MTBF_HOURS`; `recovery_s` stands in where no failure was seen.

    Empty when the run saved nothing: without δ and τ there is nothing to say.
    """
    save_s, interval_s = rhythm.save_s, rhythm.interval_s
    if not save_s or not interval_s:
        return []
    lost_s = recovery_s if rhythm.recovery_s is None else rhythm.recovery_s
    rows = []
    for hours in MTBF_HOURS:
        mtbf_s = hours * 3600
        best_s = best_interval(save_s, mtbf_s)
        rows.append(
            Outlook(
                hours,
                ettr(save_s, interval_s, lost_s, mtbf_s),
                best_s,
                ettr(save_s, best_s, lost_s, mtbf_s),
            )
        )
    return rows
