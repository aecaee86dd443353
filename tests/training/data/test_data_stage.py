"""The stage as a whole on a small corpus: what is published can be trusted."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.verifiers import verify
from training.data import build
from training.data.build import DatasetConfig
from training.data.minhash import shingles, words
from training.data.schema import ROWS
from workspace import stage
from workspace.errors import MissingInputError, UserError
from workspace.ids import derive_id
from workspace.manifest import Manifest, read_manifest
from workspace.paths import Workspace
from workspace.shards import iterate_rows, read_table

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Writer = Callable[[Path, Tables], Path]
Maker = Callable[..., Tables]


def run(root: Path, **settings: Any) -> Manifest:
    config = DatasetConfig(workspace=root, workers=settings.pop("workers", 1), **settings)
    return stage.run(config, build.plan, build.process, build.publish).manifest


def rows_of(root: Path) -> list[Row]:
    return list(iterate_rows(Workspace(root).dataset("dsm"), "rows"))


@pytest.fixture(scope="session")
def published(
    tmp_path_factory: pytest.TempPathFactory, corpus_tables: Maker, write_workspace: Writer
) -> Path:
    root = write_workspace(tmp_path_factory.mktemp("data"), corpus_tables())
    run(root)
    return root


def test_rows_fit_the_schema_and_are_sorted(published: Path) -> None:
    assert read_table(Workspace(published).dataset("dsm"), "rows").schema.equals(ROWS)
    ids = [row["row_id"] for row in rows_of(published)]
    assert ids == sorted(set(ids))


def test_every_setting_has_training_and_test(published: Path) -> None:
    found = {(row["setting"], row["split"]) for row in rows_of(published)}
    for setting in ("open_book", "closed_book", "skill"):
        assert {(setting, "train"), (setting, "test")} <= found
    assert {row["kind"] for row in rows_of(published)} == {"sft", "rlvr", "test", "cpt"}


def test_every_answer_passes_its_verifier_and_others_fail(published: Path) -> None:
    rows = [row for row in rows_of(published) if row["verifier"]]
    by_task: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_task[row["task"]].append(row)
    for row in random.Random(1).sample(rows, 120):
        assert verify(row["verifier"], row["ground_truth"], row["answer"]).passed
        assert not verify(row["verifier"], row["ground_truth"], "").passed
        assert not verify(row["verifier"], row["ground_truth"], "Answer: none of it").passed
        (message,) = json.loads(row["prompt_json"])
        assert message["role"] == "user"
        assert not verify(row["verifier"], row["ground_truth"], message["content"]).passed
    assert len(by_task) >= 12


def test_no_content_of_the_test_is_in_training(published: Path) -> None:
    rows = rows_of(published)
    corpus = Workspace(published).corpus
    text = {r["chunk_id"]: r["text"] for r in iterate_rows(corpus, "chunks")}
    text |= {r["module_id"]: r["source"] for r in iterate_rows(corpus, "modules")}
    text |= {r["table_id"]: r["columns_json"] for r in iterate_rows(corpus, "tables")}
    sides: dict[str, set[str]] = {"train": set(), "test": set()}
    for row in rows:
        if row["split"] in sides and not row["fact_id"]:
            units = [*row["chunk_ids"], row["table_id"], row["module_id"]]
            sides[row["split"]] |= {text[unit] for unit in units if unit}
    assert sides["train"] and sides["test"]
    assert not sides["train"] & sides["test"]
    train = set().union(*(shingles(words(t)) for t in sides["train"]))
    for held_out in sides["test"]:
        mine = shingles(words(held_out))
        assert len(mine & train) < 0.5 * len(mine)


def test_documents_are_on_one_side_only(published: Path) -> None:
    sides: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, set[str]] = defaultdict(set)
    for row in rows_of(published):
        if not row["fact_id"]:
            for doc in row["doc_ids"]:
                sides[doc].add(row["split"])
                groups[row["group_id"]].add(row["split"])
    assert all(len(side) == 1 for side in [*sides.values(), *groups.values()])


def test_closed_book_facts_are_taught_and_asked_in_another_form(published: Path) -> None:
    rows = [row for row in rows_of(published) if row["setting"] == "closed_book"]
    trained: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["split"] == "train":
            trained[row["fact_id"]].add(row["form"])
    tests = [row for row in rows if row["split"] == "test"]
    all_forms = set().union(*trained.values())
    held_out_documents = {
        doc
        for row in rows_of(published)
        if row["split"] == "test" and not row["fact_id"]
        for doc in row["doc_ids"]
    }
    assert len(tests) > 40
    for row in tests:
        assert len(trained[row["fact_id"]]) == 3
        assert row["form"] not in all_forms
        assert not held_out_documents & set(row["doc_ids"])


def test_the_manifest_accounts_for_it(published: Path) -> None:
    manifest = read_manifest(Workspace(published).dataset("dsm"))
    assert manifest is not None
    rows = rows_of(published)
    assert manifest.counts_out["rows"] == len(rows)
    asked = [r for r in rows if r["setting"] == "closed_book" and r["split"] == "test"]
    assert manifest.counts_out["test/closed_book"] == len(asked)
    selected_away = sum(n for reason, n in manifest.rejects.items() if reason.startswith("select:"))
    assert selected_away > 0
    assert manifest.notes["coverage"]["module"]["total"] == 20
    assert manifest.notes["coverage"]["module"]["asked"] == 20
    assert manifest.notes["majority_baseline"]["closed_book"]["share"] < 0.3
    assert manifest.inputs == {"corpus": "corpus-key", "graph": "graph-key"}
    listed = {entry.path for entry in manifest.files}
    assert {"README.md", "views/trl_sft/train.parquet", "views/trl_grpo/test.parquet"} <= listed
    card = (Workspace(published).dataset("dsm") / "README.md").read_text()
    assert "config_name: trl_sft" in card
    assert "table_lookup" in card


def test_a_second_run_does_nothing(published: Path) -> None:
    config = DatasetConfig(workspace=published, workers=2)
    assert stage.run(config, build.plan, build.process, build.publish).skipped
    assert not (Workspace(published).dataset("dsm") / ".work").exists()


def fingerprint(root: Path) -> dict[str, str]:
    manifest = read_manifest(Workspace(root).dataset("dsm"))
    assert manifest is not None
    return {entry.path: entry.sha256 for entry in manifest.files if entry.path != "README.md"}


def test_order_workers_and_interruptions_do_not_matter(
    tmp_path: Path, corpus_tables: Maker, write_workspace: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_workspace(tmp_path / "plain", corpus_tables(prose=range(4), rtl=range(3)))
    run(plain)
    turned = corpus_tables(prose=reversed(range(4)), rtl=reversed(range(3)))
    root = write_workspace(tmp_path / "turned", turned)
    monkeypatch.setattr(build, "SHARD_WEIGHT", 40)
    config = DatasetConfig(workspace=root, workers=2)
    planned = build.plan(config)
    assert len(planned.shards) > 2
    for shard in reversed(planned.shards):
        build.process(config, shard)
    # A shard that was killed before its report is done again, whatever it left behind.
    facts = planned.shards[-1]
    (planned.work / f"shard-{facts.index:05d}.json").unlink()
    assert build.process(config, facts).counts["candidates"] > 0
    build.publish(config, planned)
    assert fingerprint(root) == fingerprint(plain)


def test_another_seed_gives_other_splits(
    tmp_path: Path, published: Path, corpus_tables: Maker, write_workspace: Writer
) -> None:
    root = write_workspace(tmp_path, corpus_tables())
    run(root, seed=3, max_rtl_lines=3, closed_book_facts=5)
    tests, before = (
        {doc for row in rows_of(where) if row["split"] == "test" for doc in row["doc_ids"]}
        for where in (root, published)
    )
    assert tests != before
    facts = {row["fact_id"] for row in rows_of(root)} - {""}
    assert len(facts) == 5
    assert not [row for row in rows_of(root) if row["setting"] == "skill"]


def test_planted_duplicates_stay_together(
    tmp_path: Path, corpus_tables: Maker, write_workspace: Writer
) -> None:
    tables = corpus_tables()
    first = [row for row in tables["documents"] if row["name"].startswith("manual")]
    # Copies of half the manuals under other names, one sentence shorter and with other ids.
    for row in first[:4]:
        copy = {
            **row,
            "doc_id": derive_id("copy", row["doc_id"]) * 2,
            "name": "copy-" + row["name"],
        }
        tables["documents"].append(copy)
        for chunk in [c for c in tables["chunks"] if c["doc_id"] == row["doc_id"]]:
            tables["chunks"].append(
                {**chunk, "doc_id": copy["doc_id"], "chunk_id": derive_id("c", chunk["chunk_id"]),
                 "text": chunk["text"].rsplit(" ", 3)[0]}
            )  # fmt: skip
    root = write_workspace(tmp_path, tables)
    manifest = run(root, skill_test_rows=0, max_rtl_lines=3)
    assert manifest.notes["links"]["near"] == 4
    sides: dict[str, str] = {}
    for row in rows_of(root):
        if not row["fact_id"]:
            sides[row["doc_ids"][0]] = row["group_id"]
    for row in first[:4]:
        assert sides[row["doc_id"]] == sides[derive_id("copy", row["doc_id"]) * 2]


def test_missing_or_stale_inputs_are_named(
    tmp_path: Path, corpus_tables: Maker, write_workspace: Writer
) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.ingest"):
        build.plan(DatasetConfig(workspace=tmp_path))
    root = write_workspace(tmp_path, corpus_tables(prose=range(2), rtl=range(1)))
    manifest = root / "corpus" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("corpus-key", "newer-key"))
    with pytest.raises(UserError, match="build_graph"):
        build.plan(DatasetConfig(workspace=root))
    shutil.rmtree(root / "graph")
    with pytest.raises(MissingInputError, match=r"flows\.build_graph"):
        build.plan(DatasetConfig(workspace=root))


def test_a_corpus_of_one_document_trains_and_tests_facts(
    tmp_path: Path, corpus_tables: Maker, write_workspace: Writer
) -> None:
    root = write_workspace(tmp_path, corpus_tables(prose=[1], rtl=[]))
    manifest = run(root)
    assert manifest.counts_out["train/open_book"] > 0
    assert manifest.counts_out["test/closed_book"] > 0
    assert "test/open_book" not in manifest.counts_out
