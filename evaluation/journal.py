"""Answers as they come: an append-only JSONL file, so that a kill loses at most one batch.

A damaged line (the process died, or the disk filled, while writing) is dropped on reading and its
answer is asked for again; every other line counts.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final, NamedTuple

from workspace import publish

_LOG: Final = logging.getLogger(__name__)


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
        lines = data[:whole].split(b"\n")[:-1]
        for number, line in enumerate(lines, 1):
            try:
                key, answer = _parse(line)
            except ValueError:
                _LOG.warning("%s, line %d is damaged: its answer is made again", self.path, number)
            else:
                self.answers[key] = answer
        if whole < len(data):
            _LOG.warning("%s, line %d is torn: its answer is made again", self.path, len(lines) + 1)
            with self.path.open("r+b") as stream:
                stream.truncate(whole)

    def append(self, answers: dict[AnswerKey, str]) -> None:
        """Add a batch and make it durable. After a failure (`OSError`) none of it is there."""
        lines = "".join(
            json.dumps([key.row_id, key.sample, answer]) + "\n" for key, answer in answers.items()
        )
        publish.append(self.path, lines.encode(), durable=True)
        self.answers.update(answers)


def _parse(line: bytes) -> tuple[AnswerKey, str]:
    """`ValueError` for anything but a line that `append` wrote."""
    found: Any = json.loads(line)
    match found:
        case [str(row_id), int(sample), str(answer)]:
            return AnswerKey(row_id, sample), answer
    raise ValueError("no row id, sample and answer")
