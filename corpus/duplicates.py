"""What the corpus holds more than once: rows of the `duplicates` table, and what later stages skip.

In: the merged shards of `documents`, `pages`, `images` and `fingerprints`. Out: one row for each
member of each group, sorted by kind and group, whatever the order in which documents came:

    exact    the same bytes under several uris; a member is a uri
    near     the same text in another format or edition (`corpus.duplicate_documents`)
    variant  the same words with other numbers: kept apart, since they say different things
    page     pages of equal words and pictures
    image    one picture in several places (`corpus.duplicate_images`), e.g. a logo on every page

Everything is linked, nothing dropped: `redundant_documents` gives the ids that a reader may skip.
Memory: about 1 kB a document, 100 bytes a page and 250 a picture, and the number places of those
documents that share a band with another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.duplicate_documents import (
    Likeness,
    Member,
    Sketch,
    candidates,
    group_documents,
    groups,
)
from corpus.duplicate_images import Picture, group_pictures
from workspace.ids import derive_id
from workspace.manifest import FileEntry
from workspace.shards import Row, iterate_files, iterate_rows

KINDS: Final = ("exact", "near", "variant", "page", "image")

_SAME: Final = Likeness("", 1.0, 1.0)
_SKETCH: Final = [
    "doc_id", "n_words", "words_hash", "text_hash", "signature", "plain_signature",
]  # fmt: skip
_IMAGE: Final = [
    "image_id", "doc_id", "page", "order", "width_px", "height_px", "sha256", "phash",
    "repeated_on",
]  # fmt: skip


def duplicate_rows(folder: Path, files: Sequence[FileEntry], threshold: float) -> Iterator[Row]:
    """All rows; `threshold` is the least similarity of near duplicates and variants."""
    tables = _Tables(folder, files)
    yield from _exact_rows(tables)
    members = _near_members(tables, threshold)
    for kind in ("near", "variant"):
        yield from _document_rows(kind, groups(members, kind))
    yield from _page_rows(tables)
    yield from _image_rows(tables)


def redundant_documents(folder: Path) -> frozenset[str]:
    """Ids of documents of which a near duplicate, their group's representative, says the same."""
    columns = ["kind", "doc_id", "is_representative"]
    return frozenset(
        row["doc_id"]
        for row in iterate_rows(folder, "duplicates", columns)
        if row["kind"] == "near" and not row["is_representative"]
    )


class _Tables:
    """The shards that were just merged."""

    def __init__(self, folder: Path, files: Sequence[FileEntry]) -> None:
        self._folder = folder
        self._files = files

    def paths(self, table: str) -> list[Path]:
        return [self._folder / f.path for f in self._files if f.path.startswith(f"{table}/")]

    def rows(self, table: str, columns: list[str], batch_rows: int = 1024) -> Iterator[Row]:
        return iterate_files(self.paths(table), columns, batch_rows=batch_rows)

    def read(self, table: str, columns: list[str]) -> pa.Table:
        return pa.concat_tables(pq.read_table(path, columns=columns) for path in self.paths(table))


def _exact_rows(tables: _Tables) -> Iterator[Row]:
    found = [
        (derive_id("exact", row["doc_id"]), row)
        for row in tables.rows("documents", ["doc_id", "uris"])
        if len(row["uris"]) > 1
    ]
    for group_id, row in sorted(found, key=lambda pair: pair[0]):
        for uri in row["uris"]:
            yield _row("exact", group_id, len(row["uris"]), row["doc_id"], uri == row["uris"][0],
                       uri=uri)  # fmt: skip


def _near_members(tables: _Tables, threshold: float) -> list[Member]:
    sketches = [_sketch(row) for row in tables.rows("fingerprints", _SKETCH)]
    wanted = candidates(sketches)
    places = {
        row["doc_id"]: np.frombuffer(row["places"], np.uint64).reshape(-1, 2)
        for row in tables.rows("fingerprints", ["doc_id", "places"], batch_rows=256)
        if row["doc_id"] in wanted
    }
    return group_documents(sketches, places, threshold)


def _sketch(row: Row) -> Sketch:
    return Sketch(
        row["doc_id"],
        row["n_words"],
        row["words_hash"],
        row["text_hash"],
        np.frombuffer(row["signature"], np.uint32),
        np.frombuffer(row["plain_signature"], np.uint32),
    )


def _document_rows(kind: str, found: dict[str, list[Member]]) -> Iterator[Row]:
    named = {derive_id(kind, first): (first, members) for first, members in found.items()}
    for group_id, (first, members) in sorted(named.items()):
        everyone = [(first, _SAME), *((member.doc_id, member.likeness) for member in members)]
        for doc_id, likeness in sorted(everyone):
            yield _row(kind, group_id, len(everyone), doc_id, doc_id == first, likeness=likeness)


def _page_rows(tables: _Tables) -> Iterator[Row]:
    pages = tables.read("pages", ["doc_id", "page", "content_hash"])
    pages = pages.filter(pc.not_equal(pages["content_hash"], ""))
    counts = pages.group_by("content_hash").aggregate([("page", "count")])
    repeated = counts.filter(pc.greater(counts["page_count"], 1))["content_hash"]
    pages = pages.filter(pc.is_in(pages["content_hash"], repeated.combine_chunks()))
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in pages.to_pylist():
        places[row["content_hash"]].append((row["doc_id"], row["page"]))
    for group_id, found in sorted(
        (derive_id("page", key), sorted(at)) for key, at in places.items()
    ):
        for place in found:
            yield _row("page", group_id, len(found), place[0], place == found[0], page=place[1])


def _image_rows(tables: _Tables) -> Iterator[Row]:
    images = tables.read("images", _IMAGE).to_pylist()
    alike = group_pictures(_pictures(images))
    places: dict[str, list[Row]] = defaultdict(list)
    for image in images:
        match = alike[image["sha256"]]
        for page in [image["page"], *(image["repeated_on"] or ())]:
            place = {**image, "page": page, "similarity": match.similarity}
            places[match.representative].append(place)
    named = sorted((derive_id("image", sha), sha) for sha, at in places.items() if len(at) > 1)
    for group_id, sha256 in named:
        yield from _picture_rows(group_id, sha256, places[sha256])


def _picture_rows(group_id: str, representative: str, places: list[Row]) -> Iterator[Row]:
    places.sort(key=lambda place: (place["doc_id"], place["page"], place["order"]))
    first = next(place for place in places if place["sha256"] == representative)
    for place in places:
        likeness = Likeness("", place["similarity"], 1.0)
        yield _row("image", group_id, len(places), place["doc_id"], place is first,
                   page=place["page"], image_id=place["image_id"], likeness=likeness)  # fmt: skip


def _pictures(images: Iterable[Row]) -> list[Picture]:
    times: Counter[str] = Counter()
    found: dict[str, Picture] = {}
    for row in images:
        digest = row["sha256"]
        times[digest] += 1 + len(row["repeated_on"] or ())
        found[digest] = Picture(
            digest, row["phash"] or "", row["width_px"], row["height_px"], times[digest]
        )
    return list(found.values())


def _row(
    kind: str,
    group_id: str,
    n_members: int,
    doc_id: str,
    is_representative: bool,
    *,
    uri: str = "",
    page: int = 0,
    image_id: str = "",
    likeness: Likeness = _SAME,
) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "kind": kind,
        "n_members": n_members,
        "doc_id": doc_id,
        "uri": uri,
        "page": page,
        "image_id": image_id,
        "similarity": likeness.similarity,
        "number_agreement": likeness.number_agreement,
        "is_representative": is_representative,
    }
