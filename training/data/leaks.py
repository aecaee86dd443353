"""Proof that the test does not stand in the training rows.

Three assertions over the published rows, each an error when it fails (our fault, not the user's):
no test question is a training question; no chunk, table or module behind a held-out row has the
content of one behind a training row; no closed-book test uses a phrasing that training has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from training.data.minhash import words
from training.data.rows import CLOSED_BOOK, question_of
from training.data.splits import TRAIN
from training.data.units import iterate_units
from workspace.errors import DsmError
from workspace.shards import Row


class LeakError(DsmError):
    """A test row can be answered from the training rows. Nothing was published."""


def assert_no_leak(rows: list[Row], corpus: Path) -> None:
    """Raise `LeakError` naming the first leak."""
    _assert_questions_apart(rows)
    _assert_forms_apart(rows)
    _assert_content_apart(rows, corpus)


def _assert_questions_apart(rows: Iterable[Row]) -> None:
    sides: dict[str, str] = {}
    for row in rows:
        question = question_of(row)
        if not question:
            continue
        key = " ".join(words(question))
        other = sides.setdefault(key, row["split"])
        if TRAIN in (other, row["split"]) and other != row["split"]:
            raise LeakError(f"row {row['row_id']}: its question is also in split {other!r}")


def _assert_forms_apart(rows: Iterable[Row]) -> None:
    asked = [row for row in rows if row["setting"] == CLOSED_BOOK]
    trained = {row["form"] for row in asked if row["split"] == TRAIN}
    for row in asked:
        if row["split"] != TRAIN and row["form"] in trained:
            raise LeakError(f"row {row['row_id']}: its phrasing {row['form']} is in training too")


def _assert_content_apart(rows: Iterable[Row], corpus: Path) -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["setting"] == CLOSED_BOOK or row["fact_id"]:
            continue  # their documents are training documents by design
        for unit_id in (*row["chunk_ids"], row["table_id"], row["module_id"]):
            if unit_id:
                used[unit_id].add(row["split"])
    sides: dict[str, set[str]] = defaultdict(set)
    for unit in iterate_units(corpus):
        if unit.unit_id in used:
            sides[unit.content_hash] |= used[unit.unit_id]
            if TRAIN in sides[unit.content_hash] and len(sides[unit.content_hash]) > 1:
                raise LeakError(f"{unit.kind} {unit.unit_id} of {unit.doc_id} is on both sides")
