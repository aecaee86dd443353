"""From a published model back to the documents: card, data set, corpus."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from training.data import build
from training.data.config import DatasetConfig
from training.data.views import view_file
from training.lineage import write_sources
from training.publish_run import publish_run
from training.run_record import RunFolder, RunRecord
from training.trainers.settings import StageName
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.manifest import read_manifest
from workspace.paths import Workspace
from workspace.shards import iterate_rows

VIEWS: dict[StageName, str] = {"cpt": "cpt", "sft": "trl_sft"}


@pytest.fixture(scope="module")
def workspace(
    tmp_path_factory: pytest.TempPathFactory,
    corpus_tables: Callable[..., dict[str, list[dict[str, object]]]],
    write_workspace: Callable[..., Path],
) -> Workspace:
    """Corpus, graph, data set, and a run whose training is over."""
    tables = corpus_tables(range(6), ())
    licences = ("CC-BY-4.0", "Apache-2.0", "")
    for index, document in enumerate(tables["documents"]):
        document["licence"] = licences[index % 3]
        document["uri"] = f"file:///library/{index}.pdf"
    root = write_workspace(tmp_path_factory.mktemp("lineage"), tables)
    config = DatasetConfig(workspace=root, workers=1)
    planned = build.plan(config)
    for shard in planned.shards:
        build.process(config, shard)
    build.publish(config, planned)
    return Workspace(root)


def finished_run(workspace: Workspace) -> RunFolder:
    folder = RunFolder(workspace.run("dsm-1"))
    dataset = workspace.dataset("dsm")
    manifest = read_manifest(dataset)
    assert manifest is not None
    for stage, view in VIEWS.items():
        folder.hold_data(stage, view_file(dataset, view, "train"))
    write_sources(folder, dataset, workspace.corpus, {stage: folder.data(stage) for stage in VIEWS})
    record = RunRecord(
        run="dsm-1",
        key="k" * 16,
        settings={"seed": 0},
        lineage={**manifest.inputs, "dataset": manifest.key, "base_model": "b" * 16},
        base_model="tiny",
        stages=tuple(VIEWS),
        created="2026-01-01T00:00:00Z",
    )
    folder.write_record(record)
    outcomes = []
    for stage in VIEWS:
        outcome = StageOutcome(
            stage=stage, attempt=1, steps=2, rows=3, rejects={}, tokens=9, last={"loss": 1.5}
        )
        outcomes.append(outcome)
        publish.write_text(
            folder.stage(stage).root / "result.json", outcome.model_dump_json() + "\n"
        )
        folder.stage(stage).model.mkdir()
        (folder.stage(stage).model / "config.json").write_text("{}")
    base = workspace.root / "base"
    base.mkdir(exist_ok=True)
    (base / "origin.json").write_text('{"licence": "MIT"}')
    publish_run(folder, record, outcomes, base=base, fingerprint="f" * 16, seconds=1.0)
    return folder


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> RunFolder:
    return finished_run(workspace)


def test_the_card_leads_to_the_documents(workspace: Workspace, run: RunFolder) -> None:
    card = (run.final / "README.md").read_text()
    dataset = workspace.dataset("dsm")
    manifest = read_manifest(dataset)
    assert manifest is not None

    # The card names the data set by its key and the hash of its manifest ...
    assert f"| dataset | `{manifest.key}` |" in card
    digest = hashlib.sha256((dataset / "manifest.json").read_bytes()).hexdigest()
    assert digest in card

    # ... and the list of documents that its rows were made of,
    [linked] = re.findall(r"\]\((\w+\.jsonl)\)", card)
    listed = [json.loads(line) for line in (run.final / linked).read_text().splitlines()]
    rows = {row["row_id"]: row for row in iterate_rows(dataset, "rows")}
    given = [
        row_id for stage in VIEWS for row_id in pq.read_table(run.data(stage))["row_id"].to_pylist()
    ]
    parts = Counter(doc for row_id in given for doc in set(rows[row_id]["doc_ids"]))
    assert {one["doc_id"]: one["rows"] for one in listed} == dict(parts)

    # which the corpus knows, with their places and licences.
    known = {row["doc_id"]: row for row in iterate_rows(workspace.corpus, "documents")}
    for one in listed:
        document = known[one["doc_id"]]
        assert one["uri"] == document["uri"]
        assert one["licence"] == (document["licence"] or "not stated")
    assert f"made of {len(parts)} documents" in card
    manifest = read_manifest(run.final)
    assert manifest is not None and linked in {file.path for file in manifest.files}


def test_licences_by_their_share_of_the_tokens(workspace: Workspace, run: RunFolder) -> None:
    card = (run.final / "README.md").read_text()
    assert "Base model: MIT." in card
    shares = re.findall(r"^\| ([\w.\- ]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) % \|$", card, re.M)
    assert {name for name, *_ in shares} == {"CC-BY-4.0", "Apache-2.0", "not stated"}
    assert sum(float(share) for *_, share in shares) == pytest.approx(100, abs=0.2)
    given = sum(pq.read_metadata(run.data(stage)).num_rows for stage in VIEWS)
    assert sum(int(rows.replace(",", "")) for _, rows, *_ in shares) == given


def test_a_corpus_that_was_built_anew_is_said(
    workspace: Workspace, run: RunFolder, tmp_path: Path
) -> None:
    sources = write_sources(
        RunFolder(tmp_path), workspace.dataset("dsm"), tmp_path / "none", {"sft": run.data("sft")}
    )
    assert sources.corpus_changed and sources.documents > 0 and sources.untraced_rows == 0
