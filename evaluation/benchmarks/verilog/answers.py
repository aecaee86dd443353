"""Answers made elsewhere (JSONL in), verdicts (JSONL out).

In, one JSON object a line: `task_id`, `sample` (a number), `answer` (the model's text). Out, one a
line: `task_id`, `sample`, `verdict` (`pass`, or why not), `detail`, `official`, `key`, `output`,
`sandbox`, `benchmark`.

Verdicts are appended while they come, so that a killed run continues: a line counts again when its
`key`, a hash of everything it depends on, is still the same. At the end the file is put in order.
A run holds a lock on its file, and refuses one with the verdicts of another benchmark.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from workspace import publish
from workspace.errors import UserError, WorkspaceBusyError

MAX_LINE_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Answer(NamedTuple):
    """One sample of one problem."""

    task_id: str
    sample: int
    text: str


class VerdictLine(NamedTuple):
    """One line of the verdicts. `official` is "pass", upstream's reason, or "" without upstream.

    `output` is the end of what compiler and simulator printed; `sandbox` the level at which they
    ran, which is part of `key`. The last two are "" in a file of an earlier version.
    """

    task_id: str
    sample: int
    verdict: str
    detail: str
    official: str
    key: str
    output: str = ""
    sandbox: str = ""
    benchmark: str = ""


def read_answers(path: Path, known: Collection[str]) -> list[Answer]:
    """All answers, in the file's order. `UserError` names the line and what is wrong with it."""
    if not path.exists() or path.is_dir():  # a pipe will do
        raise UserError(f"{path} is no file: give a JSONL file of task_id, sample, answer")
    seen: dict[tuple[str, int], int] = {}
    answers: list[Answer] = []
    with path.open("rb") as stream:
        lines = iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, 1):
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
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
        row: Any = json.loads(line.decode("utf-8", "replace"), object_pairs_hook=_each_once)
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


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


class Verdicts:
    """The verdicts of `benchmark` while a run goes on, in the file `path`. One writer.

    Without a file they are in memory alone; a killed run then goes on from the cache.
    Raises `UserError` for a file that is none of this benchmark's verdicts, `WorkspaceBusyError`
    while another run writes it.
    """

    def __init__(self, path: Path | None = None, benchmark: str = "") -> None:
        self.path = path.resolve() if path else None
        self.benchmark = benchmark
        self.known: dict[tuple[str, int], VerdictLine] = {}
        self._lock = ExitStack()
        self._locked = False
        if self.path is not None and self.path.exists():
            self._open(self.path)

    def close(self) -> None:
        """Let others write the file."""
        self._lock.close()

    def _open(self, path: Path) -> None:
        """Lock the file, which may be a new one, and read it."""
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is no file: give another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = self._lock.enter_context(path.open("ab"))
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkspaceBusyError(
                f"another run writes {path}: wait for it, or give another --out"
            ) from None
        self._locked = True
        self._read(path)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                verdict = _parse_verdict(line)
            except (ValueError, TypeError) as error:
                raise _no_verdict(path, number) from error
            if verdict.benchmark not in ("", self.benchmark):
                raise UserError(
                    f"{path} holds the verdicts of {verdict.benchmark}: give another --out, or "
                    "remove the file"
                )
            self.known[verdict.task_id, verdict.sample] = verdict
        torn = data[whole:]
        if torn[: len(_START)] != _START[: len(torn)]:
            raise _no_verdict(path, data.count(b"\n") + 1)
        if torn:  # by a kill
            with path.open("r+b") as stream:
                stream.truncate(whole)

    def add(self, lines: Iterable[VerdictLine]) -> None:
        """Append. A kill of this process loses nothing; `finish` makes it durable."""
        added = list(lines)
        if self.path is not None:
            if not self._locked:
                self._open(self.path)
            publish.append(self.path, "".join(map(_text, added)).encode())
        self.known.update({(line.task_id, line.sample): line for line in added})

    def finish(self, lines: Iterable[VerdictLine]) -> None:
        """Publish the verdicts of this run alone, in order."""
        assert self.path is not None, "has a file"
        publish.write_text(self.path, "".join(map(_text, lines)))


def _parse_verdict(line: bytes) -> VerdictLine:
    verdict = VerdictLine(**json.loads(line))
    for name, value in verdict._asdict().items():
        if type(value) is not (int if name == "sample" else str):
            raise TypeError(name)
    return verdict


_START = b'{"task_id": "'  # of each line


def _no_verdict(path: Path, number: int) -> UserError:
    return UserError(
        f"{path}, line {number}, is no verdict of this program: give another --out, or remove the "
        "file"
    )


def _text(line: VerdictLine) -> str:
    return json.dumps(line._asdict()) + "\n"
