"""How long each document took: CPU seconds by step, beside the tables and never in them.

In: what the scheduler says at each document's end, kept in a log that survives a kill. Out:
`timings-<key>.jsonl`, a line per document in order of doc_id:

    {"doc_id": "…", "cpu_s": {"render": 0.41, "text": 0.09, "total": 0.5}}

The steps are those of `corpus.step_clock`. Documents kept from an earlier run keep their line.
Work on a document that a kill interrupted is not counted. The figures differ from run to run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from workspace import publish
from workspace.manifest import Manifest

CpuSeconds = dict[str, float]  # step -> seconds; "total" is their sum
TOTAL: Final = "total"
_PREFIX: Final = "timings-"


class TimingLog:
    """Appends a line for each finished document to a file of its own. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"cpu-{time.time_ns()}.jsonl"

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = self._path.open("x", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, doc_id: str, cpu_s: Mapping[str, float]) -> None:
        self._file.write(_line(doc_id, cpu_s))
        self._file.flush()


def read_logs(folder: Path) -> dict[str, CpuSeconds]:
    """Seconds by document from all logs under `folder`; the latest line of a document counts."""
    found: dict[str, CpuSeconds] = {}
    for path in sorted(folder.glob("cpu-*.jsonl")):
        *whole, _torn = path.read_text(encoding="utf-8").split("\n")
        found.update(map(_parse, whole))
    return found


def read(folder: Path, manifest: Manifest) -> dict[str, CpuSeconds]:
    """Seconds by document of a published corpus; empty for one made before they were kept."""
    found: dict[str, CpuSeconds] = {}
    for entry in manifest.files:
        if entry.path.startswith(_PREFIX):
            lines = (folder / entry.path).read_text(encoding="utf-8").splitlines()
            found.update(map(_parse, lines))
    return found


def write(folder: Path, key: str, seconds: Mapping[str, CpuSeconds]) -> Path:
    """Publish the file for the manifest `key`."""
    path = folder / f"{_PREFIX}{key[:8]}.jsonl"
    text = "".join(_line(doc_id, cpu_s) for doc_id, cpu_s in sorted(seconds.items()))
    publish.write_text(path, text)
    return path


def remove_old(folder: Path, keep: Path) -> None:
    """Remove the files of earlier manifests."""
    for path in folder.glob(f"{_PREFIX}*.jsonl"):
        if path != keep:
            path.unlink()


def sum_steps(seconds: Iterable[Mapping[str, float]]) -> CpuSeconds:
    """The sum over documents, by step and in all."""
    summed: Counter[str] = Counter()
    for cpu_s in seconds:
        summed.update(cpu_s)
    return {step: round(spent, 3) for step, spent in sorted(summed.items())}


def _line(doc_id: str, cpu_s: Mapping[str, float]) -> str:
    steps = {step: round(spent, 4) for step, spent in cpu_s.items() if step != TOTAL}
    value = {"doc_id": doc_id, "cpu_s": {**steps, TOTAL: round(sum(steps.values()), 4)}}
    return json.dumps(value, sort_keys=True) + "\n"


def _parse(line: str) -> tuple[str, CpuSeconds]:
    value: dict[str, Any] = json.loads(line)
    return value["doc_id"], value["cpu_s"]
