"""Rows that ask the same: equal, asked of the same place, or nearly equal with the same answer.

Only rows on the same side of the split are compared; what crosses sides is the split's business.
Numbers count: two questions that differ in a number alone are two questions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from training.data.minhash import Signature, band_keys, signature, similarity
from training.data.rows import CPT, OPEN_BOOK, SKILL, Tally, question_of
from workspace.shards import Row

NEAR_QUESTION: Final = 0.9

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def drop_near_duplicates(candidates: Iterable[Row], tally: Tally) -> list[Row]:
    """Rows sorted by id without repetitions; each drop is counted by its reason."""
    kept: list[Row] = []
    ids: set[str] = set()
    places: set[tuple[str, ...]] = set()
    near = _NearQuestions()
    for row in sorted(candidates, key=lambda row: (row["row_id"], row["doc_ids"])):
        place = _place(row)
        if row["row_id"] in ids:
            tally.dropped("select:duplicate")
        elif place is not None and place in places:
            tally.dropped("select:same_place")
        elif row["setting"] in (OPEN_BOOK, SKILL) and near.holds(row):
            tally.dropped("select:near_duplicate")
        else:
            ids.add(row["row_id"])
            if place is not None:
                places.add(place)
            kept.append(row)
    return kept


def _place(row: Row) -> tuple[str, ...] | None:
    """What an open-book or skill row asks, whatever the phrasing and the window shown."""
    if row["setting"] == CPT or row["fact_id"]:
        return None
    unit = row["table_id"] or row["module_id"] or "/".join(row["chunk_ids"])
    return (row["split"], row["task"], unit, row["answer"].casefold())


class _NearQuestions:
    """Questions seen so far, by LSH bucket."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str, bytes], list[int]] = defaultdict(list)
        self._seen: list[tuple[Signature, str]] = []

    def holds(self, row: Row) -> bool:
        """Whether a near question with the same answer and numbers was seen; else remember it."""
        question = question_of(row)
        signed = signature(question)
        same = row["answer"].casefold() + "|" + " ".join(_NUMBER.findall(question))
        keys = [(row["split"], row["task"], key) for key in band_keys(signed)]
        for index in sorted({index for key in keys for index in self._buckets[key]}):
            other, other_same = self._seen[index]
            if same == other_same and similarity(signed, other) >= NEAR_QUESTION:
                return True
        for key in keys:
            self._buckets[key].append(len(self._seen))
        self._seen.append((signed, same))
        return False
