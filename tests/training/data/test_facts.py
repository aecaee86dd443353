"""Facts of the graph: only what has one answer, of training documents, in forms kept apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.verifiers import verify
from knowledge_graph import schema as graph_schema
from training.data.facts import Fact, read_facts
from training.data.generators import closed_book
from training.data.rows import CLOSED_BOOK, Tally
from training.data.splits import Splits
from workspace.manifest import Manifest, write_manifest
from workspace.shards import write_table

Row = dict[str, Any]
SPLITS = Splits(
    {"a": "train", "b": "train", "t": "test"}, {"a": "g", "b": "g", "t": "h"}, frozenset()
)


def relation(head: str, predicate: str, value: str, **changes: Any) -> Row:
    docs = changes.pop("docs", ("a",))
    evidence = [
        {"doc_id": doc, "element_id": f"e-{doc}", "table_id": "", "page": 4, "bbox_pt": None,
         "text": changes.get("text", "input [7:0] x")}
        for doc in docs
    ]  # fmt: skip
    changes.pop("text", None)
    return {
        "relation_id": f"{head}/{predicate}/{value}/{docs}", "head_id": head,
        "predicate": predicate, "tail_id": "", "value": value, "unit": "", "kind": "asserted",
        "source": "table", "weight": 1.0, "n_docs": len(docs), "evidence": evidence, **changes,
    }  # fmt: skip


@pytest.fixture
def facts_of(tmp_path: Path) -> Callable[..., tuple[list[Fact], dict[str, int]]]:
    def read(*relations: Row, part: int = 0, parts: int = 1) -> tuple[list[Fact], dict[str, int]]:
        names = sorted({row["head_id"] for row in relations} | {"serv_alu"})
        blank = {field.name: None for field in graph_schema.ENTITIES}
        entities = [{**blank, "entity_id": name, "name": name} for name in names]
        files = write_table(tmp_path, "relations", graph_schema.RELATIONS, relations)
        files += write_table(tmp_path, "entities", graph_schema.ENTITIES, entities)
        write_manifest(
            tmp_path,
            Manifest(
                stage="graph",
                key="k",
                fingerprint="f",
                settings={},
                inputs={},
                code_version="t",
                created="now",
                files=files,
            ),
        )
        tally = Tally()
        found = list(read_facts(tmp_path, SPLITS, tally, part=part, parts=parts))
        return found, tally.rejects

    return read


def test_one_answer_makes_a_fact(facts_of: Callable[..., Any]) -> None:
    facts, rejects = facts_of(
        relation("uart_core.BAUD_DIV", "default_value", '"FAST"', source="rtl", docs=("a", "b")),
        relation("uart_core.data_o", "width", "8", source="rtl", unit="bits"),
        relation("serv_top", "instantiates", "", source="rtl", tail_id="serv_alu"),
        relation("VDDA pin", "Supply", "3.3", unit="V"),
    )
    assert not rejects
    assert {(f.task, f.owner, f.subject, f.answer, f.doc_ids) for f in facts} == {
        ("fact_parameter", "uart_core", "BAUD_DIV", "FAST", ("a", "b")),
        ("fact_port_width", "uart_core", "data_o", "8", ("a",)),
        ("fact_instance", "", "serv_top", "serv_alu", ("a",)),
        ("fact_table", "", "VDDA pin", "3.3", ("a",)),
    }


@pytest.mark.parametrize(
    ("relations", "reason"),
    [
        ([relation("VDDA", "Max", "3"), relation("VDDA", "Max", "4")], "fact_ambiguous"),
        ([relation("VDDA", "Max", "3", docs=("a", "t"))], "fact_of_held_out_document"),
        ([relation("VDDA", "Max", "3", n_docs=9)], "fact_evidence_truncated"),
        ([relation("VDDA", "Use", "a long tale of what this is for")], "fact_answer_too_long"),
        ([relation("IN", "Width", "32")], "fact_name_says_nothing"),
        ([relation("port 32", "Width", "32")], "fact_guessable"),
        ([relation("la_dpram", "Core", "la_dpram_impl")], "fact_guessable"),
        ([relation("lb rd, imm(rs1", "Cycles", "2")], "fact_name_cut_off"),
        ([relation("VDDA", "Cycles", "2 [1]")], "fact_answer_unclear"),
        ([relation("AFC1 T - -", "Reel", "2500")], "fact_illegible"),
        ([relation("VDDA", "$10 mux", "$10 mux")], "fact_guessable"),
        ([relation("VDDA", "Use", "usequadraticinterpolation")], "fact_illegible"),
        ([relation("m.clk_i", "width", "1", source="rtl")], "fact_guessable"),
        ([relation("m.data_i", "width", "8", source="rtl", text="input [W-1:0] data_i")],
         "fact_width_of_parameters"),
        ([relation("m.clk_i", "direction", "input", source="rtl")], "fact_not_asked"),
        ([relation(f"REG_{i}", "Access", "RW" if i else "RO") for i in range(4)], "fact_guessable"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_counted(
    relations: list[Row], reason: str, facts_of: Callable[..., Any]
) -> None:
    facts, rejects = facts_of(*relations)
    assert not facts
    assert set(rejects) == {reason}


def test_parts_share_the_facts_out(facts_of: Callable[..., Any]) -> None:
    relations = [relation(f"REG_{i}", f"Address {i}", f"{i + 100}") for i in range(40)]
    parts = [facts_of(*relations, part=part, parts=3)[0] for part in range(3)]
    assert sum(len(part) for part in parts) == 40
    assert all(parts)
    assert len({fact.fact_id for part in parts for fact in part}) == 40


@pytest.mark.parametrize("seed", range(4))
def test_the_test_form_is_in_no_training_row(facts_of: Callable[..., Any], seed: int) -> None:
    relations = [relation(f"REG_{i}", f"Address {i}", f"{i + 100}", unit="mV") for i in range(30)]
    relations += [
        relation(f"m{i}.DEPTH_X", "default_value", f"{i + 9}", source="rtl") for i in range(30)
    ]
    facts, _ = facts_of(*relations)
    drafts = [draft for fact in facts for draft in closed_book.generate(fact, seed, 3)]
    asked = [draft for draft in drafts if draft.setting == CLOSED_BOOK]
    trained = {draft.form for draft in asked if not draft.for_test}
    tested = {draft.form for draft in asked if draft.for_test}
    assert len(tested) == 2
    assert not trained & tested
    assert len(trained) == 8
    for draft in asked:
        assert verify(draft.verifier, draft.truth, draft.answer).passed
        assert not any(verify(draft.verifier, draft.truth, wrong).passed for wrong in draft.wrong)
        assert draft.answer.split()[0] not in draft.prompt.split()
    per_fact = [d for d in asked if d.fact_id == facts[0].fact_id and not d.for_test]
    assert len({draft.prompt for draft in per_fact}) == 3
