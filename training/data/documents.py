"""What generators see: one document's tables, chunks and modules, read from the corpus.

In: `corpus/` and the document ids of a shard; out: `Document`s in id order. Units that may stand
on both sides of the split are already taken out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.data.splits import Splits
from workspace.shards import Row, table_files


@dataclass(frozen=True)
class Column:
    """One typed column: `values` are floats for kind `number`, else strings; None = empty."""

    name: str
    kind: str
    unit: str
    values: tuple[float | str | None, ...]


@dataclass(frozen=True)
class Table:
    table_id: str
    element_id: str
    page: int
    caption: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Chunk:
    chunk_id: str
    kind: str
    text: str
    page: int
    element_ids: tuple[str, ...]
    section_path: tuple[str, ...]


@dataclass(frozen=True)
class Port:
    name: str
    direction: str
    width: int
    type: str


@dataclass(frozen=True)
class Parameter:
    name: str
    value: str
    is_local: bool


@dataclass(frozen=True)
class Instance:
    module: str
    name: str


@dataclass(frozen=True)
class Module:
    module_id: str
    element_id: str
    doc_id: str
    name: str
    ports: tuple[Port, ...]
    parameters: tuple[Parameter, ...]
    instances: tuple[Instance, ...]
    source: str
    line_start: int


@dataclass(frozen=True)
class Document:
    doc_id: str
    name: str
    licence: str
    split: str
    group_id: str
    tables: tuple[Table, ...]
    chunks: tuple[Chunk, ...]
    modules: tuple[Module, ...]


def read_documents(corpus: Path, doc_ids: Iterable[str], splits: Splits) -> Iterator[Document]:
    """The documents with these ids, in id order."""
    wanted = sorted(doc_ids)
    rows = {row["doc_id"]: row for row in _select(corpus, "documents", wanted)}
    tables = _by_document(_select(corpus, "tables", wanted), "table_id", splits)
    chunks = _by_document(_select(corpus, "chunks", wanted), "chunk_id", splits)
    modules = _by_document(_select(corpus, "modules", wanted), "module_id", splits)
    for doc_id in wanted:
        row = rows[doc_id]
        yield Document(
            doc_id=doc_id,
            name=row["name"],
            licence=row["licence"],
            split=splits.split[doc_id],
            group_id=splits.group[doc_id],
            tables=tuple(_table(table) for table in tables[doc_id]),
            chunks=tuple(_chunk(chunk) for chunk in chunks[doc_id]),
            modules=tuple(to_module(module) for module in modules[doc_id]),
        )


_COLUMNS = {
    "documents": ["doc_id", "name", "licence"],
    "tables": ["doc_id", "table_id", "element_id", "page", "caption", "columns_json", "order"],
    "chunks": [
        "doc_id", "chunk_id", "kind", "text", "pages", "element_ids", "section_path", "order",
    ],
    "modules": [
        "doc_id", "module_id", "element_id", "name", "ports", "parameters", "instances",
        "source", "line_start", "order",
    ],
}  # fmt: skip


def _select(corpus: Path, table: str, doc_ids: list[str]) -> list[Row]:
    files = [str(path) for path in table_files(corpus, table)]
    import pyarrow.dataset as ds  # brings pandas: 0.7 s that `--help` need not pay

    found = ds.dataset(files, format="parquet").to_table(
        columns=_COLUMNS[table], filter=ds.field("doc_id").isin(doc_ids)
    )
    rows: list[Row] = found.to_pylist()
    return rows


def _by_document(rows: list[Row], id_column: str, splits: Splits) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["doc_id"], row["order"], row[id_column])):
        if row[id_column] not in splits.shared:
            found[row["doc_id"]].append(row)
    return found


def _table(row: Row) -> Table:
    columns: list[dict[str, Any]] = json.loads(row["columns_json"] or "[]")
    return Table(
        table_id=row["table_id"],
        element_id=row["element_id"],
        page=row["page"],
        caption=row["caption"] or "",
        columns=tuple(
            Column(item["name"], item["kind"], item.get("unit") or "", tuple(item["values"]))
            for item in columns
        ),
    )


def _chunk(row: Row) -> Chunk:
    return Chunk(
        chunk_id=row["chunk_id"],
        kind=row["kind"],
        text=row["text"],
        page=row["pages"][0] if row["pages"] else 0,
        element_ids=tuple(row["element_ids"] or ()),
        section_path=tuple(row["section_path"] or ()),
    )


def to_module(row: Row) -> Module:
    """A `modules` row as an object."""
    return Module(
        module_id=row["module_id"],
        element_id=row["element_id"],
        doc_id=row["doc_id"],
        name=row["name"],
        ports=tuple(
            Port(port["name"], port["direction"], port["width"], port["type"] or "")
            for port in row["ports"]
        ),
        parameters=tuple(
            Parameter(item["name"], item["value"] or "", item["is_local"])
            for item in row["parameters"]
        ),
        instances=tuple(Instance(item["module"], item["name"]) for item in row["instances"]),
        source=row["source"],
        line_start=row["line_start"],
    )
