"""Answers made elsewhere (JSONL in), verdicts (JSONL out).

In, one JSON object a line: `task_id`, `sample` (a number), `answer` (the model's text). Out, one a
line: `task_id`, `sample`, `verdict` (`pass`, or why not), `detail`, `official`, `key`, `output`,
`sandbox`.

Verdicts are appended while they come, so that a killed run continues: a line counts again when its
`key`, a hash of everything it depends on, is still the same. At the end the file is put in order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from workspace import publish
from workspace.errors import UserError

MAX_LINE_BYTES = 16 << 20


class Answer(NamedTuple):
    """One sample of one problem."""

    task_id: str
    sample: int
    text: str


class VerdictLine(NamedTuple):
    """One line of the verdicts. `official` is "pass", upstream's reason, or "" without upstream.

    `output` is the end of what compiler and simulator printed; `sandbox` the level at which they
    ran, which is part of `key`.
    """

    task_id: str
    sample: int
    verdict: str
    detail: str
    official: str
    key: str
    output: str = ""
    sandbox: str = ""  # "" in a file of an earlier version


def read_answers(path: Path, known: Collection[str]) -> list[Answer]:
    """All answers, in the file's order. `UserError` names the line and what is wrong with it."""
    if not path.exists() or path.is_dir():  # a pipe will do
        raise UserError(f"{path} is no file: give a JSONL file of task_id, sample, answer")
    seen: dict[tuple[str, int], int] = {}
    answers: list[Answer] = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            answer = _parse(line, f"{path}, line {number}")
            if answer.task_id not in known:
                raise UserError(
                    f"{path}, line {number}: no problem {answer.task_id!r} in this benchmark; "
                    f"names are upstream's, for example {min(known)!r}"
                )
            first = seen.setdefault((answer.task_id, answer.sample), number)
            if first != number:
                raise UserError(
                    f"{path}, line {number}: sample {answer.sample} of {answer.task_id} is there "
                    f"already, in line {first}; give each sample its own number"
                )
            answers.append(answer)
    if not answers:
        raise UserError(f"{path} holds no answers")
    return answers


def _parse(line: bytes, where: str) -> Answer:
    if len(line) > MAX_LINE_BYTES:
        raise UserError(f"{where}: more than {MAX_LINE_BYTES} bytes")
    try:
        row: Any = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is wanted, with task_id, sample, answer")
    for key, kind, name in (("task_id", str, "text"), ("answer", str, "text"),
                            ("sample", int, "whole number")):  # fmt: skip
        value = row.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{where}: {key!r} must be a {name}")
    if row["sample"] < 0:
        raise UserError(f"{where}: 'sample' must not be negative")
    return Answer(row["task_id"], row["sample"], row["answer"])


class Verdicts:
    """The verdicts' file while a run goes on. One writer.

    Without a file they are in memory alone; a killed run then goes on from the cache.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.known: dict[tuple[str, int], VerdictLine] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                verdict = VerdictLine(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise UserError(
                    f"{path}, line {number}, is no verdict of this program: "
                    "give another --out, or remove the file"
                ) from error
            self.known[verdict.task_id, verdict.sample] = verdict
        if whole < len(data):  # a line that a kill tore
            with path.open("r+b") as stream:
                stream.truncate(whole)

    def add(self, lines: Iterable[VerdictLine]) -> None:
        """Append. A kill of this process loses nothing; `finish` makes it durable."""
        added = list(lines)
        if self.path is not None:
            publish.append(self.path, "".join(map(_text, added)).encode())
        self.known.update({(line.task_id, line.sample): line for line in added})

    def finish(self, lines: Iterable[VerdictLine]) -> None:
        """Publish the verdicts of this run alone, in order."""
        assert self.path is not None, "has a file"
        publish.write_text(self.path, "".join(map(_text, lines)))


def _text(line: VerdictLine) -> str:
    return json.dumps(line._asdict()) + "\n"
