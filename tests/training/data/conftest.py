"""A small made-up corpus and graph, written through the workspace's own shard writer.

Eight prose documents with tables and passages, ten source files with two modules each. Names and
numbers differ per document, so that no two documents are alike unless a test plants it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from corpus import schema as corpus_schema
from knowledge_graph import schema as graph_schema
from workspace.ids import derive_id
from workspace.manifest import Manifest, write_manifest
from workspace.shards import write_table

Row = dict[str, Any]
Tables = dict[str, list[Row]]

SYLLABLES = re.findall(r"\w+", "ka ro mi tel vos dar nif lum pex gor sha qui bel tan ost ruv")


def fill(schema: Any, **values: Any) -> Row:
    """A row of `schema` with empty defaults."""
    row: Row = {}
    for field in schema:
        kind = str(field.type)
        default: Any = None
        if kind == "string":
            default = ""
        elif kind.startswith("list"):
            default = []
        elif "int" in kind:
            default = 0
        row[field.name] = values.pop(field.name, default)
    assert not values, values
    return row


def document(name: str, **values: Any) -> Row:
    return fill(corpus_schema.DOCUMENTS, doc_id=derive_id("doc", name) * 2, name=name, **values)


def word(rng: random.Random) -> str:
    return "".join(rng.sample(SYLLABLES, 3))


def chunk(doc_id: str, order: int, text: str, kind: str = "text") -> Row:
    return fill(
        corpus_schema.CHUNKS,
        chunk_id=derive_id("chunk", doc_id, order),
        doc_id=doc_id,
        order=order,
        kind=kind,
        text=text,
        tokens=len(text.split()),
        pages=[1 + order // 3],
        element_ids=[derive_id("element", doc_id, order)],
    )


def table(doc_id: str, order: int, columns: list[Row]) -> Row:
    cells = [
        fill_cell(0, col, column["name"], is_header=True) for col, column in enumerate(columns)
    ]
    for index in range(len(columns[0]["values"])):
        for col, column in enumerate(columns):
            cells.append(fill_cell(index + 1, col, str(column["values"][index])))
    return fill(
        corpus_schema.TABLES,
        table_id=derive_id("table", doc_id, order),
        element_id=derive_id("table-element", doc_id, order),
        doc_id=doc_id,
        page=2,
        order=order,
        n_rows=len(columns[0]["values"]) + 1,
        n_cols=len(columns),
        cells=cells,
        columns_json=json.dumps(columns),
    )


def fill_cell(row: int, col: int, text: str, *, is_header: bool = False) -> Row:
    return {
        "row": row, "col": col, "row_span": 1, "col_span": 1, "is_header": is_header,
        "text": text, "bbox_pt": None,
    }  # fmt: skip


def module(doc_id: str, order: int, source: str) -> Row:
    """A module whose ports and parameters are read by a plain pattern (ANSI headers only)."""
    name = re.search(r"module (\w+)", source)
    assert name is not None
    ports = [
        {
            "name": match[4], "direction": match[1], "type": (match[2] or "").strip(),
            "width": int(match[3]) + 1 if match[3] else 1, "comment": "", "line": 1,
        }
        for match in re.finditer(
            r"(input|output)\s+(?:wire|reg)?\s*(\[(\d+):0\]\s*)?(\w+)", source
        )
    ]  # fmt: skip
    parameters = [
        {"name": m[1], "value": m[2], "is_local": False, "comment": "", "line": 1}
        for m in re.finditer(r"parameter (\w+) = (\w+)", source)
    ]
    return fill(
        corpus_schema.MODULES,
        module_id=derive_id("module", doc_id, order),
        element_id=derive_id("code", doc_id, order),
        doc_id=doc_id,
        order=order,
        name=name[1],
        language="verilog",
        ports=ports,
        parameters=parameters,
        source=source,
        line_start=1,
        line_end=source.count("\n") + 1,
    )


def prose_document(tables: Tables, index: int) -> str:
    rng = random.Random(f"prose-{index}")
    row = document(f"manual-{index}.pdf", format="pdf", n_pages=6, licence="MIT")
    doc_id = row["doc_id"]
    tables["documents"].append(row)
    for order in range(6):
        sentences = []
        for _ in range(6):
            sentences.append(
                f"The {word(rng)} block of {word(rng)} runs at {rng.randint(11, 999)} MHz while "
                f"signal {word(rng)}_{rng.randint(1, 9)} keeps {word(rng)} {word(rng)} stable."
            )
        tables["chunks"].append(chunk(doc_id, order, " ".join(sentences)))
    for order in (10, 11):
        keys = sorted({word(rng).upper() for _ in range(7)})
        columns: list[Row] = [
            {"name": "Pin", "kind": "text", "unit": "", "values": keys},
            {
                "name": f"Supply {word(rng)}", "kind": "number", "unit": "mA",
                "values": [float(v) for v in rng.sample(range(3, 400), len(keys))],
            },
            {
                "name": f"Delay {word(rng)}", "kind": "number", "unit": "ns",
                "values": [v / 10 for v in rng.sample(range(3, 400), len(keys))],
            },
        ]  # fmt: skip
        tables["tables"].append(table(doc_id, order, columns))
    return str(doc_id)


def rtl_document(tables: Tables, index: int) -> str:
    rng = random.Random(f"rtl-{index}")
    row = document(f"core-{index}.v", format="verilog", n_pages=1, n_modules=2, licence="ISC")
    doc_id = row["doc_id"]
    tables["documents"].append(row)
    a, b, c, q = (word(rng) for _ in range(4))
    width = rng.randint(3, 17)
    operator = rng.choice(["&", "|", "^", "+"])
    first = (
        f"module {word(rng)}_mix #(parameter {word(rng).upper()} = {rng.randint(2, 90)}) (\n"
        f"  input [{width}:0] {a},\n  input [{width}:0] {b},\n  input {c},\n"
        f"  output [{width}:0] {q}\n);\n"
        f"  assign {q} = {c} ? ({a} {operator} {b}) : ~{b};\nendmodule\n"
    )
    second = (
        f"module {word(rng)}_count (\n  input clk,\n  input rst,\n  input {a},\n"
        f"  output reg [{width}:0] {q}\n);\n"
        f"  always @(posedge clk)\n    if (rst) {q} <= 0;\n"
        f"    else {q} <= {q} + {rng.randint(2, 9)} * {a};\nendmodule\n"
    )
    for order, source in enumerate((first, second)):
        tables["modules"].append(module(doc_id, order, source))
        tables["chunks"].append(chunk(doc_id, order, source, kind="code"))
    return str(doc_id)


def write_corpus(root: Path, tables: Tables) -> None:
    """Publish `tables` as a corpus under `root`."""
    _publish(root / "corpus", "corpus", corpus_schema.TABLES_BY_NAME, tables, {})


def write_graph(root: Path, tables: Tables) -> None:
    """Publish the facts of `tables` as a graph under `root`."""
    graph: Tables = {"entities": [], "relations": []}
    for row in tables["modules"]:
        for port in row["ports"]:
            add_relation(graph, row["doc_id"], f"{row['name']}.{port['name']}", "width",
                         str(port["width"]), "bits", "rtl",
                         text=f"{port['direction']} {port['type']} {port['name']}")  # fmt: skip
        for item in row["parameters"]:
            add_relation(graph, row["doc_id"], f"{row['name']}.{item['name']}", "default_value",
                         item["value"], "", "rtl")  # fmt: skip
    for row in tables["tables"]:
        key, *columns = json.loads(row["columns_json"])
        for index, name in enumerate(key["values"]):
            for column in columns:
                value = column["values"][index]
                add_relation(graph, row["doc_id"], name, column["name"], f"{value:g}",
                             column["unit"], "table", row["table_id"])  # fmt: skip
    _publish(root / "graph", "graph", graph_schema.TABLES_BY_NAME, graph, {"corpus": "corpus-key"})


def add_relation(
    graph: Tables, doc_id: str, head: str, predicate: str, value: str, unit: str, source: str,
    table_id: str = "",
    text: str = "",
) -> None:  # fmt: skip
    entity_id = derive_id("entity", head)
    if entity_id not in {row["entity_id"] for row in graph["entities"]}:
        graph["entities"].append(fill(graph_schema.ENTITIES, entity_id=entity_id, name=head))
    evidence = {
        "doc_id": doc_id, "element_id": derive_id("element", doc_id, 0), "table_id": table_id,
        "page": 1, "bbox_pt": None, "text": text,
    }  # fmt: skip
    graph["relations"].append(
        fill(
            graph_schema.RELATIONS,
            relation_id=derive_id("relation", head, predicate, value),
            head_id=entity_id,
            predicate=predicate,
            value=value,
            unit=unit,
            kind="asserted",
            source=source,
            n_docs=1,
            evidence=[evidence],
        )
    )


def _publish(
    folder: Path, stage: str, schemas: dict[str, Any], tables: Tables, inputs: dict[str, str]
) -> None:
    files = []
    for name, schema in schemas.items():
        key = schema.field(0).name
        rows = sorted(tables.get(name, []), key=lambda row: (row.get("doc_id", ""), str(row[key])))
        files += write_table(folder, name, schema, rows)
    write_manifest(
        folder,
        Manifest(
            stage=stage,
            key=f"{stage}-key",
            fingerprint="f",
            settings={},
            inputs=inputs,
            code_version="test",
            created="2024-01-01T00:00:00+00:00",
            files=files,
        ),
    )


@pytest.fixture(scope="session")
def corpus_tables() -> Callable[[], Tables]:
    """Makes the tables of the made-up corpus; each call gives a fresh copy to change."""

    def make(prose: Iterable[int] = range(8), rtl: Iterable[int] = range(10)) -> Tables:
        tables: Tables = {name: [] for name in corpus_schema.TABLES_BY_NAME}
        for index in prose:
            prose_document(tables, index)
        for index in rtl:
            rtl_document(tables, index)
        return tables

    return make


@pytest.fixture(scope="session")
def write_workspace() -> Callable[[Path, Tables], Path]:
    """Publishes tables as corpus and graph of a workspace."""

    def write(root: Path, tables: Tables) -> Path:
        write_corpus(root, tables)
        write_graph(root, tables)
        return root

    return write
