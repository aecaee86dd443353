"""Documents to scores through the pipeline's command line, with a tiny random model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import demo
from flows import _pipeline, pipeline
from flows._cli import main
from flows._pipeline import PipelineConfig
from workspace.manifest import read_manifest
from workspace.paths import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent.parent

SMALL = """
ingest: {table_detection: fast, page_dpi: 50}
graph: {extractors: [table, rtl, identifier]}
datasets: {open_book_test_rows: 4, skill_test_rows: 1, closed_book_facts: 20}
train:
  sft: {epochs: 1, token_budget: 2000, max_length: 512}
  rlvr: {steps: 0}
score: {limit: 2, samples_per_problem: 1, ks: [1], benchmarks: [domain_qa_closed_book]}
"""


def config(**values: object) -> PipelineConfig:
    return PipelineConfig.model_validate({"sources": ["a"], "workspace": "W", **values})


def test_shared_settings_reach_every_stage() -> None:
    whole = config(name="soc", workers=3, base_model="/m", train={"sft": {"epochs": 2}})
    assert whole.for_ingest().sources == ["a"]
    stages = (
        whole.for_ingest(), whole.for_graph(), whole.for_datasets(), whole.for_train(),
        whole.for_score(),
    )  # fmt: skip
    assert {stage.workspace for stage in stages} == {Path("W")}  # type: ignore[attr-defined]
    assert whole.for_graph().workers == 3
    assert (whole.for_datasets().name, whole.for_train().dataset) == ("soc", "soc")
    assert (whole.for_score().dataset, whole.for_score().name) == ("soc", "soc")
    assert (whole.for_train().base_model, whole.for_train().sft.epochs) == ("/m", 2)


def test_a_stage_run_alone_and_in_the_pipeline_is_the_same_work() -> None:
    from training.train import TrainConfig

    alone = TrainConfig(workspace=Path("W"))
    assert config().for_train().fingerprint() == alone.fingerprint()


def test_what_only_a_stage_checks_is_refused_before_any_stage_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(pipeline.DOOR, ["a", "--workspace", "W", "--score.ks", "0"]) == 2
    assert "score.ks" in capsys.readouterr().err


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
@pytest.mark.parametrize("model", ["nix", "dsm:7", "no/such.gguf"])
def test_a_base_model_that_is_not_there_is_refused_before_any_stage_starts(
    documents: Path, tmp_path: Path, model: str, extra: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    place = tmp_path / "W"
    arguments = [str(documents), "--workspace", str(place), "--base-model", model, *extra]
    assert main(pipeline.DOOR, arguments) == 1
    assert f"base model {model!r}" in capsys.readouterr().err
    assert read_manifest(place / "corpus") is None


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A few of the example documents, one of them broken."""
    folder = tmp_path / "documents"
    folder.mkdir()
    source = REPOSITORY / "examples" / "documents"
    for name in ("bring-up-notes.md", "thermal-sweep.csv", "application-note-truncated.pdf"):
        shutil.copy(source / name, folder)
    shutil.copytree(source / "rtl", folder / "rtl")
    return folder


@pytest.mark.model
@pytest.mark.usefixtures("prefect_server")
def test_documents_become_a_scored_model_once(
    documents: Path, tiny_base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place = tmp_path / "W"
    settings = tmp_path / "small.yaml"
    settings.write_text(SMALL)
    arguments = [str(documents), "--workspace", str(place), "--config", str(settings)]
    arguments += ["--base-model", str(tiny_base)]

    assert main(pipeline.DOOR, arguments) == 3  # done, and the broken file is in quarantine
    shown = capsys.readouterr().out
    (evaluation,) = (place / "evaluations").glob("*/")
    assert "dsm:1 base" in (place / "evaluations" / "leaderboard.html").read_text()
    results = json.loads((evaluation / "results.json").read_text())
    assert [result["name"] for result in results["benchmarks"]] == ["domain_qa_closed_book"]
    (card,) = (place / "runs").glob("*/final/README.md")
    accuracy = results["benchmarks"][0]["scores"]["dsm:1"]["accuracy"]["value"]
    assert f"| `domain_qa_closed_book` | `accuracy` | {accuracy:.4f} |" in card.read_text()
    kept = {figure.name: figure.value for figure in demo.measure(Workspace(place)).figures}
    assert kept["Domain QA, closed book, accuracy: dsm:1"] == 100 * accuracy
    assert kept["training, sft: steps"] >= 1
    for part in ("pipeline: done, 1 input(s) quarantined", "dsm:1 minus", "explorer.html"):
        assert part in shown
    for folder in ("corpus", "graph", "datasets/dsm"):
        assert read_manifest(place / folder) is not None

    with monkeypatch.context() as without_prefect:
        without_prefect.setattr("flows._cli.prefect_api", _fail)
        assert main(pipeline.DOOR, arguments) == 3
    assert "pipeline: nothing to do: already published" in capsys.readouterr().out

    assert main(pipeline.DOOR, [*arguments, "--dry-run", "--score.limit", "1"]) == 0
    assert "to do: score" in capsys.readouterr().out


def _fail(*arguments: Sequence[object]) -> None:
    raise AssertionError("Prefect was asked for with nothing to do")


def test_the_pipeline_names_its_stages_like_their_flows() -> None:
    flows = {path.stem for path in (REPOSITORY / "flows").glob("[a-z]*.py")}
    assert set(_pipeline.PipelineResult._fields) <= flows
