"""One finished document on disk: a folder of small Parquet files that `publish` merges.

    units/<doc_id>/unit.json  documents.parquet  pages.parquet ...  quarantine.parquet

The folder is renamed into place when complete, so that it is there whole or not at all. Names and
paths of the source are not in it: the same bytes may lie under several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.rows import DocumentRows
from corpus.schema import TABLES_BY_NAME
from corpus.sources import Source
from workspace import publish
from workspace.shards import Row, iterate_files

MARKER = "unit.json"
PAGE_BATCH = 16  # page images held in memory at once

PageImage = Callable[[int], bytes | None]


class Unit(NamedTuple):
    """What `unit.json` says: rows by table, and the source's suffix, which tells text kinds."""

    doc_id: str
    suffix: str
    rows: dict[str, int]


def write_unit(
    units: Path,
    rows: DocumentRows,
    suffix: str,
    quarantine: list[Row],
    page_image: PageImage,
) -> Unit:
    """Publish a parsed document; `page_image` gives the PNG of a page, or None."""
    tables: dict[str, Iterable[Row]] = {
        "documents": [rows.document],
        "pages": _with_images(rows.pages, page_image),
        "elements": rows.elements,
        "tables": rows.tables,
        "images": rows.images,
        "chunks": rows.chunks,
        "summaries": rows.summaries,
        "modules": rows.modules,
        "quarantine": quarantine,
    }
    return _write(units, rows.doc_id, suffix, tables)


def write_quarantined(units: Path, doc_id: str, suffix: str, row: Row) -> Unit:
    """Publish a document of which nothing could be had."""
    return _write(units, doc_id, suffix, {"quarantine": [row]})


def quarantine_row(
    doc_id: str, page: int, stage: str, reason: str, detail: str, *, retry: bool, size: int
) -> Row:
    """A row of the quarantine table; `uri` is filled in when the corpus is published."""
    return {
        "doc_id": doc_id,
        "uri": "",
        "page": page,
        "stage": stage,
        "reason": reason,
        "detail": detail[:1000],
        "bytes": size,
        "retry": retry,
    }


def read_unit(units: Path, doc_id: str) -> Unit | None:
    """The unit of `doc_id`, or None when it is not there."""
    try:
        value = json.loads((units / doc_id / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Unit(doc_id, value["suffix"], value["rows"])


def is_done(units: Path, source: Source) -> bool:
    """Whether `source` has its unit, made with the suffix that it has now."""
    unit = read_unit(units, source.doc_id)
    return unit is not None and unit.suffix == source.suffix


def unit_rows(units: Path, unit: Unit, table: str) -> Iterator[Row]:
    """Rows of one table of a unit."""
    if not unit.rows.get(table):
        return iter(())
    path = units / unit.doc_id / f"{table}.parquet"
    return iterate_files([path], batch_rows=PAGE_BATCH)


def _with_images(pages: list[Row], page_image: PageImage) -> Iterator[Row]:
    for page in pages:
        png = page_image(page["page"])
        yield {**page, "image": {"bytes": png, "path": None} if png else None}


def _write(units: Path, doc_id: str, suffix: str, tables: dict[str, Iterable[Row]]) -> Unit:
    counts: dict[str, int] = {}
    with publish.atomic_directory(units / doc_id) as folder:
        for name, rows in tables.items():
            counts[name] = _write_table(folder / f"{name}.parquet", TABLES_BY_NAME[name], rows)
        marker: dict[str, Any] = {"suffix": suffix, "rows": counts}
        (folder / MARKER).write_text(json.dumps(marker, sort_keys=True), encoding="utf-8")
    return Unit(doc_id, suffix, counts)


def _write_table(path: Path, schema: pa.Schema, rows: Iterable[Row]) -> int:
    """Write a table if it has rows; returns how many."""
    batch: list[Row] = []
    count = 0
    writer: pq.ParquetWriter | None = None
    size = PAGE_BATCH if "image" in schema.names else 10_000
    try:
        for row in rows:
            batch.append(row)
            count += 1
            if len(batch) >= size:
                writer = _append(writer, path, schema, batch)
                batch = []
        if batch:
            writer = _append(writer, path, schema, batch)
    finally:
        if writer is not None:
            writer.close()
    return count


def _append(
    writer: pq.ParquetWriter | None, path: Path, schema: pa.Schema, batch: list[Row]
) -> pq.ParquetWriter:
    opened = writer or pq.ParquetWriter(path, schema, compression="zstd")
    opened.write_table(pa.Table.from_pylist(batch, schema=schema))
    return opened
