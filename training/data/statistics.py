"""Figures of a published set: counts, what guessing scores, how much of the corpus is used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from training.data.rows import CPT
from training.data.splits import TEST, TRAIN
from training.data.units import Unit
from workspace.shards import Row


def count_rows(rows: list[Row]) -> dict[str, int]:
    """Rows in all, per split, per split and setting, per split and task, and tokens per split."""
    counts: Counter[str] = Counter(rows=len(rows))
    for row in rows:
        split = row["split"]
        counts[split] += 1
        counts[f"{split}/{row['setting']}"] += 1
        counts[f"{split}/{row['setting']}/{row['task']}"] += 1
        counts[f"kind/{row['kind']}"] += 1
        counts[f"tokens/{row['kind']}"] += row["tokens"]
    return dict(sorted(counts.items()))


def majority_baselines(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Per setting and task of the test: the most common answer, its share, and what the most
    common training answer would score."""
    tests: dict[str, Counter[str]] = defaultdict(Counter)
    trained: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["setting"] == CPT:
            continue
        side = tests if row["split"] == TEST else trained if row["split"] == TRAIN else None
        if side is not None:
            for name in (row["setting"], f"{row['setting']}/{row['task']}"):
                side[name][row["answer"].casefold()] += 1
    return {
        name: _baseline(answers, trained.get(name, Counter()))
        for name, answers in sorted(tests.items())
    }


def _baseline(tested: Counter[str], trained: Counter[str]) -> dict[str, Any]:
    total = sum(tested.values())
    answer, count = min(tested.items(), key=lambda item: (-item[1], item[0]))
    favourite = min(trained.items(), key=lambda item: (-item[1], item[0]))[0] if trained else ""
    return {
        "rows": total,
        "answer": answer[:40],
        "share": round(count / total, 4),
        "train_majority": round(tested[favourite] / total, 4),
    }


def coverage(
    units: Iterable[Unit], shared: frozenset[str], asked: set[str], published: set[str]
) -> dict[str, dict[str, int]]:
    """Per kind of unit: how many there are, may be used, gave a question, are in the set."""
    counts: dict[str, dict[str, int]] = {
        kind: {"total": 0, "usable": 0, "asked": 0, "published": 0}
        for kind in ("chunk", "table", "module")
    }
    for unit in units:
        of_kind = counts[unit.kind]
        of_kind["total"] += 1
        of_kind["usable"] += unit.unit_id not in shared
        of_kind["asked"] += unit.unit_id in asked
        of_kind["published"] += unit.unit_id in published
    return counts


def units_of(row: Row) -> list[str]:
    """The chunk, table and module ids behind a question (none for plain text)."""
    if row["setting"] == CPT:
        return []
    return [unit for unit in (*row["chunk_ids"], row["table_id"], row["module_id"]) if unit]
