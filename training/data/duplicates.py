"""Rows that ask the same: equal, asked of the same place, or nearly equal with the same answer.

On one side of the split numbers count: two questions that differ in a number alone are two. Across
sides they do not: whatever nearly equals a held-out question is no training row, even where the
documents behind the two are different ones (two modules may share a header).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from training.data.minhash import Signature, band_keys, signature, similarity
from training.data.rows import CPT, Tally, question_of
from training.data.splits import SPLITS
from workspace.shards import Row

NEAR_QUESTION: Final = 0.9

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def drop_near_duplicates(candidates: Iterable[Row], tally: Tally) -> list[Row]:
    """Rows sorted by id without repetitions; each drop is counted by its reason."""
    kept: list[Row] = []
    ids: set[str] = set()
    places: set[tuple[str, ...]] = set()
    near = _NearQuestions()
    for row in sorted(candidates, key=_held_out_first):
        place = _place(row)
        if row["row_id"] in ids:
            tally.dropped("select:duplicate")
        elif place is not None and place in places:
            tally.dropped("select:same_place")
        elif place is not None and (reason := near.refuse(row)):
            tally.dropped(reason)
        else:
            ids.add(row["row_id"])
            if place is not None:
                places.add(place)
            kept.append(row)
    return sorted(kept, key=lambda row: str(row["row_id"]))


def _held_out_first(row: Row) -> tuple[int, str, list[str]]:
    return (-SPLITS.index(row["split"]), row["row_id"], row["doc_ids"])


def _place(row: Row) -> tuple[str, ...] | None:
    """What an open-book or skill row asks, whatever the phrasing and the window shown."""
    if row["setting"] == CPT or row["fact_id"]:
        return None
    unit = row["table_id"] or row["module_id"] or "/".join(row["chunk_ids"])
    return (row["split"], row["task"], unit, row["answer"].casefold())


class _Question(NamedTuple):
    signed: Signature
    split: str
    same: str  # answer and numbers


class _NearQuestions:
    """Questions seen so far, by LSH bucket."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, bytes], list[int]] = defaultdict(list)
        self._seen: list[_Question] = []

    def refuse(self, row: Row) -> str:
        """The reason when a near question was seen before, "" when not: then it is remembered."""
        text = question_of(row)
        same = row["answer"].casefold() + "|" + " ".join(_NUMBER.findall(text))
        question = _Question(signature(text), row["split"], same)
        keys = [(row["task"], key) for key in band_keys(question.signed)]
        for index in sorted({index for key in keys for index in self._buckets[key]}):
            other = self._seen[index]
            if similarity(question.signed, other.signed) < NEAR_QUESTION:
                continue
            if other.split != question.split:
                return "select:held_out_question"
            if other.same == question.same:
                return "select:near_duplicate"
        for key in keys:
            self._buckets[key].append(len(self._seen))
        self._seen.append(question)
        return ""
