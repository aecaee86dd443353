"""Memory that the process no longer needs, given back to the system."""

from __future__ import annotations

import ctypes


def trim_heap() -> None:
    """Return the heap's free pages to the system, with a C library that can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
