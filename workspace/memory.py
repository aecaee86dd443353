"""Memory that the process no longer needs, given back to the system."""

from __future__ import annotations

import ctypes
import time


def trim_heap() -> None:
    """Return the heap's free pages to the system, with a C library that can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class HeapTrimmer:
    """Trims now and then the heap of a program that repeats the same work.

    Its next round wants the pages again, each by a fault: once in `every_s` seconds that is little
    of the time, however short a round is.
    """

    def __init__(self, every_s: float = 30.0) -> None:
        self._every_s = every_s
        self._trimmed = time.monotonic()

    def between_rounds(self) -> None:
        """Trim, if the last time is long enough ago."""
        if time.monotonic() - self._trimmed >= self._every_s:
            trim_heap()
            self._trimmed = time.monotonic()
