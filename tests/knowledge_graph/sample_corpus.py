"""A small corpus, written through the workspace as ingest writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.schema import TABLES_BY_NAME
from workspace.ids import derive_id
from workspace.manifest import Manifest, now, write_manifest
from workspace.paths import Workspace
from workspace.shards import write_table


def text(category: str, content: str, page: int = 1, y: float = 100.0) -> dict[str, Any]:
    return {"category": category, "text": content, "page": page, "bbox_pt": [72, y, 520, y + 20]}


def table(
    rows: Sequence[Sequence[str]], *, header_rows: int = 1, caption: str = "", page: int = 1
) -> dict[str, Any]:
    cells = [
        {
            "row": r,
            "col": c,
            "row_span": 1,
            "col_span": 1,
            "is_header": r < header_rows,
            "text": value,
            "bbox_pt": [72 + 100 * c, 200 + 15 * r, 172 + 100 * c, 215 + 15 * r],
        }
        for r, line in enumerate(rows)
        for c, value in enumerate(line)
    ]
    content = "\n".join(" ".join(line) for line in rows)
    element = text("Table", content, page, 200.0)
    return {**element, "cells": cells, "n": (len(rows), len(rows[0])), "caption": caption}


def module(name: str, source: str, **parts: Any) -> dict[str, Any]:
    element = text("CodeSnippet", source)
    return {**element, "bbox_pt": None, "module": {"name": name, "source": source, **parts}}


def port(name: str, direction: str, width: int, line: int, comment: str = "") -> dict[str, Any]:
    kind = "logic" if width == 1 else f"logic [{width - 1}:0]"
    return {
        "name": name,
        "direction": direction,
        "width": width,
        "type": kind,
        "comment": comment,
        "line": line,
    }


def parameter(name: str, value: str, line: int, *, is_local: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "is_local": is_local, "comment": "", "line": line}


def write_corpus(root: Path, documents: Mapping[str, Sequence[Mapping[str, Any]]]) -> Workspace:
    """Publish `documents` (name -> elements in reading order) as the corpus of a workspace."""
    workspace = Workspace(root)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES_BY_NAME}
    named = sorted((derive_id("doc", name), name) for name in documents)
    for doc_id, name in named:
        for order, item in enumerate(documents[name]):
            _add_element(rows, doc_id, order, item)
        rows["documents"].append(_document(doc_id, name, documents[name]))
    files = [
        entry
        for table_name, schema in TABLES_BY_NAME.items()
        for entry in write_table(workspace.corpus, table_name, schema, rows[table_name])
    ]
    manifest = Manifest(
        stage="corpus",
        key=derive_id("corpus", *(doc_id for doc_id, _ in named))[:16],
        fingerprint="",
        settings={},
        inputs={},
        code_version="test",
        created=now(),
        files=files,
    )
    write_manifest(workspace.corpus, manifest)
    return workspace


def _document(doc_id: str, name: str, elements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "uri": f"file:///docs/{name}",
        "uris": [f"file:///docs/{name}"],
        "name": name,
        "format": "pdf",
        "title": name,
        "language": next((item["language"] for item in elements if "language" in item), "en"),
        "licence": "",
        "n_pages": max((item["page"] for item in elements), default=1),
        "n_elements": len(elements),
        "status": "ok",
        "metadata_json": "{}",
    }


def _add_element(
    rows: dict[str, list[dict[str, Any]]], doc_id: str, order: int, item: Mapping[str, Any]
) -> None:
    element_id = derive_id("element", doc_id, order)
    place = {
        "element_id": element_id,
        "doc_id": doc_id,
        "page": item["page"],
        "order": order,
        "bbox_pt": item["bbox_pt"],
    }
    rows["elements"].append(
        {
            **place,
            "category": item["category"],
            "text": item["text"],
            "level": 0,
            "section_path": [],
            "parent_id": "",
            "metadata_json": "{}",
        }
    )
    if "cells" in item:
        rows["tables"].append(
            {
                **place,
                "table_id": derive_id("table", element_id),
                "pages": [item["page"]],
                "caption": item["caption"],
                "n_rows": item["n"][0],
                "n_cols": item["n"][1],
                "cells": item["cells"],
            }
        )
    if "module" in item:
        rows["modules"].append(
            {
                "module_id": derive_id("module", element_id),
                "element_id": element_id,
                "doc_id": doc_id,
                "order": order,
                "language": "systemverilog",
                "comment": "",
                "line_start": 1,
                "ports": [],
                "parameters": [],
                "instances": [],
                **item["module"],
            }
        )


UART_SOURCE = """module uart_tx #(
  parameter DIVISOR = 16
) (
  input  logic       clk_i,
  output logic       tx_o, // serial line
  input  logic [7:0] data_i
);
  baud_gen u_baud (.clk_i(clk_i));
endmodule"""

SAMPLE: dict[str, list[dict[str, Any]]] = {
    "uart.pdf": [
        text("Title", "Universal asynchronous receiver transmitter (UART)"),
        text(
            "NarrativeText",
            "The UART is a serial interface. The baud rate generator drives the shift register. "
            "The shift register consists of a data path and a parity bit. The UART does not "
            "support hardware handshakes.",
            y=140.0,
        ),
        text(
            "NarrativeText",
            "The baud rate generator divides the system clock. Shift registers and the baud rate "
            "generator are reset by `CTRL_REG0`.",
            page=2,
        ),
        table(
            [
                ["Parameter", "Min", "Max", "Unit"],
                ["Supply voltage", "1.7", "3.6", "V"],
                ["Standby current", "-", "12", "µA"],
            ],
            caption="Table 1. Electrical characteristics",
            page=2,
        ),
        module(
            "uart_tx",
            UART_SOURCE,
            ports=[
                port("clk_i", "input", 1, 4),
                port("tx_o", "output", 1, 5, "serial line"),
                port("data_i", "input", 8, 6),
            ],
            parameters=[parameter("DIVISOR", "16", 2), parameter("W", "8", 2, is_local=True)],
            instances=[{"module": "baud_gen", "name": "u_baud", "line": 8}],
        ),
    ],
    "spi.pdf": [
        text("Title", "Serial peripheral interface"),
        text(
            "NarrativeText",
            "The shift register feeds the baud rate generator of the UART. Peripherals such as "
            "timers and watchdogs connect to the system clock.",
        ),
        text("Header", "Confidential header text"),
        table(
            [
                ["Register", "Offset", "Reset value"],
                ["CTRL_REG0", "0x00", "0x0001"],
                ["CTRL_REG1", "0x04", "0x0000"],
            ]
        ),
    ],
}
