"""The gate: a shown gain and no loss promotes; all else does not, or cannot be decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from published_inputs import add_model, of, publish_evaluation

from evaluation.gate import Decision, GateConfig, decide, promote, settled
from evaluation.matching import NotComparableError
from workspace import registry
from workspace.errors import MissingInputError, UserError
from workspace.paths import Workspace

QA, READING = "domain_qa_closed_book", "domain_qa_open_book"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Version 1 of dsm, promoted, and version 2, a candidate."""
    workspace = Workspace(tmp_path / "W")
    for run in ("one", "two"):
        add_model(workspace, run)
    registry.set_stage(workspace, "dsm", 1, "promoted", reasons=["the first"])
    return workspace


def folders(workspace: Workspace, *versions: int) -> dict[str, Path]:
    known = {1: workspace.run("one") / "final", 2: workspace.run("two") / "final"}
    return {f"dsm:{version}": known[version] for version in versions}


def score(workspace: Workspace, answers: dict[str, Any], name: str = "e1", **more: Any) -> Path:
    return publish_evaluation(workspace, name, folders(workspace, 1, 2), answers, **more)


def config(workspace: Workspace, **settings: Any) -> GateConfig:
    return GateConfig(workspace=workspace.root, **{"target": QA, **settings})


def stages(workspace: Workspace) -> list[str]:
    return [version.stage for version in registry.versions(workspace, "dsm")]


def both(before: int, after: int, problems: int = 200) -> dict[str, Any]:
    return {"dsm:1": of(problems, before), "dsm:2": of(problems, after)}


def test_a_gain_without_a_loss_promotes_and_retires_the_one_before(workspace: Workspace) -> None:
    score(workspace, {QA: both(60, 100), READING: both(120, 120)})
    decision = promote(config(workspace))
    assert decision.promoted
    assert [(c.benchmark, c.role, c.passed) for c in decision.checks] == [
        (QA, "target", True), (READING, "guard", True),
    ]  # fmt: skip
    assert stages(workspace) == ["retired", "promoted"]
    reasons = registry.versions(workspace, "dsm")[1].reasons
    assert reasons[0] == "against dsm:1, evaluation(s) e1"
    assert reasons[1].startswith(f"{QA} (target): a gain, +20.0 points [")


def test_what_is_promoted_already_is_settled(workspace: Workspace) -> None:
    score(workspace, {QA: both(60, 100)})
    assert settled(config(workspace)) is None
    promote(config(workspace))
    again = settled(config(workspace))
    assert isinstance(again, Decision)
    assert again.promoted
    assert again.reasons == registry.versions(workspace, "dsm")[1].reasons


def test_no_gain_leaves_the_stages_and_says_what_the_benchmark_can_see(
    workspace: Workspace,
) -> None:
    score(workspace, {QA: both(60, 62)})
    decision = promote(config(workspace))
    assert not decision.promoted
    assert stages(workspace) == ["promoted", "candidate"]
    [_, reason] = registry.versions(workspace, "dsm")[1].reasons
    assert "no gain shown, +1.0 points" in reason
    assert "200 problems show 3.9 points or more" in reason


def test_a_retired_version_that_fails_stays_retired(workspace: Workspace) -> None:
    registry.set_stage(workspace, "dsm", 2, "retired")
    score(workspace, {QA: both(60, 60)})
    assert not promote(config(workspace)).promoted
    assert stages(workspace) == ["promoted", "retired"]


def test_a_loss_elsewhere_forbids_a_gain(workspace: Workspace) -> None:
    score(workspace, {QA: both(60, 100), READING: both(150, 100)})
    decision = promote(config(workspace))
    assert [check.passed for check in decision.checks] == [True, False]
    assert "a loss beyond 5 points, -25.0 points" in decision.checks[1].reason
    assert promote(config(workspace, margin=0.5)).promoted, "a margin that allows it"


def test_a_loss_that_few_problems_cannot_rule_out_forbids_too(workspace: Workspace) -> None:
    few = {"dsm:1": of(20, 10), "dsm:2": of(20, 10)}
    score(workspace, {QA: both(60, 100), READING: few})
    decision = decide(config(workspace))
    assert not decision.promoted
    assert "a loss beyond 5 points is not ruled out" in decision.checks[1].reason
    assert decide(config(workspace, guards=(QA,))).promoted, "only what is named guards"


def test_without_a_promoted_version_the_base_model_is_the_reference(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    final = add_model(workspace, "one")
    models = {"dsm:1 base": workspace.root / "base", "dsm:1": final}
    answers = {"dsm:1 base": of(100, 10), "dsm:1": of(100, 60)}
    publish_evaluation(workspace, "e1", models, {QA: answers})
    decision = promote(config(workspace))
    assert (decision.reference, decision.promoted) == ("dsm:1 base", True)


def test_two_evaluations_of_the_same_measure_are_paired(workspace: Workspace) -> None:
    publish_evaluation(workspace, "e1", folders(workspace, 1), {QA: {"dsm:1": of(200, 60)}})
    publish_evaluation(workspace, "e2", folders(workspace, 2), {QA: {"dsm:2": of(200, 100)}})
    decision = decide(config(workspace))
    assert decision.promoted
    assert decision.checks[0].comparison.problems == 200
    assert "e1, e2" in decision.reasons[0]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"data_hash": "d2"}, "data_hash: d2 and d1"),
        ({"grader_version": "g2"}, "grader_version: g2 and g1"),
        (
            {"tool_versions": {"iverilog": "Icarus Verilog 11.0"}},
            "tool_versions.iverilog: Icarus Verilog 11.0 and Icarus Verilog 12.0",
        ),
        ({"tool_versions": {}}, "tool_versions.iverilog: not used and Icarus Verilog 12.0"),
        ({"data_hash": ""}, "data_hash: not recorded"),
    ],
)
def test_another_measure_is_refused_and_the_field_named(
    workspace: Workspace, changed: dict[str, Any], named: str
) -> None:
    publish_evaluation(workspace, "e1", folders(workspace, 1), {QA: {"dsm:1": of(200, 60)}})
    publish_evaluation(
        workspace, "e2", folders(workspace, 2), {QA: {"dsm:2": of(200, 100)}}, **changed
    )
    with pytest.raises(NotComparableError) as refusal:
        promote(config(workspace))
    assert named in str(refusal.value)
    assert stages(workspace) == ["promoted", "candidate"]


def test_another_temperature_is_another_measure_of_sampled_answers(workspace: Workspace) -> None:
    rtl = "rtl_completion"
    drawn = [[True, False, True, True]] * 100
    publish_evaluation(workspace, "e1", folders(workspace, 1), {rtl: {"dsm:1": drawn}})
    publish_evaluation(
        workspace, "e2", folders(workspace, 2), {rtl: {"dsm:2": drawn}},
        settings={"temperature": 0.2},
    )  # fmt: skip
    with pytest.raises(NotComparableError, match=r"temperature: 0\.2 and 0\.6"):
        decide(config(workspace, target=rtl))


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (
            {"inputs": {"dtype": "float32"}}, {"inputs": {"dtype": "bfloat16"}},
            "dtype: bfloat16 and float32",
        ),
        (
            {"inputs": {"dtype": "float32"}, "settings": {"engine": "transformers"}},
            {"inputs": {"dtype": "float32"}, "settings": {"engine": "vllm"}},
            "engine: vllm and transformers",
        ),
        (
            {"settings": {"endpoint_api": "chat"}}, {"settings": {"endpoint_api": "completions"}},
            "endpoint_api: completions and chat",
        ),
        (
            {"inputs": {"dtype": "float32"}}, {"settings": {"endpoint_api": "chat"}},
            "dtype: the default and float32",
        ),
    ],
    ids=["dtype", "engine", "endpoint's form", "folder and endpoint"],
)  # fmt: skip
def test_answers_that_were_computed_otherwise_are_refused(
    workspace: Workspace, first: dict[str, Any], second: dict[str, Any], named: str
) -> None:
    publish_evaluation(
        workspace, "e1", folders(workspace, 1), {QA: {"dsm:1": of(200, 60)}}, **first
    )
    publish_evaluation(
        workspace, "e2", folders(workspace, 2), {QA: {"dsm:2": of(200, 100)}}, **second
    )
    with pytest.raises(NotComparableError) as refusal:
        promote(config(workspace))
    assert named in str(refusal.value)
    assert stages(workspace) == ["promoted", "candidate"]


def test_a_common_evaluation_is_preferred_to_newer_ones_that_cannot_be_compared(
    workspace: Workspace,
) -> None:
    score(workspace, {QA: both(60, 100)})
    publish_evaluation(
        workspace, "e2", folders(workspace, 2), {QA: {"dsm:2": of(200, 0)}},
        created="2026-02-01T00:00:00+00:00", data_hash="d2",
    )  # fmt: skip
    assert decide(config(workspace)).promoted
    with pytest.raises(MissingInputError, match=r"dsm:1 was not scored.*flows\.score"):
        decide(config(workspace, evaluation="e2"))


def test_answers_without_a_verdict_decide_nothing(workspace: Workspace) -> None:
    broken = [[None]] * 10 + of(190, 100)
    score(workspace, {QA: {"dsm:1": of(200, 60), "dsm:2": broken}})
    with pytest.raises(UserError, match="10 of 200 answers of dsm:2 have no verdict"):
        decide(config(workspace))
    assert decide(config(workspace, max_without_verdict=0.05)).checks[0].comparison.problems == 190


def test_a_benchmark_that_only_the_reference_was_scored_on_is_not_forgotten(
    workspace: Workspace,
) -> None:
    score(workspace, {QA: both(60, 100)})
    publish_evaluation(workspace, "e2", folders(workspace, 1), {READING: {"dsm:1": of(50, 40)}})
    with pytest.raises(MissingInputError, match=f"dsm:2 was not scored on {READING}"):
        decide(config(workspace))


def test_what_is_missing_is_named(workspace: Workspace) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.score"):
        decide(config(workspace))
    score(workspace, {QA: both(60, 100)})
    with pytest.raises(MissingInputError, match="mmlu: neither dsm:2 nor dsm:1"):
        decide(config(workspace, target="mmlu"))
    with pytest.raises(MissingInputError, match="no registered version 7"):
        decide(config(workspace, version=7))
    with pytest.raises(UserError, match="itself"):
        decide(config(workspace, against="dsm:2"))
