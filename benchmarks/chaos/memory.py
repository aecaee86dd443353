"""Ranks that fill their memory, and a limit that kills them as Slurm's OverMemoryKill does."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.chaos.lab import Lab, LabError, Run, ranks_of
from benchmarks.chaos.result import Result
from training.run_events import RunEvent

LIMIT = 640 << 20
LEAK = {"leak_rank": 1, "leak_bytes": 2 << 20, "step_s": 0.05}
STEPS, STEPS_SHORT = 900, 350
_LOOK_S = 0.1


class MemoryLimit:
    """Looks at the ranks of a run ten times a second, and kills who holds more than `LIMIT`.

    The one-host cluster has no control groups: this stands for its memory limit, by the
    pages that no file is behind.
    """

    def __init__(self, stage: Path) -> None:
        self.kills = 0
        self.held: list[tuple[float, int]] = []  # when, and the most of all ranks
        self._stage = stage
        self._over = threading.Event()

    def at(self, moment: float) -> int:
        """Bytes of the fullest rank when last looked at before `moment`."""
        return next((size for when, size in reversed(self.held) if when <= moment), 0)

    @contextmanager
    def kept(self) -> Iterator[MemoryLimit]:
        """Inside the block."""
        watching = threading.Thread(target=self._watch, daemon=True)
        watching.start()
        try:
            yield self
        finally:
            self._over.set()
            watching.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            sizes = {pid: _anonymous(pid) for pid in ranks_of(self._stage).values()}
            self.held.append((time.time(), max(sizes.values(), default=0)))
            for pid, size in sizes.items():
                if size > LIMIT:
                    self.kills += 1
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def leak(lab: Lab, short: bool) -> list[Result]:
    """C14: a rank keeps 2 MB of each step."""
    steps = STEPS_SHORT if short else STEPS
    watched = {"steps": steps, "memory_limit_gib": LIMIT / (1 << 30), "save_every": 100, **LEAK}
    run = lab.run("leak", watched).supervise()
    with MemoryLimit(run.stage).kept() as limit:
        run.finish()
    leaks, restarts = run.events("memory_leak"), run.events("memory_restart")
    if not leaks or not restarts:
        raise LabError(f"no alarm, or no restart:\n{run.story()}")
    alarm = max(limit.at(first.time) for first in _first_of_each_attempt(leaks)) / LIMIT
    ended = len(run.events("attempt_ended"))
    return [
        Result("held when the leak was told, share of the limit, worst", alarm, "", "< 0.8"),
        Result("killed for their memory", limit.kills, "", "= 0"),
        Result("restarts of their own accord before the limit", len(restarts), "", f"= {ended}"),
        Result("steps lost or trained twice over them", _repeated(run), "", "= 0"),
    ]


def _first_of_each_attempt(alarms: Sequence[RunEvent]) -> list[RunEvent]:
    first: dict[int, RunEvent] = {}
    for alarm in alarms:
        first.setdefault(alarm.attempt, alarm)
    return list(first.values())


def _repeated(run: Run) -> int:
    """Steps more or fewer in the ledger than there are."""
    trained = [line["step"] for line in run.ledger()]
    missing = set(range(1, run.config.settings.steps + 1)) - set(trained)
    return len(trained) - len(set(trained)) + len(missing)


def _anonymous(pid: int) -> int:
    """Bytes that no file is behind."""
    try:
        _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):  # it has ended
        return 0
    return (int(resident) - int(of_files)) * os.sysconf("SC_PAGE_SIZE")
