"""What is asked: the problems of each benchmark that a user names.

    read_problem_sets(workspace, "dsm", ("closed_book", "rtllm_v1.1=DIR"), limit=None, seed=0)

| given as | problems |
|---|---|
| `domain_qa_open_book`, `closed_book`, `table_qa`, ... | test rows of the data set |
| `rtllm_v1.1=DIR`, `verilog_eval_v1_human=DIR`, ... | a public benchmark, in upstream's layout |
| `NAME=FILE.jsonl` | your own problems (`benchmarks/local_set`) |
| `NAME=DIR` | an lm-eval task whose YAML lies in DIR |
| `NAME` | a task of lm-eval's own, such as `arc_easy` |
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from evaluation.benchmarks import BENCHMARKS, SHORT_NAMES
from evaluation.benchmarks.choices import Choosing, choices_apart
from evaluation.benchmarks.harness_tasks import read_harness_set, task_manager
from evaluation.benchmarks.local_set.reader import read_local_set
from evaluation.benchmarks.problem_set import ProblemSet, choose, hash_rows
from evaluation.benchmarks.verilog.public_set import PUBLIC, read_public_set
from evaluation.verifiers import VERSION
from workspace.errors import UserError
from workspace.manifest import require_manifest
from workspace.paths import Workspace, safe_name
from workspace.shards import iterate_rows

ROW_COLUMNS: Final = (
    "row_id", "kind", "setting", "task", "difficulty", "prompt_json", "answer", "verifier",
    "ground_truth", "fact_id", "form", "doc_ids", "table_id", "page",
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
        ("official", pa.string()),  # upstream's own verdict: pass or why not; null: has none
        ("output", pa.string()),  # the end of what compiler and simulator printed
        ("normalised", pa.float64()),  # score of the likeliest choice for its length; null: none
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


class Wanted(NamedTuple):
    """A benchmark as a user names it."""

    name: str
    source: Path | None


class Problems(NamedTuple):
    """Problem sets in the order asked for, and test rows that no benchmark takes.

    `dataset_key` is empty when no set is made of rows of the data set.
    """

    sets: tuple[ProblemSet, ...]
    without_benchmark: int
    dataset_key: str
    empty: tuple[str, ...]  # benchmarks that the data set has no rows for


def parse_wanted(text: str) -> Wanted:
    """`NAME` or `NAME=PATH`. Raises `UserError` for what can be seen to be wrong."""
    given, separator, place = text.partition("=")
    name = SHORT_NAMES.get(given, given)
    safe_name(name)
    if separator and not place:
        raise UserError(f"{text!r}: no path follows the =")
    if separator and name in BENCHMARKS:
        raise UserError(f"{text!r}: {name} is made of the data set's rows and takes no path")
    if not separator and name in PUBLIC:
        raise UserError(f"{name}: give the place of upstream's files, {name}=DIR")
    return Wanted(name, Path(place).expanduser() if separator else None)


def read_problem_sets(
    workspace: Workspace,
    dataset: str,
    benchmarks: Sequence[str],
    *,
    limit: int | None,
    seed: int,
    choosing: Choosing = "generation",
) -> Problems:
    """The problems of each benchmark, sorted by row id; `limit` takes a seeded choice of each.

    `choosing` says how questions with choices are asked (`benchmarks.choices`).
    Raises `UserError` (`MissingInputError` without a data set) naming what is missing.
    """
    wanted = [parse_wanted(text) for text in benchmarks]
    of_rows = [one.name for one in wanted if one.name in BENCHMARKS]
    rows, homeless, key = _read_rows(workspace, dataset, of_rows)
    sets: list[ProblemSet] = []
    for name, source in wanted:
        if name in BENCHMARKS:
            found = choose(rows[name], limit, seed)
            if found:
                made = ProblemSet(
                    BENCHMARKS[name],
                    found,
                    hash_rows(found),
                    VERSION,
                    verdicts=workspace.verilog_cache,
                )
                sets.append(made)
        elif source is not None and not source.exists():
            raise UserError(f"benchmark {name}: {source} does not exist")
        elif name in PUBLIC and source is not None:
            cache = workspace.verilog_cache
            sets.append(read_public_set(name, source, limit=limit, seed=seed, cache=cache))
        elif source is not None and source.is_file():
            cache = workspace.verilog_cache
            sets.append(read_local_set(name, source, limit=limit, seed=seed, cache=cache))
        else:
            _refuse_misspelt(name, source)
            sets.append(read_harness_set(name, source, limit=limit, seed=seed))
    if choosing == "likelihood":
        sets = choices_apart(sets)
    empty = tuple(name for name in of_rows if not rows[name])
    return Problems(tuple(sets), homeless, key, empty)


def _refuse_misspelt(name: str, source: Path | None) -> None:
    ours = [*BENCHMARKS, *SHORT_NAMES, *PUBLIC]
    close = difflib.get_close_matches(name, ours, n=1)
    if close and name not in task_manager(source).all_tasks:
        raise UserError(f"no benchmark {name!r}: did you mean {close[0]}?")


def _read_rows(
    workspace: Workspace, dataset: str, names: Sequence[str]
) -> tuple[dict[str, list[dict[str, Any]]], int, str]:
    """Rows by benchmark, how many test rows no benchmark takes, and the data set's key."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    if not names:
        return found, 0, ""
    folder = workspace.dataset(dataset)
    manifest = require_manifest(folder, made_by="build_datasets")
    homeless = 0
    for row in iterate_rows(folder, "rows", ROW_COLUMNS):
        if row["kind"] != "test":
            continue
        takers = [b.name for b in BENCHMARKS.values() if b.takes(row)]
        homeless += not takers
        for name in takers:
            if name in found:
                found[name].append(row)
    return found, homeless, manifest.key


def prompt_text(row: dict[str, Any]) -> str:
    """The prompt's messages as one text for people."""
    messages = json.loads(row["prompt_json"])
    return "\n\n".join(str(message["content"]) for message in messages)


def cluster_of(row: dict[str, Any]) -> str:
    """What is resampled together: the fact where there is one, else the problem."""
    return str(row["fact_id"] or row["row_id"])
