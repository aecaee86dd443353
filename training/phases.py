"""What a trainer does beside its steps, on disk: one JSON line per load, save, evaluation and
publication.

    runs/<run>/<stage>/attempts/<n>/phases.jsonl       appended by rank 0

    with timed(spec.attempt_dir, "publish"):
        model.save_pretrained(folder)

Read by the accountant (`training.goodput`), which needs to know where the time of a job went.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

PHASES_NAME = "phases.jsonl"

PhaseName = Literal["load", "checkpoint", "evaluation", "publish"]


@dataclass(frozen=True)
class Phase:
    """A stretch of time in which no step was trained.

    load: a rank's process before its first step (libraries, rows, model, checkpoint);
    checkpoint: the steps wait for a save; evaluation: the loss on unseen rows, and answers to some
    of them; publish: the stage's result is written.
    """

    phase: PhaseName
    ended: float  # seconds of the epoch
    seconds: float


def append(attempt_dir: Path, phase: PhaseName, seconds: float) -> None:
    """Note a phase that ends now."""
    line = json.dumps(asdict(Phase(phase, time.time(), seconds)))
    with (attempt_dir / PHASES_NAME).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


@contextmanager
def timed(attempt_dir: Path, phase: PhaseName) -> Iterator[None]:
    """Note the block as a phase when it ends well."""
    started = time.monotonic()
    yield
    append(attempt_dir, phase, time.monotonic() - started)


def process_age_s() -> float:
    """Seconds since this process was started."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    # Field 22 of proc(5): clock ticks from the boot to the start.
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def read_phases(attempt_dir: Path) -> list[Phase]:
    """All whole lines, oldest first."""
    try:
        data = (attempt_dir / PHASES_NAME).read_bytes()
    except FileNotFoundError:
        return []
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return [phase for line in lines if (phase := _parse(line))]


def _parse(line: bytes) -> Phase | None:
    # A machine that lost power may leave a torn or empty block in an appended file.
    try:
        return Phase(**json.loads(line))
    except (ValueError, TypeError):
        return None
