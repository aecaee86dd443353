"""Model versions: registered once, promoted one at a time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workspace import registry
from workspace.errors import UserError
from workspace.paths import Workspace


def add(workspace: Workspace, run: str) -> registry.ModelVersion:
    return registry.register(
        workspace,
        "dsm",
        run=run,
        path=f"runs/{run}/final",
        base_model="models/base/tiny",
        lineage={"dataset": "abc"},
    )


def test_a_run_is_registered_once(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert add(workspace, "one").version == add(workspace, "one").version == 1
    assert add(workspace, "two").version == 2
    assert [v.run for v in registry.versions(workspace, "dsm")] == ["one", "two"]


def test_promotion_retires_the_model_before(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    add(workspace, "one")
    add(workspace, "two")
    registry.set_stage(workspace, "dsm", 1, "promoted")
    registry.set_stage(workspace, "dsm", 2, "promoted")
    assert [v.stage for v in registry.versions(workspace, "dsm")] == ["retired", "promoted"]


def test_a_stage_says_why(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    add(workspace, "one")
    add(workspace, "two")
    registry.set_stage(workspace, "dsm", 1, "promoted", reasons=["the first"])
    registry.set_stage(workspace, "dsm", 2, "candidate", reasons=["rtl: no gain shown"])
    first, second = registry.versions(workspace, "dsm")
    assert (first.stage, first.reasons) == ("promoted", ("the first",))
    assert (second.stage, second.reasons) == ("candidate", ("rtl: no gain shown",))
    registry.set_stage(workspace, "dsm", 2, "promoted", reasons=["rtl: +4 points"])
    first, second = registry.versions(workspace, "dsm")
    assert first.reasons == ("version 2 was promoted in its place",)
    assert second.reasons == ("rtl: +4 points",)


def test_scores_recorded_meanwhile_do_not_undo_a_promotion(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    add(workspace, "one")

    def record(number: int) -> None:
        registry.record_scores(workspace, "dsm", 1, {f"metric{number}": registry.Score(value=1.0)})

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(record, number) for number in range(20)]
        registry.set_stage(workspace, "dsm", 1, "promoted")
        for one in waiting:
            one.result()
    [version] = registry.versions(workspace, "dsm")
    assert version.stage == "promoted"
    assert len(version.scores) == 20


def test_scores_are_merged(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    add(workspace, "one")
    for name, value in (("qa", 0.5), ("rtl", 0.25), ("qa", 0.75)):
        version = registry.record_scores(workspace, "dsm", 1, {name: registry.Score(value=value)})
    assert {name: score.value for name, score in version.scores.items()} == {
        "qa": 0.75,
        "rtl": 0.25,
    }


def test_bare_scores_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    add(workspace, "one")
    file = workspace.models / "dsm.json"
    known = json.loads(file.read_text())
    known["versions"][0]["scores"] = {"qa/accuracy": 0.5}
    file.write_text(json.dumps(known))
    [version] = registry.versions(workspace, "dsm")
    assert version.scores == {"qa/accuracy": registry.Score(value=0.5)}


@pytest.mark.parametrize("name", ["../evil", "", "a/b", ".hidden", "x" * 200])
def test_a_name_is_one_plain_path_component(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError):
        registry.versions(Workspace(tmp_path), name)


def test_an_unknown_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no version 7"):
        registry.set_stage(Workspace(tmp_path), "dsm", 7, "promoted")
