"""A shard's rows and report in the work folder, until `publish` merges them.

The report is written last, so a shard that was killed half way is done again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from training.data.rows import Tally
from training.data.schema import ROWS
from workspace.publish import write_json
from workspace.shards import Row, iterate_files, write_table
from workspace.stage import ShardReport


class ShardWork(NamedTuple):
    report: ShardReport
    files: tuple[Path, ...]

    def rows(self) -> Iterator[Row]:
        """The candidate rows."""
        return iterate_files(self.files)


def save_shard(
    work: Path, index: int, rows: list[Row], tally: Tally, seconds: float
) -> ShardReport:
    """Write the rows, then the report."""
    files = write_table(work, "candidates", ROWS, rows, prefix=f"shard-{index:05d}")
    value = {
        **tally.to_json(),
        "seconds": round(seconds, 3),
        "files": [entry.path for entry in files],
    }
    write_json(_report(work, index), value)
    return _load(work, index).report


def load_shard(work: Path, index: int) -> ShardWork | None:
    """What `save_shard` wrote, or None."""
    return _load(work, index) if _report(work, index).exists() else None


def _load(work: Path, index: int) -> ShardWork:
    value = json.loads(_report(work, index).read_text(encoding="utf-8"))
    report = ShardReport(index, value["counts"], value["rejects"], value["seconds"])
    return ShardWork(report, tuple(work / path for path in value["files"]))


def _report(work: Path, index: int) -> Path:
    return work / f"shard-{index:05d}.json"
