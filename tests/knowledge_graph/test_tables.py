"""Tables as facts: which tables speak, what their cells state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from knowledge_graph.candidates import Extraction
from knowledge_graph.extractors.quantities import split_header, split_quantity
from knowledge_graph.extractors.tables import extract_table


def table(
    lines: Sequence[Sequence[str]],
    header_rows: int = 1,
    spans: dict[tuple[int, int], int] | None = None,
) -> dict[str, Any]:
    """A table row; `spans` gives column spans by (row, col), covered positions left out."""
    spans = spans or {}
    covered = {(r, c + k) for (r, c), n in spans.items() for k in range(1, n)}
    cells = [
        {
            "row": r,
            "col": c,
            "row_span": 1,
            "col_span": spans.get((r, c), 1),
            "is_header": r < header_rows,
            "text": text,
            "bbox_pt": [10.0 * c, 10.0 * r, 10.0 * c + 9, 10.0 * r + 9],
        }
        for r, line in enumerate(lines)
        for c, text in enumerate(line)
        if (r, c) not in covered
    ]
    return {
        "doc_id": "d",
        "table_id": "t",
        "element_id": "e",
        "page": 4,
        "order": 7,
        "n_rows": len(lines),
        "n_cols": len(lines[0]),
        "cells": cells,
        "bbox_pt": [0.0, 0.0, 100.0, 100.0],
    }


def facts(found: Extraction) -> list[tuple[str, str, str, str]]:
    return [(r.head_key, r.predicate, r.value, r.unit) for r in found.relations]


def test_rows_state_their_cells_with_units_from_a_unit_column() -> None:
    found = extract_table(
        table(
            [
                ["Parameter", "Min", "Max", "Unit"],
                ["Supply voltage", "1.7", "3.6", "V"],
                ["Standby current", "–", "12", "µA"],
            ]
        )
    )
    assert facts(found) == [
        ("supply voltage", "Min", "1.7", "V"),
        ("supply voltage", "Max", "3.6", "V"),
        ("standby current", "Max", "12", "µA"),
    ]
    assert found.rejects == {"cell_empty": 1}
    first = found.relations[0]
    assert (first.page, first.table_id, first.bbox_pt) == (4, "t", [10.0, 10.0, 19.0, 19.0])
    assert first.text == "Parameter: Supply voltage | Min: 1.7 | Max: 3.6 | Unit: V"


def test_units_from_the_header_and_from_the_cell() -> None:
    found = extract_table(
        table(
            [["Cell", "Area (µm²)", "Delay"], ["NAND2", "3.2", "12 ps"], ["NOR2", "3.4", "15 ps"]]
        )
    )
    assert facts(found)[:2] == [
        ("id:NAND2", "Area", "3.2", "µm²"),
        ("id:NAND2", "Delay", "12", "ps"),
    ]


def test_headers_of_two_rows_are_joined_and_spans_hold_for_all_their_columns() -> None:
    lines = [
        ["Cell", "Delay", ""],
        ["Cell", "rise", "fall"],
        ["INVX1", "1", "2"],
        ["BUFX1", "3", "4"],
    ]
    found = extract_table(table(lines, header_rows=2, spans={(0, 1): 2}))
    assert ("id:INVX1", "Delay / fall", "2", "") in facts(found)


def test_an_unmarked_header_is_a_text_row_above_numbers() -> None:
    lines = [["Pin", "Current"], ["VDD", "5"], ["VSS", "7"]]
    assert facts(extract_table(table(lines, header_rows=0)))[0] == ("vdd", "Current", "5", "")


def test_banners_and_broken_rows_do_not_hide_the_facts() -> None:
    lines = [
        ["Table 7. Ports", "Table 7. Ports", "Table 7. Ports"],
        ["Width", "Name", "Description"],
        ["1", "clk", "Clock for"],
        ["", "", "all processors"],
        ["Interrupts", "Interrupts", "Interrupts"],
        ["32", "irq", "Requests"],
        ["4", "-", "Reserved"],
    ]
    found = extract_table(table(lines, header_rows=1, spans={(0, 0): 3, (4, 0): 3}))
    assert facts(found) == [
        ("id:clk", "Width", "1", ""),
        ("id:clk", "Description", "Clock for all processors", ""),
        ("irq", "Width", "32", ""),
        ("irq", "Description", "Requests", ""),
    ]
    assert found.rejects == {"row_without_key": 1}


@pytest.mark.parametrize(
    ("lines", "header_rows", "reason"),
    [
        ([["Only", "header"]], 1, "table_too_small"),
        ([["A"], ["b"], ["c"]], 1, "table_too_small"),
        ([["x", "y"], ["p", "q"], ["r", "s"]], 0, "table_no_header"),
        ([["Year", "Sales"], ["2019", "5"], ["2020", "6"]], 1, "table_no_key"),
        ([["Pin", "Use"], ["VDD", "core"], ["VDD", "pads"]], 1, "table_no_key"),
        ([["A", "B", "C", "D"], ["x", "", "", ""], ["y", "", "", ""]], 1, "table_layout"),
    ],
)
def test_tables_that_state_nothing_say_why(
    lines: list[list[str]], header_rows: int, reason: str
) -> None:
    found = extract_table(table(lines, header_rows))
    assert found.relations == []
    assert found.rejects == {reason: 1}


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("3.3 V", "3.3", "V"),
        ("-40°C", "-40", "°C"),
        ("1,024 bytes", "1,024", "bytes"),
        ("0x1F", "0x1F", ""),
        ("8'hFF", "8'hFF", ""),
        ("12 typical", "12 typical", ""),
        ("read only", "read only", ""),
        ("2.5e-3 A", "2.5e-3", "A"),
    ],
)
def test_quantities(text: str, value: str, unit: str) -> None:
    assert split_quantity(text) == (value, unit)


def test_header_brackets_hold_a_unit_or_belong_to_the_name() -> None:
    assert split_header("Supply current (mA)") == ("Supply current", "mA")
    assert split_header("Delay [in ps]") == ("Delay", "ps")
    assert split_header("Value (typical)") == ("Value (typical)", "")
