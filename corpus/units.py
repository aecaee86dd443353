"""Finished documents on disk: folders of small Parquet files that `publish` merges.

    units/<doc_id>/unit.json  documents.parquet  pages.parquet ...  quarantine.parquet
    units/batch-<first>-<last>-<hash>/     the same for many small documents, in order of doc_id

A folder is renamed into place when complete, so that it is there whole or not at all. Small
documents share one, since nine files and their flushes cost more than parsing a page of text.
Names and paths of the source are not in it: the same bytes may lie under several.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.quarantine import is_retried
from corpus.rows import DocumentRows
from corpus.schema import TABLES_BY_NAME
from corpus.sources import Source
from workspace import publish
from workspace.ids import derive_id
from workspace.shards import Row, iterate_files

MARKER = "unit.json"
PAGE_BATCH = 16  # page images held in memory at once

_BATCH = "batch-"
_NAME_DIGITS = 16  # of a doc_id in a batch's name

PageImage = Callable[[int], bytes | None]


class Unit(NamedTuple):
    """What `unit.json` says of a document, and the folder that holds its rows.

    `rows` counts them by table, `rejects` by reason; the source's suffix tells text kinds apart.
    """

    doc_id: str
    suffix: str
    rows: dict[str, int]
    rejects: dict[str, int]
    folder: Path


class UnitTables(NamedTuple):
    """A document's rows by table, before they are written."""

    doc_id: str
    suffix: str
    tables: dict[str, Iterable[Row]]


def parsed_tables(
    rows: DocumentRows, suffix: str, quarantine: list[Row], page_image: PageImage
) -> UnitTables:
    """The tables of a parsed document; `page_image` gives the PNG of a page, or None."""
    tables: dict[str, Iterable[Row]] = {
        "documents": [rows.document],
        "pages": _with_images(rows.pages, page_image),
        "elements": rows.elements,
        "tables": rows.tables,
        "images": rows.images,
        "chunks": rows.chunks,
        "summaries": rows.summaries,
        "modules": rows.modules,
        "fingerprints": rows.fingerprints,
        "quarantine": quarantine,
    }
    return UnitTables(rows.doc_id, suffix, tables)


def quarantined_tables(doc_id: str, suffix: str, row: Row) -> UnitTables:
    """The tables of a document of which nothing could be had."""
    return UnitTables(doc_id, suffix, {"quarantine": [row]})


def write_unit(units: Path, document: UnitTables) -> Unit:
    """Publish one document."""
    (unit,) = _write(units / document.doc_id, [document])
    return unit


def write_batch(units: Path, documents: Sequence[UnitTables]) -> None:
    """Publish small documents, sorted by doc_id, in one folder."""
    ids = [document.doc_id for document in documents]
    assert ids == sorted(set(ids)), "a batch is in order of doc_id, for `UnitRows`"
    ends = f"{ids[0][:_NAME_DIGITS]}-{ids[-1][:_NAME_DIGITS]}"
    _write(units / f"{_BATCH}{ends}-{derive_id(*ids)[:_NAME_DIGITS]}", documents)


def quarantine_row(
    doc_id: str, page: int, stage: str, reason: str, detail: str, *, size: int
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
        "retry": is_retried(reason),
    }


def find_units(units: Path, sources: Sequence[Source]) -> dict[str, Unit]:
    """The units of those of `sources` that are done, made with the suffix that each has now."""
    wanted = {source.doc_id: source.suffix for source in sources}
    if not wanted:
        return {}
    found: dict[str, Unit] = {}
    for folder in _folders(units, min(wanted), max(wanted)):
        for unit in _read(folder):
            if wanted.get(unit.doc_id) == unit.suffix:
                found[unit.doc_id] = unit
    for doc_id in wanted.keys() - found.keys():
        for unit in _read(units / doc_id):
            if unit.suffix == wanted[doc_id]:
                found[doc_id] = unit
    return found


def discard_locked(units: Path, doc_ids: Collection[str]) -> None:
    """Drop what an interrupted run left of documents that had no password then."""
    if not doc_ids:
        return
    for folder in [*units.glob(f"{_BATCH}*"), *(units / doc_id for doc_id in doc_ids)]:
        held = _read(folder)
        if any(unit.doc_id in doc_ids and "encrypted" in unit.rejects for unit in held):
            shutil.rmtree(folder)


class UnitRows:
    """Rows of one table by unit; ask in ascending order of doc_id."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._batches: dict[Path, RowGroups] = {}

    def of(self, unit: Unit) -> Iterator[Row]:
        if not unit.rows.get(self._table):
            return iter(())
        if not unit.folder.name.startswith(_BATCH):
            return self._read(unit.folder)
        if unit.folder not in self._batches:
            self._batches[unit.folder] = RowGroups(self._read(unit.folder))
        return self._batches[unit.folder].of(unit.doc_id)

    def _read(self, folder: Path) -> Iterator[Row]:
        return iterate_files([folder / f"{self._table}.parquet"], batch_rows=PAGE_BATCH)


class RewrittenSummaries:
    """Summaries that take the place of those in the units, a file a document."""

    def __init__(self, units: Path) -> None:
        self._folder = units.with_name(f"rewritten-{units.name}")

    def has(self, doc_id: str) -> bool:
        return self._path(doc_id).is_file()

    def of(self, doc_id: str) -> Iterator[Row]:
        return iterate_files([self._path(doc_id)])

    def write(self, doc_id: str, rows: list[Row]) -> None:
        """Publish them, whole or not at all."""
        with publish.atomic_path(self._path(doc_id)) as path:
            _write_table(path, TABLES_BY_NAME["summaries"], rows)

    def _path(self, doc_id: str) -> Path:
        return self._folder / f"{doc_id}.parquet"


class RowGroups:
    """Rows in order of doc_id by document; ask in ascending order of doc_id."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._groups = groupby(rows, key=lambda row: str(row["doc_id"]))
        self._ahead: tuple[str, Iterator[Row]] | None = None

    def of(self, doc_id: str) -> Iterator[Row]:
        while self._ahead is None or self._ahead[0] < doc_id:
            self._ahead = next(self._groups, None)
            if self._ahead is None:
                return iter(())
        return self._ahead[1] if self._ahead[0] == doc_id else iter(())


def _folders(units: Path, first: str, last: str) -> Iterator[Path]:
    """Batches that may hold documents from `first` to `last`."""
    for folder in sorted(units.glob(f"{_BATCH}*")):
        _, low, high, _ = folder.name.split("-")
        if low <= last[:_NAME_DIGITS] and high >= first[:_NAME_DIGITS]:
            yield folder


def _read(folder: Path) -> Iterator[Unit]:
    try:
        value = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for doc_id, document in value.items():
        yield Unit(doc_id, document["suffix"], document["rows"], document["rejects"], folder)


def _with_images(pages: list[Row], page_image: PageImage) -> Iterator[Row]:
    for page in pages:
        png = page_image(page["page"])
        yield {**page, "image": {"bytes": png, "path": None} if png else None}


def _write(target: Path, documents: Sequence[UnitTables]) -> list[Unit]:
    found = {document.doc_id: _Counts() for document in documents}
    try:
        with publish.atomic_directory(target) as folder:
            for name, schema in TABLES_BY_NAME.items():
                rows = (
                    found[document.doc_id].count(name, row)
                    for document in documents
                    for row in document.tables.get(name, ())
                )
                _write_table(folder / f"{name}.parquet", schema, rows)
            marker = {
                document.doc_id: {"suffix": document.suffix, **found[document.doc_id].to_json()}
                for document in documents
            }
            (folder / MARKER).write_text(json.dumps(marker, sort_keys=True), encoding="utf-8")
    except OSError as error:
        # A worker that was believed lost wrote the same at the same time.
        if error.errno != errno.ENOTEMPTY or not (target / MARKER).exists():
            raise
    return list(_read(target))


class _Counts:
    """A document's rows by table and rejects by reason, counted as they are written."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._rejects: Counter[str] = Counter()

    def count(self, table: str, row: Row) -> Row:
        self._rows[table] += 1
        if table == "quarantine":
            self._rejects[row["reason"]] += 1
        return row

    def to_json(self) -> dict[str, dict[str, int]]:
        return {"rows": dict(self._rows), "rejects": dict(self._rejects)}


def _write_table(path: Path, schema: pa.Schema, rows: Iterable[Row]) -> None:
    """Write a table if it has rows."""
    batch: list[Row] = []
    writer: pq.ParquetWriter | None = None
    size = PAGE_BATCH if "image" in schema.names else 10_000
    try:
        for row in rows:
            batch.append(row)
            if len(batch) >= size:
                writer = _append(writer, path, schema, batch)
                batch = []
        if batch:
            writer = _append(writer, path, schema, batch)
    finally:
        if writer is not None:
            writer.close()


def _append(
    writer: pq.ParquetWriter | None, path: Path, schema: pa.Schema, batch: list[Row]
) -> pq.ParquetWriter:
    opened = writer or pq.ParquetWriter(path, schema, compression="zstd")
    opened.write_table(pa.Table.from_pylist(batch, schema=schema))
    return opened
