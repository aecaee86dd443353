"""The published corpus as the browser reads it: one document's rows, without reading the rest.

In: `WORKSPACE/corpus/`. Rows are sorted by doc_id, so the statistics of the row groups lead to
those of one document. A `Published` belongs to one manifest; files of an older one may be gone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from corpus import timings
from workspace.errors import CorruptWorkspaceError
from workspace.ids import hash_file
from workspace.manifest import MANIFEST_NAME, Manifest, require_manifest
from workspace.shards import Row, iterate_files, manifest_files

STAMP_DIGITS: Final = 16


class Published:
    """The tables that one manifest lists."""

    def __init__(self, folder: Path) -> None:
        """Raises `MissingInputError` when nothing is published in `folder`."""
        self.folder = folder
        self.manifest: Manifest = require_manifest(folder, made_by="ingest")
        self.stamp = manifest_stamp(folder)
        self._datasets: dict[str, Any] = {}

    def has(self, table: str) -> bool:
        """Whether `table` is published; not every corpus has every table."""
        return bool(manifest_files(self.folder, self.manifest, table))

    def columns(self, table: str) -> list[str]:
        return list(self._dataset(table).schema.names)

    def cell_fields(self) -> set[str]:
        """Fields of the cells of tables; in corpora of an earlier version they have no page."""
        cells = self._dataset("tables").schema.field("cells").type
        return {field.name for field in cells.value_type}

    def rows(
        self, table: str, doc_id: str, columns: Sequence[str] | None = None, **equal: object
    ) -> list[Row]:
        """Rows of one document in the table's order, narrowed to those with the values `equal`."""
        condition = ds.field("doc_id") == doc_id
        for name, value in equal.items():
            condition &= ds.field(name) == value
        try:
            found = self._dataset(table).to_table(
                columns=list(columns) if columns else None, filter=condition
            )
        except OSError as error:
            raise CorruptWorkspaceError(f"table {table}: {error}") from error
        rows: list[Row] = found.to_pylist()
        return rows

    def all_rows(self, table: str, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Every row, a batch in memory at a time."""
        files = manifest_files(self.folder, self.manifest, table)
        return iterate_files(files, columns)

    @cached_property
    def cpu_s(self) -> dict[str, timings.CpuSeconds]:
        """CPU seconds by document and step; empty when ingest did not record them."""
        return timings.read(self.folder, self.manifest)

    def _dataset(self, table: str) -> Any:
        if table not in self._datasets:
            files = [str(path) for path in manifest_files(self.folder, self.manifest, table)]
            if not files:
                raise CorruptWorkspaceError(f"{self.folder} holds no table {table!r}")
            self._datasets[table] = ds.dataset(files, format="parquet")
        return self._datasets[table]


def with_places(elements: Iterable[Row]) -> Iterator[tuple[Row, int]]:
    """Each element, in the order of the table, with its place on its page (from 0)."""
    document = ""
    seen: Counter[int] = Counter()
    for row in elements:
        if row["doc_id"] != document:
            document, seen = row["doc_id"], Counter()
        yield row, seen[row["page"]]
        seen[row["page"]] += 1


def manifest_stamp(folder: Path) -> str:
    """Changes whenever the corpus is published anew, also under the same key."""
    return hash_file(folder / MANIFEST_NAME)[:STAMP_DIGITS]


def media_type(data: bytes) -> str:
    """Of a page's or figure's picture; anything but a known raster format is served as bytes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/octet-stream"


def text_digest(text: str) -> str:
    """A short id for things that have none, such as an unreadable file's path."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
