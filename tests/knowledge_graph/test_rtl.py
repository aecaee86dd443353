"""RTL structure as entities and facts."""

from __future__ import annotations

from typing import Any

import pytest
from sample_corpus import SAMPLE

from knowledge_graph.extractors.rtl import extract_module


@pytest.fixture
def uart() -> dict[str, Any]:
    module = next(item["module"] for item in SAMPLE["uart.pdf"] if "module" in item)
    return {"doc_id": "d", "element_id": "e", "order": 4, "line_start": 1, **module}


def test_ports_and_parameters_are_entities_of_their_module(uart: dict[str, Any]) -> None:
    found = extract_module(uart, 2, None)
    named = {(m.kind, m.name, m.surface) for m in found.mentions}
    assert named == {
        ("module", "uart_tx", "uart_tx"),
        ("port", "uart_tx.clk_i", "clk_i"),
        ("port", "uart_tx.tx_o", "tx_o"),
        ("port", "uart_tx.data_i", "data_i"),
        ("parameter", "uart_tx.DIVISOR", "DIVISOR"),
        ("instance", "baud_gen", "baud_gen"),
    }
    assert found.rejects == {"local_parameter": 1}


def test_structure_is_stated_with_its_source_line(uart: dict[str, Any]) -> None:
    found = extract_module(uart, 2, None)
    facts = {(r.head_key, r.predicate, r.tail_key or r.value, r.unit): r for r in found.relations}
    assert facts[("id:uart_tx.data_i", "width", "8", "bits")].text == "input logic [7:0] data_i"
    assert ("id:uart_tx.tx_o", "direction", "output", "") in facts
    assert ("id:uart_tx.tx_o", "comment", "serial line", "") in facts
    assert facts[("id:uart_tx.DIVISOR", "default_value", "16", "")].text == "parameter DIVISOR = 16"
    instance = facts[("id:uart_tx", "instantiates", "id:baud_gen", "")]
    assert instance.text == "baud_gen u_baud (.clk_i(clk_i));"
    assert instance.page == 2


def test_a_line_number_that_does_not_show_the_name_is_not_believed(uart: dict[str, Any]) -> None:
    moved = [{**port, "line": 1} for port in uart["ports"]]
    found = extract_module({**uart, "ports": moved}, 2, None)
    texts = {r.text for r in found.relations if r.predicate == "width"}
    assert "input logic [7:0] data_i" in texts


def test_an_instance_is_shown_down_to_its_name() -> None:
    source = "module top;\n  serv_alu #(\n    .W (1)\n  ) alu (\n    .clk (clk));\nendmodule"
    row = {
        "doc_id": "d",
        "element_id": "e",
        "order": 0,
        "line_start": 1,
        "name": "top",
        "source": source,
        "ports": [],
        "parameters": [],
        "instances": [{"module": "serv_alu", "name": "alu", "line": 2}],
    }
    (relation,) = extract_module(row, 1, None).relations
    assert relation.text == "serv_alu #( .W (1) ) alu ("
