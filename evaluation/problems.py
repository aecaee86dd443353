"""The test rows of a data set as problems of the benchmarks, and what is kept of each answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from evaluation.benchmarks import BENCHMARKS
from workspace.ids import derive_id
from workspace.shards import iterate_rows

ROW_COLUMNS: Final = (
    "row_id", "kind", "setting", "task", "difficulty", "prompt_json", "answer", "verifier",
    "ground_truth", "fact_id", "form", "doc_ids", "page",
)  # fmt: skip

# One row per answer; the problem's own columns are repeated, so that the file stands alone.
SAMPLES: Final = pa.schema(
    [
        ("benchmark", pa.string()),
        ("row_id", pa.string()),
        ("model", pa.string()),
        ("sample", pa.int32()),  # 0 .. n-1, of the same problem and model
        ("answer", pa.string()),  # as the model wrote it
        ("score", pa.float64()),  # null: no verdict
        ("outcome", pa.string()),  # evaluation.verifiers.verdict
        ("detail", pa.string()),
        ("mentions", pa.bool_()),  # the reference stands in the answer as whole words
        ("task", pa.string()),
        ("difficulty", pa.int32()),
        ("prompt", pa.string()),
        ("reference", pa.string()),
        ("verifier", pa.string()),
        ("cluster", pa.string()),  # problems of one fact share it
        ("document", pa.string()),  # name of the first source document
        ("page", pa.int32()),
    ]
)


class Problems(NamedTuple):
    """Rows by benchmark, and test rows that no benchmark takes."""

    by_benchmark: dict[str, list[dict[str, Any]]]
    without_benchmark: int


def read_problems(
    dataset: Path, benchmarks: Sequence[str], *, limit: int | None, seed: int
) -> Problems:
    """The problems of each benchmark, sorted by row id; `limit` takes a seeded choice of each."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in benchmarks}
    homeless = 0
    for row in iterate_rows(dataset, "rows", ROW_COLUMNS):
        if row["kind"] != "test":
            continue
        takers = [b.name for b in BENCHMARKS.values() if b.takes(row)]
        homeless += not takers
        for name in takers:
            if name in found:
                found[name].append(row)
    for name, rows in found.items():
        rows.sort(key=lambda row: derive_id(seed, row["row_id"]))
        found[name] = sorted(rows[:limit], key=lambda row: str(row["row_id"]))
    return Problems(found, homeless)


def prompt_text(row: dict[str, Any]) -> str:
    """The prompt's messages as one text for people."""
    messages = json.loads(row["prompt_json"])
    return "\n\n".join(str(message["content"]) for message in messages)


def cluster_of(row: dict[str, Any]) -> str:
    """What is resampled together: the fact where there is one, else the problem."""
    return str(row["fact_id"] or row["row_id"])
