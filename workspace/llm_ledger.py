"""What endpoints cost: `ledger.jsonl`, one JSON line a request, appended by any process.

A line is written under a file lock and fsynced. A crash can leave half a line at the end: readers
pass over it, and the next writer begins a new one.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from workspace.manifest import now


@dataclass(frozen=True)
class Entry:
    """One answered request; `cost` in the currency of the prices."""

    purpose: str
    model: str
    request: str
    tokens_in: int
    tokens_out: int
    cost: float
    is_estimate: bool = False  # the endpoint told no usage


class Ledger:
    """Append, and sum up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._spent: dict[str, float] = {}

    def append(self, entry: Entry) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({**asdict(entry), "time": now()}, sort_keys=True).encode() + b"\n"
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" + line if is_torn else line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def spent(self, purpose: str | None = None) -> float:
        """Money so far, of all purposes or one; reads only what was added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    self._add(line)
        except FileNotFoundError:
            return 0.0
        if purpose is not None:
            return self._spent.get(purpose, 0.0)
        return sum(self._spent.values())

    def _add(self, line: bytes) -> None:
        try:
            value = json.loads(line)
            purpose, cost = str(value["purpose"]), float(value["cost"])
        except (ValueError, KeyError, TypeError):
            return  # the half line of a crash
        self._spent[purpose] = self._spent.get(purpose, 0.0) + cost
