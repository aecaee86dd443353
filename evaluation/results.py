"""Graded answers -> scores with intervals, paired comparisons, outcome counts.

A score's value is a mean over problems; the first model is the baseline, and every other model is
compared with it on the problems that both have a verdict for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from evaluation.benchmarks import Benchmark
from evaluation.benchmarks.grading import Graded, mentions, sampled_metrics
from evaluation.benchmarks.verilog.official import printed_rate
from evaluation.claims import Claim, claims
from evaluation.effects import Effects, effects
from evaluation.power import Power, smallest_visible
from evaluation.problems import cluster_of
from evaluation.statistics import (
    CONFIDENCE,
    Interval,
    mcnemar,
    mean_interval,
    paired_difference,
    sign_flip_p_value,
)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Score(Frozen):
    """One metric of one model: mean over `problems` with a 95 % interval."""

    value: float
    low: float
    high: float
    problems: int


class Comparison(Frozen):
    """A model against the baseline on the same problems, on the headline metric."""

    model: str
    baseline: str
    metric: str
    problems: int
    difference: float
    low: float
    high: float
    wins: int  # problems where the model is better
    losses: int
    p_value: float  # exact McNemar of right and wrong, else sign flips of clusters
    finding: str  # gain | loss | no difference shown
    effects: Effects | None = None  # None in results of an earlier version; likewise below
    claims: tuple[Claim, ...] = ()
    power: Power | None = None


class BenchmarkResult(Frozen):
    """One benchmark over all models."""

    name: str
    title: str = ""
    measures: str = ""
    problems: int
    samples_per_problem: int
    metric: str
    scores: dict[str, dict[str, Score]]  # model -> metric -> score
    outcomes: dict[str, dict[str, int]]  # model -> outcome -> answers
    comparisons: list[Comparison]
    without_verdict: int  # answers that no verdict could be had for
    seconds: dict[str, float]  # model -> generation and grading
    # What a score is only comparable with: the same problems, grader and tools.
    data_hash: str = ""
    grader_version: str = ""
    tool_versions: dict[str, str] = {}
    excluded: dict[str, str] = {}  # problems left out of the audited score -> why


class Origin(NamedTuple):
    """What decides which results may be compared; fields as in `BenchmarkResult`."""

    data_hash: str = ""
    grader_version: str = ""
    tool_versions: Mapping[str, str] = {}
    excluded: Mapping[str, str] = {}


Answers = Mapping[str, Sequence[Graded]]  # row id -> its samples


def summarise(
    benchmark: Benchmark,
    rows: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Answers],
    *,
    ks: Sequence[int],
    seed: int,
    seconds: Mapping[str, float],
    origin: Origin | None = None,
) -> BenchmarkResult:
    """The result of a benchmark; `answers` by model, the baseline first."""
    origin = origin or Origin()
    by_row = {str(row["row_id"]): dict(row) for row in rows}
    values = {
        model: _metrics(benchmark, by_row, graded, ks, origin.excluded)
        for model, graded in answers.items()
    }
    clusters = {row_id: cluster_of(row) for row_id, row in by_row.items()}
    models = list(answers)
    samples = max((len(g) for a in answers.values() for g in a.values()), default=0)
    return BenchmarkResult(
        name=benchmark.name,
        title=benchmark.title,
        measures=benchmark.measures,
        problems=len(rows),
        samples_per_problem=samples,
        metric=benchmark.metric,
        scores={model: _scores(values[model], by_row, seed) for model in models},
        outcomes={model: _outcomes(answers[model]) for model in models},
        comparisons=_compare_all(benchmark.metric, values, clusters, samples, seed),
        without_verdict=sum(
            g.score is None for a in answers.values() for s in a.values() for g in s
        ),
        seconds=dict(seconds),
        **origin._asdict(),
    )


def _compare_all(
    metric: str,
    values: Mapping[str, Mapping[str, Mapping[str, float]]],
    clusters: Mapping[str, str],
    samples: int,
    seed: int,
) -> list[Comparison]:
    """Every model against the first, on `metric`."""
    baseline, *others = values
    before = values[baseline].get(metric, {})
    found = [
        compare(
            before, values[model].get(metric, {}), clusters,
            model=model, baseline=baseline, metric=metric, samples=samples, seed=seed,
        )
        for model in others
    ]  # fmt: skip
    return [comparison for comparison in found if comparison]


def _metrics(
    benchmark: Benchmark,
    rows: Mapping[str, Mapping[str, Any]],
    answers: Answers,
    ks: Sequence[int],
    excluded: Mapping[str, str],
) -> dict[str, dict[str, float]]:
    """Metric -> row id -> value. A problem without any verdict has no value."""
    found: dict[str, dict[str, float]] = {}
    for row_id in sorted(answers):
        graded = [one for one in answers[row_id] if one.score is not None]
        if not graded:
            continue
        if benchmark.sampled:
            values = sampled_metrics(graded, ks, is_excluded=row_id in excluded)
            if benchmark.has_official:
                values |= _as_printed(benchmark.name, graded, ks, len(rows))
        elif benchmark.headline == "accuracy":
            values = _asked(graded[0], rows[row_id]["answer"])
        else:
            values = {benchmark.headline: graded[0].score or 0.0}
            if graded[0].normalised is not None:
                values["acc_norm"] = graded[0].normalised
        for metric, value in values.items():
            found.setdefault(metric, {})[row_id] = value
    return dict(sorted(found.items(), key=lambda item: item[0].startswith("official_")))


def _as_printed(
    benchmark: str, graded: Sequence[Graded], ks: Sequence[int], problems: int
) -> dict[str, float]:
    """Upstream's rates by its own arithmetic, mistakes included."""
    passed, samples = sum(one.official == "pass" for one in graded), len(graded)
    return {
        f"official_pass@{k}": printed_rate(
            benchmark, passed=passed, samples=samples, k=k, problems=problems
        )
        for k in ks
        if k <= samples
    }


def _asked(graded: Graded, reference: str) -> dict[str, float]:
    said = graded.passed or mentions(graded.answer, reference)
    return {"accuracy": float(graded.passed), "mentions": float(said)}


def _scores(
    values: Mapping[str, Mapping[str, float]], rows: Mapping[str, dict[str, Any]], seed: int
) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for metric, by_row in values.items():
        clusters = [cluster_of(rows[row_id]) for row_id in by_row]
        interval = mean_interval(list(by_row.values()), clusters, seed=seed)
        scores[metric] = Score(**interval._asdict(), problems=len(by_row))
    return scores


def _outcomes(answers: Answers) -> dict[str, int]:
    counts = Counter(one.outcome for graded in answers.values() for one in graded)
    return dict(sorted(counts.items()))


def compare(
    before: Mapping[str, float],
    after: Mapping[str, float],
    clusters: Mapping[str, str],
    *,
    model: str,
    baseline: str,
    metric: str,
    samples: int,
    seed: int,
) -> Comparison | None:
    """`model` against `baseline`, their values by row id; None when they share no problem."""
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    first, second = [before[r] for r in shared], [after[r] for r in shared]
    groups = [clusters[r] for r in shared]
    interval = paired_difference(first, second, groups, seed=seed)
    # McNemar's test is for right and wrong, and takes problems for independent, which several
    # questions on one fact are not.
    if len(set(groups)) == len(groups) and {*first, *second} <= {0.0, 1.0}:
        p_value = mcnemar([v == 1 for v in first], [v == 1 for v in second]).p_value
    else:
        p_value = sign_flip_p_value(first, second, groups, seed=seed)
    found = effects(first, second, groups, seed=seed)
    return Comparison(
        model=model,
        baseline=baseline,
        metric=metric,
        problems=len(shared),
        difference=interval.value,
        low=interval.low,
        high=interval.high,
        wins=sum(b > a for a, b in zip(first, second, strict=True)),
        losses=sum(b < a for a, b in zip(first, second, strict=True)),
        p_value=p_value,
        finding=_finding(interval, p_value),
        effects=found,
        claims=tuple(claims(found, mean_interval(first, groups, seed=seed))),
        power=smallest_visible(first, second, groups, samples=samples),
    )


def _finding(difference: Interval, p_value: float) -> str:
    """What may be said: a difference needs both the interval and the exact test."""
    if p_value < 1 - CONFIDENCE and difference.low > 0:
        return "gain"
    if p_value < 1 - CONFIDENCE and difference.high < 0:
        return "loss"
    return "no difference shown"
