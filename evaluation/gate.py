"""Whether a candidate model takes the place of the promoted one, from published evaluations.

    decision = promote(GateConfig(workspace=Path("workspace"), target="rtl_completion"))
    decision.promoted, decision.checks

In: `evaluations/*`, the registry. Out: the version's stage and reasons in the registry. Candidate
and reference (the promoted version; the base model when none is) are compared problem by problem.
The candidate is promoted when the paired interval shows a gain on the target, and on every other
benchmark rules out a loss larger than the margin. Too few problems to rule it out is a no.

Scores of different data, graders, tools or answering settings are not compared:
`NotComparableError` names the field. Not covered: cost and speed of a model; correction for many
candidates in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from evaluation import models
from evaluation.matching import NotComparableError, Pair, Side, find_pair
from evaluation.models import ScoredModel
from evaluation.published import Answered, Evaluation, read_answered, read_evaluations
from evaluation.results import Comparison, Frozen, compare
from workspace import registry
from workspace.config import StageConfig, setting
from workspace.errors import MissingInputError, UserError
from workspace.paths import Workspace
from workspace.registry import ModelVersion


class GateConfig(StageConfig):
    """Which candidate, against what, on which benchmarks."""

    workspace: Path = setting(position=0, description="Folder of all stages", affects_output=False)
    target: str = setting(position=1, description="Benchmark on which a gain must be shown")
    name: str = setting("dsm", position=2, description="Registered model")
    version: int | None = setting(
        None, position=3, ge=1, description="Its version to promote (default: the newest)"
    )
    against: str = setting(
        "",
        position=4,
        description="Reference: NAME:VERSION, base:NAME or a folder (default: the promoted "
        "version, or the candidate's base model when none is promoted)",
    )
    margin: float = setting(
        0.05, position=5, ge=0, le=1, description="Largest loss tolerated on the other benchmarks"
    )
    guards: tuple[str, ...] = setting(
        (),
        position=6,
        description="The other benchmarks (default: all that either model was scored on)",
    )
    evaluation: str = setting(
        "", position=7, description="Id of the evaluation to use (default: the newest that fit)"
    )
    max_without_verdict: float = setting(
        0.01, position=8, ge=0, le=1, description="Share of answers that may lack a verdict"
    )
    seed: int = setting(0, position=9, ge=0, description="Of the intervals")


class Check(Frozen):
    """One benchmark's part in the decision. Values are shares of right answers in [0, 1]."""

    benchmark: str
    role: Literal["target", "guard"]
    passed: bool
    reason: str
    reference: float
    candidate: float
    comparison: Comparison


class Decision(Frozen):
    """What came of a candidate."""

    candidate: str
    reference: str
    promoted: bool
    reasons: tuple[str, ...]
    checks: tuple[Check, ...] = ()


def settled(config: GateConfig) -> Decision | None:
    """The decision when the candidate is promoted already; None when it has to be made."""
    version = _candidate(config)
    if version.stage != "promoted":
        return None
    return Decision(candidate=_label(version), reference="", promoted=True, reasons=version.reasons)


def promote(config: GateConfig) -> Decision:
    """Decide, and write the version's stage and reasons into the registry."""
    decision = decide(config)
    version = _candidate(config)
    registry.set_stage(
        Workspace(config.workspace),
        version.name,
        version.version,
        "promoted" if decision.promoted else version.stage,
        reasons=decision.reasons,
    )
    return decision


def decide(config: GateConfig) -> Decision:
    """The decision, without writing it.

    Raises `MissingInputError` when a model was not scored, `NotComparableError` when the scores
    are of different data, graders or tools, `UserError` when too many answers lack a verdict.
    """
    workspace = Workspace(config.workspace)
    version = _candidate(config)
    candidate, reference = _models(config, version)
    evaluations = _evaluations(config)
    pairs = {
        benchmark: find_pair(evaluations, benchmark, candidate, reference)
        for benchmark in _benchmarks(config, evaluations, candidate, reference, workspace)
    }
    checks = tuple(_check(config, benchmark, pair) for benchmark, pair in pairs.items())
    return Decision(
        candidate=candidate.label,
        reference=reference.label,
        promoted=all(check.passed for check in checks),
        reasons=(
            f"against {reference.label}, evaluation(s) {', '.join(_ids(pairs.values()))}",
            *(f"{check.benchmark} ({check.role}): {check.reason}" for check in checks),
        ),
        checks=checks,
    )


def _candidate(config: GateConfig) -> ModelVersion:
    known = registry.versions(Workspace(config.workspace), config.name)
    chosen = [one for one in known if config.version in (None, one.version)]
    if not chosen:
        wanted = f" version {config.version}" if config.version else ""
        raise MissingInputError(
            f"model {config.name!r} has no registered{wanted or ' version'} in "
            f"{Workspace(config.workspace).models}: run `python -m flows.train`"
        )
    return chosen[-1]


def _models(config: GateConfig, version: ModelVersion) -> tuple[ScoredModel, ScoredModel]:
    workspace = Workspace(config.workspace)
    found = models.resolve(workspace, [_label(version), config.against or _incumbent(config)])
    if len(found) < 2:
        raise UserError(f"{_label(version)} cannot be compared with itself: give --against")
    return found[0], found[1]


def _incumbent(config: GateConfig) -> str:
    """The promoted version, or the candidate's base model."""
    for known in registry.versions(Workspace(config.workspace), config.name):
        if known.stage == "promoted":
            return _label(known)
    return f"base:{_label(_candidate(config))}"


def _evaluations(config: GateConfig) -> list[Evaluation]:
    found = read_evaluations(Workspace(config.workspace))
    chosen = [one for one in found if config.evaluation in ("", one.summary.id)]
    if not chosen:
        raise MissingInputError(
            f"no evaluation {config.evaluation or ''} is published in "
            f"{Workspace(config.workspace).evaluations}: run `python -m flows.score`"
        )
    return chosen


def _benchmarks(
    config: GateConfig,
    evaluations: Sequence[Evaluation],
    candidate: ScoredModel,
    reference: ScoredModel,
    workspace: Workspace,
) -> list[str]:
    """The target first. By default no benchmark that either model was scored on is left out."""
    scored = {
        result.name
        for evaluation in evaluations
        for result in evaluation.summary.benchmarks
        if evaluation.model(candidate.hash) or evaluation.model(reference.hash)
    }
    wanted = [config.target, *(config.guards or sorted(scored - {config.target}))]
    for name in wanted:
        if name not in scored:
            raise MissingInputError(
                f"{name}: neither {candidate.label} nor {reference.label} was scored on it in "
                f"{workspace.evaluations} (scored: {', '.join(sorted(scored)) or 'nothing'})"
            )
    return list(dict.fromkeys(wanted))


def _check(config: GateConfig, benchmark: str, pair: Pair) -> Check:
    candidate, reference = (_answered(config, benchmark, side) for side in pair)
    result = pair.candidate.evaluation.result(benchmark)
    assert result is not None
    comparison = compare(
        reference.values,
        candidate.values,
        {**reference.clusters, **candidate.clusters},
        model=pair.candidate.label,
        baseline=pair.reference.label,
        metric=result.metric,
        samples=result.samples_per_problem,
        seed=config.seed,
    )
    if comparison is None:
        raise NotComparableError(f"{benchmark}: the two models share no problem with a verdict")
    target = benchmark == config.target
    passed = comparison.finding == "gain" if target else comparison.low >= -config.margin
    shared = reference.values.keys() & candidate.values.keys()
    return Check(
        benchmark=benchmark,
        role="target" if target else "guard",
        passed=passed,
        reason=_target_reason(comparison) if target else _guard_reason(comparison, config.margin),
        reference=sum(reference.values[row] for row in shared) / len(shared),
        candidate=sum(candidate.values[row] for row in shared) / len(shared),
        comparison=comparison,
    )


def _answered(config: GateConfig, benchmark: str, side: Side) -> Answered:
    found = read_answered(side.evaluation, benchmark, side.label)
    if found.without_verdict > config.max_without_verdict * max(found.answers, 1):
        raise UserError(
            f"{benchmark}: {found.without_verdict} of {found.answers} answers of {side.label} have "
            f"no verdict (evaluation {side.evaluation.summary.id}): mend the tool and score again"
        )
    return found


def _target_reason(found: Comparison) -> str:
    if found.finding == "gain":
        return f"a gain, {_points(found)}"
    if found.finding == "loss":
        return f"a loss, {_points(found)}"
    return f"no gain shown, {_points(found)}; {_sight(found)}"


def _guard_reason(found: Comparison, margin: float) -> str:
    if found.low >= -margin:
        return f"no loss beyond {100 * margin:g} points, {_points(found)}"
    if found.high < -margin:
        return f"a loss beyond {100 * margin:g} points, {_points(found)}"
    return (
        f"a loss beyond {100 * margin:g} points is not ruled out, {_points(found)}; {_sight(found)}"
    )


def _points(found: Comparison) -> str:
    return (
        f"{100 * found.difference:+.1f} points [{100 * found.low:+.1f}, {100 * found.high:+.1f}], "
        f"p = {found.p_value:.2g}"
    )


def _sight(found: Comparison) -> str:
    seen = found.power.difference if found.power else None
    if seen is None:
        return f"{found.problems} problems are too few to show any difference"
    return f"{found.problems} problems show {100 * seen:.1f} points or more"


def _ids(pairs: Iterable[Pair]) -> list[str]:
    return sorted({side.evaluation.summary.id for pair in pairs for side in pair})


def _label(version: ModelVersion) -> str:
    return f"{version.name}:{version.version}"
