"""Scores by kind of question: the same answers, cut by benchmark and task.

Kinds are small, and many: an interval that leaves out another model's value is no finding here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evaluation.results import Frozen, Score
from evaluation.statistics import mean_interval
from workspace.shards import Row


class Category(Frozen):
    """One kind of question: share of right answers by model, over its problems with a verdict."""

    benchmark: str
    task: str
    problems: int
    scores: dict[str, Score]


def by_category(
    samples: Sequence[Row],
    excluded: Mapping[str, Collection[str]] | None = None,
    *,
    seed: int = 0,
) -> list[Category]:
    """The kinds of each benchmark; `excluded` are problems left out, by benchmark."""
    left_out = excluded or {}
    answers: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    clusters: dict[str, str] = {}
    for row in samples:
        if row["score"] is None or row["row_id"] in left_out.get(row["benchmark"], ()):
            continue
        clusters[row["row_id"]] = row["cluster"]
        kind = answers.setdefault((row["benchmark"], row["task"]), {})
        problem = kind.setdefault(row["model"], {}).setdefault(row["row_id"], [])
        problem.append(float(row["score"] == 1.0))
    return [
        Category(
            benchmark=benchmark,
            task=task,
            problems=len({row_id for problems in models.values() for row_id in problems}),
            scores={model: _score(problems, clusters, seed) for model, problems in models.items()},
        )
        for (benchmark, task), models in sorted(answers.items())
    ]


def _score(
    problems: Mapping[str, Sequence[float]], clusters: Mapping[str, str], seed: int
) -> Score:
    names = sorted(problems)
    values = [sum(problems[name]) / len(problems[name]) for name in names]
    interval = mean_interval(values, [clusters[name] for name in names], seed=seed)
    return Score(**interval._asdict(), problems=len(names))
