"""Which request of lm-eval is which answer of a journal, and the seed that belongs to it.

lm-eval repeats a request as often as samples are wanted, all with one seed. Here the repeats are
numbered in the order in which lm-eval makes them, and each has a seed of its own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from evaluation.journal import AnswerKey


def answer_keys(requests: Iterable[Any]) -> list[AnswerKey]:
    """One key per `Instance`: our rows by their id, others by task, document and choice."""
    seen: Counter[str] = Counter()
    keys: list[AnswerKey] = []
    for request in requests:
        name = row_name(request)
        keys.append(AnswerKey(name, seen[name]))
        seen[name] += 1
    return keys


def row_name(request: Any) -> str:
    """The row's id, or task/document#choice of one of lm-eval's own tasks."""
    if "row_id" in request.doc:
        return str(request.doc["row_id"])
    return f"{request.task_name}/{request.doc_id}#{request.idx}"


def seed_of(seed: int, keys: Sequence[AnswerKey]) -> int:
    """A seed of 56 bits for these answers, from the run's `seed`."""
    name = f"{seed}:" + ",".join(f"{key.row_id}/{key.sample}" for key in keys)
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
