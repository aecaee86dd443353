"""Scores on the card of a published model: its marked section, its front matter, nothing else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from workspace import manifest as manifests
from workspace import model_card, publish, registry
from workspace.errors import UserError
from workspace.manifest import Manifest, describe_file, find_published, write_manifest
from workspace.paths import Workspace

KEY = "k" * 16
CARD = f"""---
license: "mit"
base_model: "tiny"
---
# dsm-1

## Scores
{model_card.section({})}

## Lineage
| what | key |
|---|---|
| run | `{KEY}` |
"""
PASS = registry.Score(
    value=0.625,
    low=0.5,
    high=0.75,
    problems=1200,
    title="Module completion",
    evaluation="0123abcd",
    date="2026-02-03T04:05:06+00:00",
    data_hash="d" * 64,
    grader_version="7",
    tool_versions={"simulator": "Icarus Verilog 12"},
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def model(workspace: Workspace) -> registry.ModelVersion:
    """A registered model whose folder a run published."""
    final = workspace.run("dsm-1") / "final"
    final.mkdir(parents=True)
    (final / "README.md").write_text(CARD)
    (final / "model.safetensors").write_bytes(b"weights")
    seal(final, stage="run")
    return registered(workspace, "runs/dsm-1/final")


def seal(folder: Path, *, stage: str) -> None:
    files = [describe_file(folder, path) for path in sorted(folder.iterdir())]
    whole = Manifest(
        stage=stage, key=KEY, fingerprint="f", settings={}, inputs={}, code_version="test",
        created=manifests.now(), files=files,
    )  # fmt: skip
    write_manifest(folder, whole)


def registered(workspace: Workspace, path: str) -> registry.ModelVersion:
    return registry.register(
        workspace, "dsm", run="dsm-1", path=path, base_model="tiny", lineage={"run": KEY}
    )


def scored(
    workspace: Workspace, model: registry.ModelVersion, **scores: registry.Score
) -> tuple[bool, str]:
    named = {name.replace("__", "/").replace("_at_", "@"): one for name, one in scores.items()}
    version = registry.record_scores(workspace, model.name, model.version, named)
    written = model_card.write_scores(workspace, version)
    return written, (workspace.root / model.path / "README.md").read_text()


def test_a_score_is_shown_with_what_it_is_comparable_with(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    written, card = scored(workspace, model, rtl__pass_at_1=PASS)
    assert written
    row = "`rtl` | `pass@1` | 0.6250 | 0.5000 to 0.7500 | 1,200 | 2026-02-03 | `0123abcd`"
    assert f"| {row} |" in card
    assert f"- `rtl`: data {'d' * 12}, grader 7, simulator Icarus Verilog 12" in card
    assert "None yet" not in card
    # The rest is as training wrote it.
    assert card.endswith(CARD[CARD.index("\n## Lineage") :])
    assert "# dsm-1\n\n## Scores\n" in card


def test_hubs_read_the_scores_from_the_front_matter(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    scored(workspace, model, rtl__pass_at_1=PASS, rtl__pass_at_5=PASS, qa__accuracy=PASS)
    data = ModelCard.load(workspace.root / model.path / "README.md").data
    assert (data.license, data.base_model, data.model_name) == ("mit", "tiny", "dsm-1")
    found = {(one.dataset_type, one.metric_type): one for one in data.eval_results}
    assert set(found) == {("rtl", "pass@1"), ("rtl", "pass@5"), ("qa", "accuracy")}
    one = found["rtl", "pass@1"]
    assert (one.metric_value, one.dataset_name) == (0.625, "Module completion")
    assert one.dataset_revision == "d" * 64
    assert one.metric_args == {
        "low": 0.5, "high": 0.75, "problems": 1200, "evaluation": "0123abcd", "date": PASS.date
    }  # fmt: skip


def test_the_same_scores_again_leave_every_file_untouched(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    _, first = scored(workspace, model, rtl__pass_at_1=PASS)
    final = workspace.root / model.path
    before = {path.name: path.stat().st_ino for path in final.iterdir()}
    _, second = scored(workspace, model, rtl__pass_at_1=PASS)
    assert second == first
    assert {path.name: path.stat().st_ino for path in final.iterdir()} == before


def test_a_newer_score_takes_the_place_of_the_older(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    scored(workspace, model, rtl__pass_at_1=PASS, qa__accuracy=PASS)
    newer = PASS.model_copy(update={"value": 0.75, "evaluation": "4567"})
    _, card = scored(workspace, model, rtl__pass_at_1=newer)
    assert re.findall(r"\| `rtl` \| `pass@1` \| ([\d.]+)", card) == ["0.7500"]
    assert "| `qa` | `accuracy` | 0.6250" in card
    assert card.count("scores: begin") == card.count("scores: end") == 1


def test_the_model_stays_published_with_true_hashes(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    scored(workspace, model, rtl__pass_at_1=PASS)
    final = workspace.root / model.path
    published = find_published(final, KEY)
    assert published is not None
    assert [entry.path for entry in published.files] == ["README.md", "model.safetensors"]
    for entry in published.files:
        assert hashlib.sha256((final / entry.path).read_bytes()).hexdigest() == entry.sha256


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_a_kill_between_two_writes_leaves_the_model_published(
    workspace: Workspace,
    model: registry.ModelVersion,
    survived: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    final = workspace.root / model.path
    version = registry.record_scores(workspace, "dsm", 1, {"rtl/pass@1": PASS})
    done = []

    def write_some(target: Path, data: bytes) -> None:
        if len(done) == survived:
            raise KeyboardInterrupt
        done.append(target)
        with publish.atomic_path(target) as path:
            path.write_bytes(data)

    with monkeypatch.context() as killed:
        killed.setattr(publish, "write_bytes", write_some)
        with pytest.raises(KeyboardInterrupt):
            model_card.write_scores(workspace, version)
    assert find_published(final, KEY) is not None
    assert model_card.write_scores(workspace, version)
    published = find_published(final, KEY)
    assert published is not None and len(published.files) == 2
    assert "0.6250" in (final / "README.md").read_text()


def test_what_no_run_of_the_workspace_published_is_left_alone(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "final"
    inside = workspace.run("by-hand") / "final"
    linked = workspace.run("linked")
    for folder in (outside, inside):
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(CARD)
    seal(outside, stage="run")
    linked.symlink_to(outside.parent)
    for path in (str(outside), "runs/by-hand/final", "runs/linked/final"):
        written, card = scored(workspace, registered(workspace, path), rtl__pass_at_1=PASS)
        assert not written and card == CARD


def test_a_card_without_the_marks_gets_them_at_its_end(
    workspace: Workspace, model: registry.ModelVersion
) -> None:
    card = workspace.root / model.path / "README.md"
    card.write_text("---\nlicense: mit\n---\n# Mine\n")
    _, text = scored(workspace, model, rtl__pass_at_1=PASS)
    assert text.index("# Mine") < text.index("## Scores") < text.index("0.6250")


def test_a_broken_front_matter_is_named(workspace: Workspace, model: registry.ModelVersion) -> None:
    card = workspace.root / model.path / "README.md"
    card.write_text(CARD.replace('license: "mit"', 'license: ["mit"'))
    with pytest.raises(UserError, match=r"README\.md: mend its front matter"):
        scored(workspace, model, rtl__pass_at_1=PASS)
