"""What a rank is doing, in 560 bytes of shared memory that its node agent looks at.

    beat = heartbeat.of_this_rank()          # does nothing where no agent listens
    beat.section(Section.STEP)
    ... a step ...
    beat.step(12, own_s=0.8)                 # own_s: without waiting for other ranks

The rank writes (a few microseconds, no system call), the agent reads (`BeatReader`) as often as it
likes; nothing is lost when either is slow, because the last steps are kept in a ring. A rank that
says nothing for longer than its section may take is hanging (`training.cluster.hang`); its own
seconds beside those of the others tell a straggler (`training.cluster.stragglers`).

A second way to ask where a rank stands, beside py-spy: `STACK_SIGNAL` makes it write its stacks to
`<attempt>/logs/`, for hosts that let no process look into another.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import time
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

BEAT_VARIABLE = "DSM_HEARTBEAT"  # the file of this rank
STACK_VARIABLE = "DSM_STACKS"  # where STACK_SIGNAL writes to
STACK_SIGNAL = signal.SIGRTMIN + 5

RING = 32  # steps that an agent may miss between two looks
_HEAD = struct.Struct("<QQdqq")  # count, section, since (monotonic), step, changes
_STEP = struct.Struct("<qd")  # number, own seconds
_TAIL = struct.Struct("<Q")  # count once more: equal when no write is under way
_RING_AT = _HEAD.size
_TAIL_AT = _RING_AT + RING * _STEP.size
SIZE = _TAIL_AT + _TAIL.size


class Section(IntEnum):
    """What a rank does; each has a time limit of its own."""

    SETUP = 0
    STEP = 1
    CHECKPOINT = 2
    EVALUATION = 3


class Beat(NamedTuple):
    """What a rank last said."""

    section: Section
    since: float  # time.monotonic() of this machine
    step: int
    changes: int  # sections entered and steps ended so far
    steps: tuple[tuple[int, float], ...]  # (number, own seconds) of the last steps, oldest first


class Heartbeat:
    """The rank's side."""

    def __init__(self, path: Path | None) -> None:
        self._memory: mmap.mmap | None = None
        self._count = 0
        self._changes = 0
        self._section = Section.SETUP
        self._step = 0
        self._ended = 0
        self._interrupted = False  # by something that is no step, since the last one ended
        if path is not None:
            with path.open("r+b") as stream:
                self._memory = mmap.mmap(stream.fileno(), SIZE)
            self._write()

    def section(self, section: Section) -> None:
        """Enter `section`."""
        self._section = section
        self._interrupted |= section is not Section.STEP
        self._changes += 1
        self._write()

    def step(self, number: int, own_s: float | None = None) -> None:
        """Step `number` has ended; its next one begins. `own_s`: None when it is not known.

        Those of a step with a save or an evaluation in it, or right after, are not passed on: cold
        caches and flushed files make the rank that writes slow for a moment.
        """
        known, self._interrupted = not self._interrupted, False
        self._step = number
        self._changes += 1
        self._section = Section.STEP
        self._write((number, own_s) if own_s is not None and known else None)

    def _write(self, ended: tuple[int, float] | None = None) -> None:
        memory = self._memory
        if memory is None:
            return
        self._count += 1
        _HEAD.pack_into(
            memory, 0, self._count, self._section, time.monotonic(), self._step, self._changes
        )
        if ended is not None:
            _STEP.pack_into(memory, _RING_AT + (self._ended % RING) * _STEP.size, *ended)
            self._ended += 1
        _TAIL.pack_into(memory, _TAIL_AT, self._count)


class BeatReader:
    """The agent's side; creates the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as stream:
            self._memory = mmap.mmap(stream.fileno(), SIZE)

    def read(self) -> Beat | None:
        """None before the rank's first word."""
        for _ in range(3):
            data = self._memory[:]
            count, section, since, step, changes = _HEAD.unpack_from(data, 0)
            if count == _TAIL.unpack_from(data, _TAIL_AT)[0]:
                break
        if count == 0:
            return None
        ring = (_STEP.unpack_from(data, _RING_AT + at * _STEP.size) for at in range(RING))
        steps = tuple(sorted((number, own) for number, own in ring if number > 0))
        return Beat(Section(section), since, step, changes, steps)

    def close(self) -> None:
        self._memory.close()
        self.path.unlink(missing_ok=True)


@cache
def of_this_rank() -> Heartbeat:
    """The heartbeat of this process, in its first section; made once."""
    stacks = os.environ.get(STACK_VARIABLE)
    if stacks:
        # The file stays open for as long as the process lives.
        descriptor = os.open(stacks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=True)
    path = os.environ.get(BEAT_VARIABLE)
    return Heartbeat(Path(path) if path else None)
