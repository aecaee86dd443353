"""What ends a stage before its steps are done: hours used up, a loss that no longer falls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from training import metrics
from training.trainers.spec import TrainSpec
from training.trainers.stopping import any_rank


class HourLimit:
    """The stage's `max_hours`, counted over its attempts: steps, saves and evaluations."""

    def __init__(self, spec: TrainSpec) -> None:
        self._limit_s = spec.settings.max_hours * 3600
        self._before_s = metrics.seconds_spent(spec.stage_dir) if self._limit_s else 0.0
        self._since = time.monotonic()

    def start(self) -> None:
        """Training begins now."""
        self._since = time.monotonic()

    def is_up(self) -> bool:
        """Whether the time is used up on any rank. All ranks must call it at the same step."""
        if not self._limit_s:
            return False
        return any_rank(self._before_s + time.monotonic() - self._since >= self._limit_s)


def evaluations_without_gain(losses: Sequence[float]) -> int:
    """How many evaluations came after the one with the lowest loss (the first of equal ones)."""
    if not losses:
        return 0
    best = min(range(len(losses)), key=lambda at: losses[at])
    return len(losses) - 1 - best
