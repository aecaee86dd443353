"""CPU seconds of this process by step of the work, for finding slow documents and slow steps.

    clock.restart()
    with clock.measure("render"): ...
    clock.read()            {"render": 0.031, "other": 0.002}

Counted is user and system time of the process, all its threads, and the programs that it started
and waited for. A step inside another takes its time away from the outer one, so that the figures
add up. One clock a process: parsers that measure a step use `CLOCK` below. Not thread-safe.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

Step = Literal[
    "parse",  # a whole document that is not read page by page
    "text",
    "render",
    "images",
    "tables",  # with the layout model
    "ocr",
    "structure",  # pages joined to a document
    "summaries",
    "chunks",
    "fingerprints",  # for finding duplicates
    "write",
]
OTHER: Final = "other"  # opening, sniffing, imports
LOST: Final = "lost"  # in children that died or were killed


class StepClock:
    """Attributes CPU time to the innermost open step."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was counted."""
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._open: list[str] = [OTHER]
        self._since = cpu_seconds()

    @contextmanager
    def measure(self, step: Step) -> Iterator[None]:
        """Count the block's CPU time as `step`."""
        self._charge()
        self._open.append(step)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def read(self) -> dict[str, float]:
        """CPU seconds by step since the restart, in microseconds' resolution."""
        self._charge()
        return {step: round(spent, 6) for step, spent in sorted(self._spent.items())}

    def _charge(self) -> None:
        now = cpu_seconds()
        self._spent[self._open[-1]] += now - self._since
        self._since = now


def cpu_seconds() -> float:
    """User and system seconds of this process and of its ended children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


CLOCK: Final = StepClock()
