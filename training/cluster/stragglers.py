"""Which rank is slower than the others, from the seconds that each needs for its own part.

A rank is named when over the last `WINDOW` steps that all ranks reported, its seconds were above
those of the others (their median, step by step) in nearly every step, by at least `SLOWER` in the
median, and by more than the noise of the others explains. Medians and counts, no means: a garbage
collection or a page fault in one step says nothing. Where fewer than `FEW_RANKS` are compared, the
median of the others is one rank's or two's noise: twice as many steps are asked for. And steps of
milliseconds are counted for `SPAN_S` at least, as a burst of other work on a machine lasts so long.
Pure; fed by the coordinator.

Seconds must be a rank's own, without waiting: in synchronous training the whole step takes all
ranks equally long. Steps that a rank does not report (one with a save in it) count for nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

WINDOW = 15
SLOWER = 1.15
FEW_RANKS = 4
SPAN_S = 0.5
# Of the window's steps; by chance in 1 of 270 windows for a rank as fast as the others.
_IN_STEPS = 13 / 15
_NOISE = 3.0  # times the others' median absolute deviation


# Steps for which a named rank must stay slow before anything is done about it.
CONFIRM_STEPS = 60


class Straggler(NamedTuple):
    """`ratio`: its median seconds over those of the others, at `step`. `confirmed`: it was named
    `CONFIRM_STEPS` steps ago and has been slow since."""

    rank: int
    ratio: float
    step: int
    confirmed: bool = False


class StragglerWatch:
    """Collects steps and names each straggler once, until it is as fast as the others again, and
    once more when it is confirmed."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._steps = WINDOW if ranks >= FEW_RANKS else 2 * WINDOW
        self._open: dict[int, dict[int, float]] = defaultdict(dict)
        self._window: list[dict[int, float]] = []
        self._named: dict[int, int] = {}  # rank -> steps for which it has been slow
        self._last = 0

    def add(self, rank: int, steps: Iterable[tuple[int, float]]) -> list[Straggler]:
        """Steps of `rank`; those that were seen before are ignored. Returns who is named now."""
        found: list[Straggler] = []
        for number, seconds in steps:
            if number <= self._last:
                continue
            self._open[number][rank] = seconds
            if len(self._open[number]) == self._ranks:
                found += self._complete(number)
        return found

    def _complete(self, number: int) -> list[Straggler]:
        self._window = [*self._window[-(self._steps - 1) :], self._open[number]]
        self._last = number
        self._open = defaultdict(dict, {n: s for n, s in self._open.items() if n > number})
        if len(self._window) < self._steps or self._ranks < 2:
            return []
        slow = {rank: ratio for rank in range(self._ranks) if (ratio := _ratio(self._window, rank))}
        self._named = {rank: self._named.get(rank, -1) + 1 for rank in slow}
        return [
            Straggler(rank, ratio, number, self._named[rank] > 0)
            for rank, ratio in slow.items()
            if self._named[rank] in (0, CONFIRM_STEPS)
        ]


def _ratio(window: list[dict[int, float]], rank: int) -> float:
    """How much slower `rank` is than the others; 0.0 when it is not, or not surely."""
    own = [step[rank] for step in window]
    others = [_others(step, rank) for step in window]
    usual = median(others)
    slower = sum(one > other for one, other in zip(own, others, strict=True))
    if usual <= 0 or sum(others) < SPAN_S or slower < _IN_STEPS * len(window):
        return 0.0
    noise = median(abs(other - usual) for other in others)
    behind = median(own) - usual
    if behind < _NOISE * noise or median(own) < SLOWER * usual:
        return 0.0
    return median(own) / usual


def _others(step: Mapping[int, float], rank: int) -> float:
    return median(seconds for other, seconds in step.items() if other != rank)
