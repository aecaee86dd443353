"""Trainers' formats: thin, flat projections of the canonical rows.

    views/trl_sft/{train,validation,test}.parquet   prompt, completion (messages)
    views/trl_grpo/...                              prompt (messages), verifier, ground_truth
    views/verl_sft, verl_rl, open_instruct, cpt

Plain Parquet without Hugging Face feature metadata: a file written by a newer `datasets` cannot be
read by an older trainer. Columns have one type in every file, `ground_truth` is a JSON string and
`extra_info` always has the same keys, because files that differ cannot be joined. No metadata
column has a name that a trainer takes for itself (`labels`, `images`, `completions`, ...).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from training.data.rows import CPT, messages_of
from training.data.splits import SPLITS, TRAIN
from workspace.shards import Row

MESSAGES: Final = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_ORIGIN: Final = [("row_id", pa.string()), ("doc_id", pa.string()), ("task", pa.string())]


@dataclass(frozen=True)
class View:
    """`takes` says which rows of a split belong to it."""

    name: str
    schema: pa.Schema
    takes: Callable[[Row], bool]
    convert: Callable[[Row, int], Row]


def _origin(row: Row) -> Row:
    return {"row_id": row["row_id"], "doc_id": row["doc_ids"][0], "task": row["task"]}


def _completion(row: Row) -> list[dict[str, str]]:
    return _said(row["answer"])


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _for_tuning(row: Row) -> bool:
    return bool(row["setting"] != CPT and row["kind"] in ("sft", "test"))


def _rejected(row: Row) -> str:
    """One of the near misses, "" when there is none; which one follows from the row's id."""
    wrong = [answer for answer in row["wrong"] if answer.strip()]
    return wrong[int(row["row_id"], 16) % len(wrong)] if wrong else ""


def _for_preferences(row: Row) -> bool:
    # Both sides are verdicts: an answer that nobody judged is no pair.
    return _for_tuning(row) and bool(_rejected(row))


def _for_rewards(row: Row) -> bool:
    return bool(row["setting"] != CPT and (row["kind"] == "rlvr" or row["split"] != TRAIN))


def _verl_extra(row: Row, index: int) -> Row:
    return {"index": index, "split": row["split"], **_origin(row)}


def _verl_truth(row: Row) -> str:
    return json.dumps(
        {"verifier": row["verifier"], "ground_truth": row["ground_truth"]}, sort_keys=True
    )


VIEWS: Final[tuple[View, ...]] = (
    View(
        "cpt",
        pa.schema([("text", pa.string()), *_ORIGIN]),
        lambda row: bool(row["setting"] == CPT),
        lambda row, index: {"text": row["answer"], **_origin(row)},
    ),
    View(
        "trl_sft",
        pa.schema(
            [("prompt", MESSAGES), ("completion", MESSAGES), ("setting", pa.string()), *_ORIGIN]
        ),
        _for_tuning,
        lambda row, index: {
            "prompt": messages_of(row),
            "completion": _completion(row),
            "setting": row["setting"],
            **_origin(row),
        },
    ),
    View(
        "trl_dpo",
        pa.schema(
            [
                ("prompt", MESSAGES),
                ("chosen", MESSAGES),
                ("rejected", MESSAGES),
                ("verifier", pa.string()),
                ("ground_truth", pa.string()),
                ("setting", pa.string()),
                *_ORIGIN,
            ]
        ),
        _for_preferences,
        lambda row, index: {
            "prompt": messages_of(row),
            "chosen": _completion(row),
            "rejected": _said(_rejected(row)),
            "verifier": row["verifier"],
            "ground_truth": row["ground_truth"],
            "setting": row["setting"],
            **_origin(row),
        },
    ),
    View(
        "trl_grpo",
        pa.schema(
            [
                ("prompt", MESSAGES),
                ("verifier", pa.string()),
                ("ground_truth", pa.string()),
                ("setting", pa.string()),
                *_ORIGIN,
            ]
        ),
        _for_rewards,
        lambda row, index: {
            "prompt": messages_of(row),
            "verifier": row["verifier"],
            "ground_truth": row["ground_truth"],
            "setting": row["setting"],
            **_origin(row),
        },
    ),
    View(
        "verl_sft",
        pa.schema([("messages", MESSAGES), *_ORIGIN]),
        _for_tuning,
        lambda row, index: {"messages": messages_of(row) + _completion(row), **_origin(row)},
    ),
    View(
        "verl_rl",
        pa.schema(
            [
                ("data_source", pa.string()),
                ("prompt", MESSAGES),
                ("ability", pa.string()),
                (
                    "reward_model",
                    pa.struct([("style", pa.string()), ("ground_truth", pa.string())]),
                ),
                (
                    "extra_info",
                    pa.struct([("index", pa.int64()), ("split", pa.string()), *_ORIGIN]),
                ),
            ]
        ),
        _for_rewards,
        lambda row, index: {
            "data_source": f"dsm/{row['task']}",
            "prompt": messages_of(row),
            "ability": row["setting"],
            "reward_model": {"style": "rule", "ground_truth": _verl_truth(row)},
            "extra_info": _verl_extra(row, index),
        },
    ),
    View(
        "open_instruct",
        pa.schema(
            [
                ("messages", MESSAGES),
                ("ground_truth", pa.string()),
                ("dataset", pa.string()),
                *_ORIGIN,
            ]
        ),
        _for_rewards,
        lambda row, index: {
            "messages": messages_of(row),
            "ground_truth": row["ground_truth"],
            "dataset": row["verifier"],
            **_origin(row),
        },
    ),
)


def write_views(folder: Path, rows: Iterable[Row]) -> dict[str, int]:
    """Write `<view>/<split>.parquet` under `folder` (not atomic); rows per "view/split"."""
    ordered = sorted(rows, key=lambda row: str(row["row_id"]))
    counts: dict[str, int] = {}
    for view in VIEWS:
        (folder / view.name).mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            fit = [row for row in ordered if row["split"] == split and view.takes(row)]
            converted = [view.convert(row, index) for index, row in enumerate(fit)]
            table = pa.Table.from_pylist(converted, schema=view.schema)
            pq.write_table(table, folder / view.name / f"{split}.parquet", compression="zstd")
            counts[f"{view.name}/{split}"] = len(fit)
    return counts


def view_file(dataset: Path, view: str, split: str) -> Path:
    """Where a published view lies: `view_file(workspace.dataset("dsm"), "trl_sft", "train")`."""
    assert split in SPLITS and view in {item.name for item in VIEWS}
    return dataset / "views" / view / f"{split}.parquet"
