"""Answers as they come: an append-only JSONL file, so that a kill loses at most one batch.

A torn last line (the process died while writing) is dropped on reading; everything before it
counts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple


class AnswerKey(NamedTuple):
    """One answer of a shard: the problem's row and which of its samples."""

    row_id: str
    sample: int


class Journal:
    """Answers by key, on disk. One writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[AnswerKey, str] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            row_id, sample, answer = json.loads(line)
            self.answers[AnswerKey(row_id, sample)] = answer
        if whole < len(data):
            with self.path.open("r+b") as stream:
                stream.truncate(whole)

    def append(self, answers: dict[AnswerKey, str]) -> None:
        """Add a batch and make it durable."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(
            json.dumps([key.row_id, key.sample, answer]) + "\n" for key, answer in answers.items()
        )
        with self.path.open("ab") as stream:
            stream.write(lines.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self.answers.update(answers)
