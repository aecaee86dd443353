"""Time in which a process of a job did not run: it was suspended, or its host was starved.

Slurm stops all processes of a suspended job (`scontrol suspend`, gang scheduling, preemption with
`PreemptMode=SUSPEND`) and lets them go on later, on each node at a slightly other moment. Limits on
silence are no longer what they were then: whoever watches others leaves that time out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STOOD_STILL: Final = "stood_still"  # in the job's events, with `seconds`
LEAST_S: Final = 2.0  # between two rounds of a loop that takes a tenth of a second


class Standstill:
    """Of a loop whose rounds are short. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def seconds(self) -> float:
        """Since the last round, when that is longer than any round takes; else 0."""
        before, self._last = self._last, self._clock()
        return gap if (gap := self._last - before) >= LEAST_S else 0.0

    def skip(self) -> None:
        """What was done since the last round may have taken its time."""
        self._last = self._clock()
