"""What happened to a run, in plain words: append-only `events.jsonl`.

    runs/<run>/events.jsonl                            the whole story, written by the supervisor
    runs/<run>/<stage>/attempts/<n>/events.jsonl       what the job itself saw (training.cluster)

A line: time, stage, attempt, generation of ranks, event, nodes, detail, and where a program wants
more than words, facts. The supervisor copies a job's lines into the run's file; `line` says which
line of the job's file it was (0: the supervisor's own), so a supervisor that starts again copies
none twice. One writer at a time for each file, since a shared file system may interleave more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from workspace import publish

EVENTS_NAME = "events.jsonl"


@dataclass(frozen=True)
class RunEvent:
    """One line. `time` is in seconds of the epoch."""

    time: float
    event: str
    detail: str = ""
    stage: str = ""
    attempt: int = 0
    generation: int = 0
    nodes: tuple[str, ...] = ()
    line: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


class EventLog:
    """A file of events, and the place of what is written to it."""

    def __init__(self, path: Path, *, stage: str = "", attempt: int = 0) -> None:
        self.path = path
        self.stage = stage
        self.attempt = attempt

    def say(
        self,
        event: str,
        detail: str = "",
        *,
        generation: int = 0,
        nodes: tuple[str, ...] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a line of now."""
        self.add(
            RunEvent(
                time.time(), event, detail, self.stage, self.attempt, generation, nodes, 0,
                facts or {},
            )
        )  # fmt: skip

    def add(self, event: RunEvent) -> None:
        """Add a line; it is in the operating system's hands when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(event), ensure_ascii=False) + "\n"
        # One write: a reader never sees half a line of a writer that lives.
        with publish.naming(self.path), self.path.open("ab", buffering=0) as stream:
            stream.write(line.encode("utf-8", "replace"))

    def copy_from(self, job_events: list[RunEvent], known: int) -> int:
        """Add the job's events after line `known`; returns how many lines are known now."""
        for number, event in enumerate(job_events, 1):
            if number > known:
                self.add(replace(event, stage=self.stage, attempt=self.attempt, line=number))
        return max(known, len(job_events))


def read_events(path: Path) -> list[RunEvent]:
    """All whole lines, oldest first."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = data[: data.rfind(b"\n") + 1]
    return [event for line in whole.splitlines() if (event := _parse(line))]


class EventFollower:
    """Reads a growing file of events piece by piece, from its end at the time of creation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = max(0, changed(path, 0))

    def new(self) -> list[RunEvent]:
        """Events written since the last call. A torn last line waits for its end."""
        if changed(self.path, self._offset) < 0:
            return []
        with self.path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _parse(line))]


def copied_lines(path: Path, stage: str, attempt: int) -> int:
    """How many lines of an attempt's own file the run's file at `path` holds."""
    return max(
        (e.line for e in read_events(path) if (e.stage, e.attempt) == (stage, attempt)), default=0
    )


def described(event: RunEvent) -> str:
    """For people: what happened, where, and the detail."""
    where = f" on {', '.join(event.nodes)}" if event.nodes else ""
    return f"{event.event.replace('_', ' ')}{where}" + (f": {event.detail}" if event.detail else "")


def changed(path: Path, before: int) -> int:
    """The file's size now (0 when it is not there); -1 when it is still `before`."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - one call
    except FileNotFoundError:
        size = 0
    return -1 if size == before else size


def _parse(line: bytes) -> RunEvent | None:
    # A machine that lost power may leave a torn or empty block in an appended file.
    try:
        values = json.loads(line)
        return RunEvent(**{**values, "nodes": tuple(values.get("nodes", ()))})
    except (ValueError, TypeError, AttributeError):
        return None
