"""The promote flow: exit codes, the named state, the table of reasons, the registry."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flows import promote
from flows._cli import main
from workspace import registry
from workspace.paths import Workspace

QA = "domain_qa_closed_book"


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`tests/evaluation/published_inputs.py`: models and evaluations without a model run."""
    folder = Path(__file__).resolve().parent.parent / "evaluation"
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    return importlib.import_module("published_inputs")


@pytest.fixture
def workspace(tmp_path: Path, inputs: ModuleType) -> Workspace:
    """A candidate that gained 40 of 100 on one benchmark and lost 30 on another."""
    workspace = Workspace(tmp_path / "W")
    final = inputs.add_model(workspace, "one")
    models = {"dsm:1 base": workspace.root / "base", "dsm:1": final}
    gained = {"dsm:1 base": inputs.of(100, 20), "dsm:1": inputs.of(100, 60)}
    lost = {"dsm:1 base": inputs.of(100, 80), "dsm:1": inputs.of(100, 50)}
    answers = {QA: gained, "domain_qa_open_book": lost}
    inputs.publish_evaluation(workspace, "e1", models, answers)
    return workspace


def run(workspace: Workspace, *more: str) -> int:
    return main(promote.DOOR, ["--workspace", str(workspace.root), "--target", QA, *more])


@pytest.mark.usefixtures("prefect_server")
def test_a_no_ends_with_4_and_a_yes_with_0(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    assert run(workspace) == 4
    shown = capsys.readouterr().out
    assert "promote: dsm:1 not promoted over dsm:1 base: domain_qa_open_book" in shown
    assert "a loss beyond 5 points, -30.0 points" in shown
    [version] = registry.versions(workspace, "dsm")
    assert version.stage == "candidate"
    assert any("a loss beyond" in reason for reason in version.reasons)
    with get_client(sync_client=True) as client:
        # Other tests' runs are there too.
        by_name = FlowFilter(name=FlowFilterName(any_=["promote"]))
        [state] = [one.state for one in client.read_flow_runs(flow_filter=by_name) if one.state]
        [table] = [a for a in client.read_artifacts() if a.key == "promote-reasons"]
    assert state.name == "NotPromoted"
    assert "domain_qa_open_book" in str(table.data)
    assert "not promoted" in str(table.description)

    assert run(workspace, "--guards", QA) == 0
    assert "promote: dsm:1 promoted" in capsys.readouterr().out
    assert registry.versions(workspace, "dsm")[0].stage == "promoted"


def test_what_is_promoted_needs_no_prefect(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.set_stage(workspace, "dsm", 1, "promoted", reasons=["by hand"])
    monkeypatch.setattr("flows._cli.prefect_api", None)
    for more in ((), ("--dry-run",)):
        assert run(workspace, *more) == 0
        shown = capsys.readouterr().out
        assert "dsm:1 is promoted already, nothing to do" in shown
        assert "by hand" in shown


def test_a_preview_decides_without_writing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workspace, "--dry-run") == 0
    assert "not promoted over dsm:1 base" in capsys.readouterr().out
    assert registry.versions(workspace, "dsm")[0].reasons == ()


@pytest.mark.usefixtures("prefect_server")
def test_what_cannot_be_decided_ends_with_1(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workspace, "--guards", "mmlu") == 1
    assert "mmlu: neither" in capsys.readouterr().err
    assert main(promote.DOOR, ["--workspace", str(workspace.root)]) == 2
    assert "--target" in capsys.readouterr().err
