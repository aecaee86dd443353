"""Verdicts of one benchmark -> scores with intervals, and failures by kind.

Two scores. `official` follows upstream's rules and arithmetic on all problems, and is absent for a
set of your own, which has no upstream. `audited` follows the simulation, with the problems left out
that the errata exclude or whose reference cannot run here, and forgiven samples forgiven. A sample
that is missing counts as wrong in both; a sample that the machine could not judge makes the run
incomplete, and then there is no score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from evaluation.benchmarks.verilog.answers import VerdictLine
from evaluation.benchmarks.verilog.errata import Erratum
from evaluation.benchmarks.verilog.official import printed_rate
from evaluation.statistics import mean_interval

_KS = (1, 2, 3, 4, 5, 10, 20, 50, 100)


class PassRate(BaseModel):
    """pass@k: the mean over problems of the unbiased estimate, 95 % interval by problem."""

    model_config = ConfigDict(frozen=True)

    k: int
    value: float
    low: float
    high: float


class Score(BaseModel):
    """One way to count. `passed` of `samples` answers, over `problems`."""

    model_config = ConfigDict(frozen=True)

    problems: int
    samples: int
    passed: int
    pass_at: list[PassRate]


class Summary(BaseModel):
    """What is printed, and `--json`."""

    model_config = ConfigDict(frozen=True)

    benchmark: str
    simulator: str
    grader_version: str
    sandbox: str
    errata_version: int | None
    problems: int
    samples_per_problem: int
    audited: Score | None
    official: Score | None
    outcomes: dict[str, int]
    missing: list[list[Any]]  # task id, sample numbers that would complete it
    without_verdict: list[list[Any]]  # task id, sample, what the machine did
    unusable: dict[str, str]
    excluded: dict[str, str]
    notes: dict[str, str]

    @property
    def complete(self) -> bool:
        return not self.without_verdict


def score_of(passed: Mapping[str, int], samples: int, *, as_printed_by: str = "") -> Score | None:
    """The score of so many right answers of `samples` for each problem; None without problems.

    `as_printed_by` is the benchmark whose upstream's arithmetic is used, mistakes included.
    """
    if not passed:
        return None
    names = sorted(passed)
    rates = []
    for k in sorted({k for k in _KS if k <= samples} | {samples}):
        values = [
            printed_rate(
                as_printed_by, passed=passed[name], samples=samples, k=k, problems=len(names)
            )
            for name in names
        ]
        interval = mean_interval(values, names)
        rates.append(PassRate(k=k, value=interval.value, low=interval.low, high=interval.high))
    return Score(
        problems=len(names),
        samples=len(names) * samples,
        passed=sum(passed.values()),
        pass_at=rates,
    )


def count_passes(
    lines: Sequence[VerdictLine], problems: Sequence[str], *, official: bool
) -> dict[str, int]:
    """Right answers by problem, 0 where there are none."""
    counts = dict.fromkeys(problems, 0)
    for line in lines:
        if line.task_id in counts:
            counts[line.task_id] += (line.official if official else line.verdict) == "pass"
    return counts


def missing_samples(
    given: Mapping[str, Sequence[int]], problems: Sequence[str], samples: int
) -> list[list[Any]]:
    """For each problem with fewer than `samples` answers: its name and how many are missing."""
    return [
        [name, samples - len(given.get(name, ()))]
        for name in problems
        if len(given.get(name, ())) < samples
    ]


def excluded_by(
    errata: Mapping[str, Sequence[Erratum]], unusable: Mapping[str, str]
) -> dict[str, str]:
    """Problems that are left out of the audited score, and why: errata come first."""
    by_errata = {
        name: erratum.what
        for name, found in sorted(errata.items())
        for erratum in found
        if erratum.effect == "exclude"
    }
    cannot = {name: f"its reference cannot run here: {why}" for name, why in unusable.items()}
    return {**cannot, **by_errata}


def outcomes_of(lines: Sequence[VerdictLine]) -> dict[str, int]:
    """How many answers ended how, the most frequent first."""
    counts = Counter(line.verdict for line in lines)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def as_text(summary: Summary) -> str:
    """The summary for people."""
    rows = [
        f"{summary.benchmark}: {summary.problems} problems, "
        f"{summary.samples_per_problem} samples each",
        f"{summary.simulator}, grader {summary.grader_version}, sandbox {summary.sandbox}, "
        f"errata {summary.errata_version if summary.errata_version is not None else 'off'}",
    ]
    for name, score in (("audited", summary.audited), ("official", summary.official)):
        if score is None:
            continue
        rows.append(f"{name}: {score.passed} of {score.samples} pass, {score.problems} problems")
        rows += [
            f"  pass@{rate.k:<3} {100 * rate.value:6.2f} %   "
            f"95 % interval {100 * rate.low:.2f} to {100 * rate.high:.2f}"
            for rate in score.pass_at
        ]
    rows.append("answers by outcome:")
    rows += [f"  {count:6d}  {outcome}" for outcome, count in summary.outcomes.items()]
    refused = sum(n for outcome, n in summary.outcomes.items() if outcome.startswith("rejected:"))
    if refused and summary.official is not None:
        rows.append(
            f"of them {refused} refused before they ran: upstream would have run them, "
            "so `official` is not known for these and takes them for wrong"
        )
    rows += _listed("excluded from the audited score", summary.excluded.items())
    rows += _listed("notes", summary.notes.items())
    rows += _listed("the reference cannot be run here", summary.unusable.items())
    rows += _listed("missing samples, counted as wrong", summary.missing)
    if summary.without_verdict:
        rows += _listed("NO VERDICT, no score: run again", summary.without_verdict)
    return "\n".join(rows)


def _listed(title: str, items: Any) -> list[str]:
    found = [": ".join(str(part).replace("\n", " ")[:110] for part in item) for item in items]
    if not found:
        return []
    shown = [f"  {line}" for line in found[:20]]
    more = [f"  ... and {len(found) - 20} more (--json lists all)"] if len(found) > 20 else []
    return [f"{title}:", *shown, *more]
