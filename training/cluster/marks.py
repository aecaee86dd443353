"""Processes of jobs, found by the mark that every process of a job has in its environment.

A child inherits it even when it leaves its parent, its session and, under Slurm's
`proctrack/linuxproc`, its job. Others' processes cannot be read and are not ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = "DSM_ATTEMPT_DIR"  # in the environment of every process of a job

Environment = dict[str, str]


def marked(wanted: Callable[[Environment], bool]) -> Iterator[int]:
    """Processes with a mark whose environment is `wanted`, this one not."""
    needle = f"{MARK}=".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        # Processes come and go, and others' are not ours to read.
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            pid = int(path.parent.name)
            if needle in data and pid != os.getpid() and wanted(_parse(data)):
                yield pid


def end(find: Callable[[], Iterator[int]], within_s: float = 5.0) -> list[int]:
    """SIGKILL what `find` finds, until it finds nothing more; returns whom."""
    ended: set[int] = set()
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = list(find())
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= set(found)
        time.sleep(0.05)
    return sorted(ended)


def _parse(data: bytes) -> Environment:
    pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}
