"""Parquet tables in shards: bounded memory both ways, deterministic bytes.

A table is a folder of `part-00000.parquet`, ... inside a stage's folder. Row order is the
writer's, so writers sort by id first. The manifest lists the shards that count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from workspace import publish
from workspace.errors import CorruptWorkspaceError
from workspace.manifest import FileEntry, Manifest, describe_file, read_manifest

Row = dict[str, Any]

ROW_GROUP_BYTES = 8 << 20
SHARD_BYTES = 256 << 20
ROW_GROUP_ROWS = 10_000


class ShardWriter:
    """Write rows to `folder/<table>/<prefix>-NNNNN.parquet`, holding at most one row group.

    Use as a context manager; on success `files` lists the shards for the manifest, on an error
    nothing of the unfinished shard stays. `flush_bytes` bounds memory, `shard_bytes` file size
    (both count uncompressed bytes).
    """

    def __init__(
        self,
        folder: Path,
        table: str,
        schema: pa.Schema,
        *,
        prefix: str = "part",
        shard_bytes: int = SHARD_BYTES,
        flush_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self.folder = folder
        self.table = table
        self.schema = schema
        self.prefix = prefix
        self.shard_bytes = shard_bytes
        self.flush_bytes = flush_bytes
        self.files: list[FileEntry] = []
        self.rows = 0
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._shard: _OpenShard | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._abandon()
            return
        self._flush()
        # An empty table still has one shard, so that its schema can be read.
        if self._shard is None and not self.files:
            self._open()
        self._close()

    def write(self, row: Row) -> None:
        """Add one row. Raises `pyarrow.ArrowInvalid` (at flush) when it does not fit the schema."""
        self._pending.append(row)
        self._pending_bytes += estimate_bytes(row)
        self.rows += 1
        if self._pending_bytes >= self.flush_bytes or len(self._pending) >= ROW_GROUP_ROWS:
            self._flush()

    def write_all(self, rows: Iterable[Row]) -> None:
        """Add each of `rows`."""
        for row in rows:
            self.write(row)

    def _flush(self) -> None:
        if not self._pending:
            return
        batch = pa.Table.from_pylist(self._pending, schema=self.schema)
        shard = self._shard or self._open()
        shard.writer.write_table(batch, row_group_size=len(self._pending))
        shard.rows += len(self._pending)
        shard.bytes += self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if shard.bytes >= self.shard_bytes:
            self._close()

    def _open(self) -> _OpenShard:
        name = f"{self.prefix}-{len(self.files):05d}.parquet"
        self._shard = _OpenShard(self.folder / self.table / name, self.schema)
        return self._shard

    def _close(self) -> None:
        if self._shard is None:
            return
        shard, self._shard = self._shard, None
        shard.finish()
        self.files.append(describe_file(self.folder, shard.target, shard.rows))

    def _abandon(self) -> None:
        if self._shard is not None:
            self._shard.abandon()
            self._shard = None


class _OpenShard:
    """A shard under its temporary name."""

    def __init__(self, target: Path, schema: pa.Schema) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self.target = target
        self.rows = 0
        self.bytes = 0
        self._context = publish.atomic_path(target)
        self._temporary = self._context.__enter__()
        self.writer = pq.ParquetWriter(
            self._temporary, schema, compression="zstd", store_schema=True
        )

    def finish(self) -> None:
        try:
            self.writer.close()
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise
        self._context.__exit__(None, None, None)

    def abandon(self) -> None:
        self.writer.close()
        self._temporary.unlink(missing_ok=True)


def write_table(
    folder: Path, table: str, schema: pa.Schema, rows: Iterable[Row], *, prefix: str = "part"
) -> list[FileEntry]:
    """Write all `rows` as one table; returns the shards for the manifest."""
    with ShardWriter(folder, table, schema, prefix=prefix) as writer:
        writer.write_all(rows)
    return writer.files


def table_files(folder: Path, table: str) -> list[Path]:
    """The shards of a published table, in order."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptWorkspaceError(f"{folder} holds no manifest, so no table {table!r}")
    return manifest_files(folder, manifest, table)


def manifest_files(folder: Path, manifest: Manifest, table: str) -> list[Path]:
    """The shards of `table` that `manifest` lists, in order."""
    prefix = f"{table}/"
    return [
        folder / entry.path
        for entry in manifest.files
        if entry.path.startswith(prefix) and entry.path.endswith(".parquet")
    ]


def iterate_rows(
    folder: Path,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = 1024,
) -> Iterator[Row]:
    """Rows of a published table as dicts, one batch in memory at a time."""
    return iterate_files(table_files(folder, table), columns, batch_rows=batch_rows)


def iterate_files(
    files: Iterable[Path], columns: Sequence[str] | None = None, *, batch_rows: int = 1024
) -> Iterator[Row]:
    """Rows of Parquet files as dicts, one batch in memory at a time."""
    for path in files:
        try:
            with pq.ParquetFile(path) as shard:
                for batch in shard.iter_batches(batch_size=batch_rows, columns=columns):
                    yield from batch.to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptWorkspaceError(f"{path} cannot be read: {error}") from error


def read_table(folder: Path, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole published table (for small tables and tests)."""
    parts = [pq.read_table(path, columns=columns) for path in table_files(folder, table)]
    return pa.concat_tables(parts)


def remove_unlisted(folder: Path, manifest: Manifest) -> None:
    """Delete Parquet files under `folder` that `manifest` does not list. Call after publishing."""
    listed = {entry.path for entry in manifest.files}
    for path in folder.glob("*/*.parquet"):
        if path.relative_to(folder).as_posix() not in listed:
            path.unlink()


def estimate_bytes(value: Any) -> int:
    """About what `value` takes uncompressed."""
    if isinstance(value, (str, bytes)):
        return len(value) + 8
    if isinstance(value, Mapping):
        return sum(estimate_bytes(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return 8 + sum(estimate_bytes(item) for item in value)
    return 8
