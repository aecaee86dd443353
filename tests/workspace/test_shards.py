"""Parquet shards: what goes in comes out, in order, whatever the sizes of the parts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workspace.errors import CorruptWorkspaceError
from workspace.ids import hash_file
from workspace.manifest import FileEntry, Manifest, find_published, now, write_manifest
from workspace.shards import ShardWriter, iterate_rows, read_table, remove_unlisted, write_table

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("box", pa.list_(pa.float32()))])


def manifest(files: list[FileEntry], key: str = "k") -> Manifest:
    return Manifest(
        stage="corpus",
        key=key,
        fingerprint="f",
        settings={},
        inputs={},
        code_version="test",
        created=now(),
        files=files,
    )


rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "text": st.none() | st.text(max_size=40),
            "box": st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=4),
        }
    ),
    max_size=60,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of, shard_bytes=st.integers(1, 2000), flush_bytes=st.integers(1, 500))
def test_rows_survive_any_split(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, object]],
    shard_bytes: int,
    flush_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(
        folder, "t", SCHEMA, shard_bytes=shard_bytes, flush_bytes=flush_bytes
    ) as writer:
        writer.write_all(rows)
    write_manifest(folder, manifest(writer.files))
    assert list(iterate_rows(folder, "t")) == rows
    assert sum(entry.rows or 0 for entry in writer.files) == len(rows)
    assert read_table(folder, "t").schema.equals(SCHEMA)


def test_same_rows_same_bytes(tmp_path: Path) -> None:
    rows = [{"id": n, "text": str(n) * 9, "box": [1.0, 2.0]} for n in range(3000)]
    digests = []
    for name in ("a", "b"):
        files = write_table(tmp_path / name, "t", SCHEMA, rows)
        digests.append([entry.sha256 for entry in files])
        assert digests[-1] == [hash_file(tmp_path / name / entry.path) for entry in files]
    assert digests[0] == digests[1]


def test_an_error_leaves_no_shard(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid), ShardWriter(tmp_path, "t", SCHEMA) as writer:
        writer.write({"id": 1, "text": "good", "box": None})
        writer.write({"id": "not a number", "text": "bad", "box": None})
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_lost_or_short_shard_is_not_published_work(tmp_path: Path) -> None:
    files = write_table(tmp_path, "t", SCHEMA, [{"id": 1, "text": "x", "box": None}])
    write_manifest(tmp_path, manifest(files))
    assert find_published(tmp_path, "k") is not None
    assert find_published(tmp_path, "another key") is None
    (tmp_path / files[0].path).write_bytes(b"short")
    assert find_published(tmp_path, "k") is None
    with pytest.raises(CorruptWorkspaceError, match="part-00000"):
        list(iterate_rows(tmp_path, "t"))


def test_readers_see_only_listed_shards(tmp_path: Path) -> None:
    old = write_table(tmp_path, "t", SCHEMA, [{"id": 1, "text": "old", "box": None}], prefix="a")
    write_manifest(tmp_path, manifest(old))
    new = write_table(tmp_path, "t", SCHEMA, [{"id": 2, "text": "new", "box": None}], prefix="b")
    assert [row["text"] for row in iterate_rows(tmp_path, "t")] == ["old"]
    published = manifest(new)
    write_manifest(tmp_path, published)
    remove_unlisted(tmp_path, published)
    assert [row["text"] for row in iterate_rows(tmp_path, "t")] == ["new"]
    assert len(list((tmp_path / "t").iterdir())) == 1


def test_memory_is_bounded_by_the_row_group(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "t", SCHEMA, flush_bytes=10_000) as writer:
        writer.write_all({"id": n, "text": "x" * 1000, "box": None} for n in range(100))
    groups = pq.ParquetFile(tmp_path / writer.files[0].path).metadata
    assert groups.num_row_groups >= 9
