"""Whether a process still does anything: one that was killed may stay listed until it is reaped."""

from __future__ import annotations

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def ends_soon(pid: int, *, within_s: float = 30.0) -> bool:
    """Whether the process is gone, at once or after a while: the kernel kills without waiting."""
    deadline = time.monotonic() + within_s
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
