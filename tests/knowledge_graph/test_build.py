"""The graph stage as a whole: what is published, from where, and that it is always the same."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sample_corpus import SAMPLE, text, write_corpus

from knowledge_graph import build
from knowledge_graph.build import GraphConfig, plan, process, publish
from knowledge_graph.names import clean_surface
from knowledge_graph.schema import TABLES_BY_NAME
from workspace import stage
from workspace.errors import CorruptWorkspaceError, MissingInputError
from workspace.manifest import Manifest, read_manifest
from workspace.paths import Workspace
from workspace.shards import iterate_rows, read_table

Rows = list[dict[str, Any]]


def make(root: Path, documents: dict[str, Rows] = SAMPLE, **settings: Any) -> Workspace:
    workspace = write_corpus(root, documents)
    config = GraphConfig(workspace=root, **{"min_mentions": 1, **settings})
    stage.run(config, plan, process, publish)
    return workspace


def rows(workspace: Workspace, name: str) -> Rows:
    return list(iterate_rows(workspace.graph, name))


def manifest_of(workspace: Workspace) -> Manifest:
    manifest = read_manifest(workspace.graph)
    assert manifest is not None
    return manifest


def by_name(workspace: Workspace) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows(workspace, "entities")}


def facts(workspace: Workspace) -> set[tuple[str, str, str]]:
    names = {row["entity_id"]: row["name"] for row in rows(workspace, "entities")}
    return {
        (names[row["head_id"]], row["predicate"], names.get(row["tail_id"], row["value"]))
        for row in rows(workspace, "relations")
        if row["kind"] == "asserted"
    }


def test_facts_of_prose_tables_and_rtl(sample_graph: Workspace) -> None:
    assert {
        ("UART", "is_a", "serial interface"),
        ("shift register", "has_part", "parity bit"),
        ("baud rate generator", "drive", "shift register"),
        ("Supply voltage", "Max", "3.6"),
        ("CTRL_REG1", "Reset value", "0x0000"),
        ("uart_tx", "has_port", "uart_tx.data_i"),
        ("uart_tx.data_i", "width", "8"),
        ("uart_tx", "instantiates", "baud_gen"),
    } <= facts(sample_graph)


def test_acronym_and_long_form_are_one_entity(sample_graph: Workspace) -> None:
    uart = by_name(sample_graph)["UART"]
    assert "Universal asynchronous receiver transmitter" in uart["aliases"]
    assert uart["n_docs"] == 2  # the other document only writes the acronym


def test_an_acronym_with_two_meanings_holds_only_where_it_is_defined(tmp_path: Path) -> None:
    workspace = make(
        tmp_path,
        {
            "a": [text("NarrativeText", "The test point (TP) is a pad. The TP carries a signal.")],
            "b": [text("NarrativeText", "The transport protocol (TP) is a stack layer.")],
            "c": [text("NarrativeText", "The TP resembles a connector.")],
        },
    )
    entities = {row["norm_key"]: row for row in rows(workspace, "entities")}
    assert entities["test point"]["n_mentions"] == 3
    assert entities["transport protocol"]["n_mentions"] == 2
    assert entities["tp"]["n_docs"] == 1


def test_types_are_voted_and_structure_wins(sample_graph: Workspace) -> None:
    entities = by_name(sample_graph)
    types = {name: entities[name]["type"] for name in ("uart_tx", "baud_gen", "CTRL_REG0", "UART")}
    assert types == {
        "uart_tx": "module",
        "baud_gen": "module",
        "CTRL_REG0": "identifier",
        "UART": "term",
    }
    assert entities["uart_tx.clk_i"]["type"] == "port"
    assert entities["uart_tx.DIVISOR"]["type"] == "parameter"


def test_mentions_point_to_page_box_and_characters(sample_graph: Workspace) -> None:
    elements = {row["element_id"]: row for row in iterate_rows(sample_graph.corpus, "elements")}
    mentions = rows(sample_graph, "mentions")
    assert {m["kind"] for m in mentions} >= {
        "noun_chunk",
        "identifier",
        "acronym",
        "module",
        "port",
        "table_header",
        "table_key",
    }
    for mention in mentions:
        element = elements[mention["element_id"]]
        assert (mention["doc_id"], mention["page"]) == (element["doc_id"], element["page"])
        if mention["char_start"] >= 0:
            span = element["text"][mention["char_start"] : mention["char_end"]]
            assert clean_surface(span) == mention["surface"]
            assert mention["bbox_pt"] == element["bbox_pt"]
    keys = {m["surface"]: m["bbox_pt"] for m in mentions if m["kind"] == "table_key"}
    assert keys["Standby current"] == [72.0, 230.0, 172.0, 245.0]


def test_evidence_quotes_its_place(sample_graph: Workspace) -> None:
    elements = {row["element_id"]: row for row in iterate_rows(sample_graph.corpus, "elements")}
    for relation in rows(sample_graph, "relations"):
        assert 1 <= len(relation["evidence"]) <= 5
        for item in relation["evidence"]:
            element = elements[item["element_id"]]
            assert item["page"] == element["page"]
            assert bool(item["table_id"]) == (relation["source"] == "table")
            if relation["source"] == "sentence":
                assert item["text"] in element["text"]


def test_headers_and_footers_are_not_read(sample_graph: Workspace) -> None:
    assert not any("onfidential" in row["name"] for row in rows(sample_graph, "entities"))


def test_counts_are_those_of_the_mentions(sample_graph: Workspace) -> None:
    mentions: Counter[str] = Counter()
    documents: dict[str, set[str]] = defaultdict(set)
    for mention in rows(sample_graph, "mentions"):
        mentions[mention["entity_id"]] += 1
        documents[mention["entity_id"]].add(mention["doc_id"])
    for entity in rows(sample_graph, "entities"):
        assert entity["n_mentions"] == mentions[entity["entity_id"]]
        assert entity["n_docs"] == len(documents[entity["entity_id"]])


def test_every_candidate_mention_is_published_or_counted(sample_graph: Workspace) -> None:
    manifest = manifest_of(sample_graph)
    refused = manifest.rejects.get("mention_of_no_entity", 0)
    assert manifest.counts_in["mentions"] == manifest.counts_out["mentions"] + refused
    assert manifest.rejects["local_parameter"] == 1
    assert manifest.rejects["negated"] == 1
    for name in TABLES_BY_NAME:
        assert manifest.counts_out[name] == len(rows(sample_graph, name))


def test_tables_have_their_schemas_and_are_sorted(sample_graph: Workspace) -> None:
    for name, schema in TABLES_BY_NAME.items():
        assert read_table(sample_graph.graph, name).schema.equals(schema)
    for name, column in (("entities", "entity_id"), ("relations", "relation_id")):
        ids = [row[column] for row in rows(sample_graph, name)]
        assert ids == sorted(set(ids))
    ids = [row["mention_id"] for row in rows(sample_graph, "mentions")]
    assert len(set(ids)) == len(ids)


def test_rare_terms_need_support_and_named_things_do_not(tmp_path: Path) -> None:
    documents = {
        "a": [
            text("NarrativeText", "A vernier caliper lies beside the `trim_dac` macro."),
            text("NarrativeText", "The sense amplifier drives a sense amplifier output stage."),
        ]
    }
    workspace = make(tmp_path, documents, min_mentions=2)
    names = {row["norm_key"] for row in rows(workspace, "entities")}
    assert "id:trim_dac" in names
    assert "sense amplifier" in names  # once alone, once inside a longer term
    assert "vernier caliper" not in names
    assert manifest_of(workspace).rejects["below_min_mentions"] >= 1


def test_workers_and_shards_do_not_change_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = make(tmp_path / "a")
    monkeypatch.setattr(build, "SHARD_ELEMENTS", 1)
    monkeypatch.setattr("knowledge_graph.extraction.BATCH_CHARS", 50)
    other = write_corpus(tmp_path / "b", SAMPLE)
    config = GraphConfig(workspace=other.root, min_mentions=1, workers=2)
    planned = plan(config)
    assert len(planned.shards) == 2
    for shard in reversed(planned.shards):
        process(config, shard)
    publish(config, planned)
    assert hashes(other) == hashes(reference)


def hashes(workspace: Workspace) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in manifest_of(workspace).files}


def test_without_a_document_the_rest_is_unchanged(tmp_path: Path) -> None:
    whole = make(tmp_path / "a")
    rest = {name: content for name, content in SAMPLE.items() if name != "spi.pdf"}
    smaller = make(tmp_path / "b", rest)
    (gone,) = {row["doc_id"] for row in rows(whole, "mentions")} - {
        row["doc_id"] for row in rows(smaller, "mentions")
    }
    kept = [row for row in rows(whole, "mentions") if row["doc_id"] != gone]
    assert kept == rows(smaller, "mentions")
    assert {row["entity_id"] for row in kept} == {
        row["entity_id"] for row in rows(smaller, "entities")
    }


def test_published_work_is_skipped_and_a_change_of_settings_is_not(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    assert plan(GraphConfig(workspace=tmp_path, min_mentions=1, workers=2)).published
    changed = GraphConfig(workspace=tmp_path, min_mentions=2)
    assert plan(changed).published is None
    stage.run(changed, plan, process, publish)
    listed = {entry.path for entry in manifest_of(workspace).files}
    found = {
        path.relative_to(workspace.graph).as_posix()
        for path in workspace.graph.rglob("*.*")
        if path.is_file()
    }
    assert found == listed | {"manifest.json"}


def test_a_processed_shard_is_not_read_again(tmp_path: Path) -> None:
    workspace = write_corpus(tmp_path, SAMPLE)
    config = GraphConfig(workspace=tmp_path, min_mentions=1)
    (shard,) = plan(config).shards
    first = process(config, shard)
    shutil.rmtree(workspace.corpus / "elements")
    assert process(config, shard) == first


def test_structure_alone_needs_no_parser(tmp_path: Path) -> None:
    workspace = make(tmp_path, extractors=("rtl", "table"))
    assert {row["source"] for row in rows(workspace, "relations")} == {"rtl", "table"}


def test_an_empty_corpus_gives_empty_tables(tmp_path: Path) -> None:
    workspace = make(tmp_path, {})
    assert all(rows(workspace, name) == [] for name in TABLES_BY_NAME)


def test_other_languages_keep_identifiers_only(tmp_path: Path) -> None:
    sentence = text("NarrativeText", "Der Zähler liest das Register `cnt_q`.")
    workspace = make(tmp_path, {"a": [{**sentence, "language": "de"}]})
    assert [row["name"] for row in rows(workspace, "entities")] == ["cnt_q"]
    assert manifest_of(workspace).rejects["language_not_parsed"] == 1


def test_errors_name_the_cure(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.ingest"):
        plan(GraphConfig(workspace=tmp_path))
    workspace = write_corpus(tmp_path, SAMPLE)
    config = GraphConfig(workspace=workspace.root)
    with pytest.raises(CorruptWorkspaceError, match="process every shard"):
        publish(config, plan(config))
    with pytest.raises(ValidationError, match="extractors"):
        GraphConfig(workspace=tmp_path, extractors=("magic",))
