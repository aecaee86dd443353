"""What the report's sample browser shows: problems with every model's answers, each text once.

Models give the same answer many times (300 answers of one run were 99 different ones), so texts
stand in a pool and answers refer to them by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evaluation.outcomes import outcome_group
from workspace.shards import Row

MAX_TEXT = 20_000  # characters of one text
MAX_TEXTS = 24_000_000  # characters of all texts of a page; samples.parquet has all


class Shown(NamedTuple):
    """The data of the page's script, and how much of the evaluation it is."""

    data: dict[str, Any]
    problems: int
    of: int


class _Pool:
    """Texts by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self.size = 0

    def add(self, text: str | None) -> int:
        """The number of `text`, cut to what a page can hold."""
        shown = _cut(text or "")
        number = self._numbers.get(shown)
        if number is None:
            number = self._numbers[shown] = len(self.texts)
            self.texts.append(shown)
            self.size += len(shown)
        return number


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT:,} more characters are in samples.parquet"


def shown_samples(
    samples: Sequence[Row], models: Sequence[str], titles: Mapping[str, str]
) -> Shown:
    """The browser's data: as many problems of every benchmark (`titles`) as a page can hold."""
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in samples:
        rows.setdefault((row["benchmark"], row["row_id"]), []).append(row)
    pool = _Pool()
    benchmarks = list(titles)
    turn = _turns(list(rows))
    problems: dict[tuple[str, str], dict[str, Any]] = {}
    for place in sorted(rows, key=lambda place: turn[place]):
        if pool.size > MAX_TEXTS:
            break
        problems[place] = _problem(rows[place], pool, benchmarks, models)
    data = {
        "models": list(models),
        "benchmarks": [[name, titles[name]] for name in benchmarks],
        "texts": pool.texts,
        "problems": [problems[place] for place in rows if place in problems],
    }
    return Shown(data, len(problems), len(rows))


def _turns(places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Benchmarks take turns, so that a long first one does not push the others off the page."""
    seen: Counter[str] = Counter()
    turns = {}
    for place in places:
        turns[place] = seen[place[0]]
        seen[place[0]] += 1
    return turns


def _problem(
    rows: Sequence[Row], pool: _Pool, benchmarks: Sequence[str], models: Sequence[str]
) -> dict[str, Any]:
    first = rows[0]
    return {
        "benchmark": benchmarks.index(first["benchmark"]),
        "id": first["row_id"],
        "task": first["task"],
        "verifier": first["verifier"],
        "document": pool.add(first["document"]),
        "page": first["page"],
        "prompt": pool.add(first["prompt"]),
        "reference": pool.add(first["reference"]),
        "answers": [
            [_answer(row, pool) for row in rows if row["model"] == model] for model in models
        ],
    }


def _answer(row: Row, pool: _Pool) -> dict[str, Any]:
    return {
        "text": pool.add(row["answer"]),
        "score": row["score"],
        "outcome": row["outcome"],
        "group": outcome_group(row["outcome"]),
        "detail": pool.add(row["detail"]),
        "official": row["official"],
        "output": pool.add(row["output"]),
    }
