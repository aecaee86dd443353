"""How often to save: every so many steps, or as rarely as loses the least time.

A save costs `d` seconds and a failure half an interval's work on average, so with a failure every
`M` seconds the share of lost time, d/T + T/2M, is least at T = sqrt(2 d M) (Young 1974; Daly 2006
has it as the first-order term). `d` is what a save keeps training waiting; it is measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median

from workspace import publish

SAVE_INTERVAL_NAME = "save_interval.json"  # in the stage's folder
FIRST_SAVE_STEPS = 3  # until the first save, which is measured
_REMEMBERED = 50  # steps whose median is the time of a step


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Seconds between saves that lose the least time."""
    return math.sqrt(2 * save_s * mtbf_s)


class SaveSchedule:
    """Decides in which steps to save. Ranks must be asked and told the same things in step.

    `agree` makes rank 0's number everybody's. `record` is where the choice is written (by the rank
    that is given `writes`) and read from by the next attempt.
    """

    def __init__(
        self,
        every_steps: int,
        mtbf_s: float,
        record: Path,
        *,
        writes: bool = True,
        agree: Callable[[float], float] = lambda number: number,
    ) -> None:
        self._fixed = every_steps
        self._mtbf_s = mtbf_s
        self._record = record
        self._writes = writes
        self._agree = agree
        self._steps_s: list[float] = []
        self._last_save: int | None = None
        self._interval = 0 if every_steps else _recorded_interval(record)

    @property
    def interval_steps(self) -> int:
        """Steps between saves; `FIRST_SAVE_STEPS` until a save was measured."""
        return self._fixed or self._interval or FIRST_SAVE_STEPS

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether to save after `step`, which took `seconds`."""
        if self._fixed:
            return step % self._fixed == 0
        self._steps_s = [*self._steps_s[1 - _REMEMBERED :], seconds]
        if self._last_save is None:
            self._last_save = step - 1
        return step - self._last_save >= self.interval_steps

    def saved(self, step: int, seconds: float) -> None:
        """A save after `step` kept training waiting for `seconds`."""
        if self._fixed:
            return
        self._last_save = step
        step_s = max(median(self._steps_s or [seconds]), 1e-6)
        interval_s = young_interval_s(seconds, self._mtbf_s)
        self._interval = round(self._agree(max(1.0, interval_s / step_s)))
        if self._writes:
            publish.write_json(
                self._record,
                {
                    "interval_steps": self._interval,
                    "interval_s": round(self._interval * step_s, 3),
                    "save_s": round(seconds, 3),
                    "step_s": round(step_s, 6),
                    "mtbf_s": self._mtbf_s,
                    "measured_at_step": step,
                },
            )


def _recorded_interval(record: Path) -> int:
    try:
        return int(json.loads(record.read_text(encoding="utf-8"))["interval_steps"])
    except FileNotFoundError:
        return 0
