"""What a workspace's corpus holds, as far as planning the next run needs to know.

Read from the manifest and from a few columns of `documents` and `quarantine`. `select` joins it
with the sources of a run: a run adds to what is there, or mirrors its sources with `--sync`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from corpus.quarantine import Tries
from corpus.sources import Source, SourceList, UnreadableSource
from workspace.errors import CorruptWorkspaceError, UserError
from workspace.ids import hash_file
from workspace.manifest import FileEntry, Manifest, find_published, read_manifest
from workspace.shards import Row, iterate_files, manifest_files

# Note of the manifest: documents whose rows are of other settings, and of which.
KEPT: Final = "kept_from_other_settings"
# Input of a manifest: how often documents that failed were tried. The same documents, tried again,
# may come to something else; what is done is told by the other inputs.
ATTEMPTS: Final = "attempts"


class Held(NamedTuple):
    """A document of the corpus; `reasons` are those of its quarantine rows."""

    source: Source
    generation: str
    reasons: frozenset[str]


class Published(NamedTuple):
    """`intact` says that all tables are there, `complete` all files that the manifest lists."""

    manifest: Manifest
    intact: bool
    complete: bool
    documents: Mapping[str, Held]
    unreadable: Mapping[str, str]  # uri -> detail

    def holds(self, fingerprint: str, inputs: Mapping[str, str]) -> bool:
        """Whether it is whole and was made from these inputs with these settings."""
        known = {name: value for name, value in self.manifest.inputs.items() if name != ATTEMPTS}
        return self.complete and self.manifest.fingerprint == fingerprint and known == inputs


class Request(NamedTuple):
    """The settings that decide what is parsed."""

    generation: str
    limits: str
    sync: bool
    retry_quarantined: bool
    max_tries: int


class Selection(NamedTuple):
    """All documents that the corpus is to hold."""

    sources: SourceList
    reused: frozenset[str]  # whose published rows are taken over
    kept: Mapping[str, str]  # those of them with rows of other settings -> generation
    retried: frozenset[str]  # parsed again since they failed


def read_published(folder: Path, *, rebuild: bool) -> Published | None:
    """The corpus in `folder`, or None.

    When its documents cannot be listed: None with `rebuild`, else `CorruptWorkspaceError`.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    try:
        return _read(folder, manifest)
    except CorruptWorkspaceError as error:
        if rebuild:
            return None
        raise CorruptWorkspaceError(
            f"{error}, so nobody knows what the corpus holds: pass --sync to make it again from "
            "the given sources alone"
        ) from error


def _read(folder: Path, manifest: Manifest) -> Published:
    generation = str(manifest.notes.get("generation", ""))
    kept: Mapping[str, str] = manifest.notes.get(KEPT, {})
    uris: dict[str, set[str]] = defaultdict(set)
    sizes: dict[str, int] = {}
    reasons: dict[str, set[str]] = defaultdict(set)
    unreadable: dict[str, str] = {}
    for row in _rows(folder, manifest, "documents", ["doc_id", "uris", "bytes"]):
        uris[row["doc_id"]].update(row["uris"])
        sizes[row["doc_id"]] = row["bytes"]
    columns = ["doc_id", "uri", "page", "reason", "bytes", "detail"]
    for row in _rows(folder, manifest, "quarantine", columns):
        if not row["doc_id"]:
            unreadable[row["uri"]] = row["detail"]
            continue
        uris[row["doc_id"]].add(row["uri"])
        sizes[row["doc_id"]] = row["bytes"]
        reasons[row["doc_id"]].add(row["reason"])
    documents = {
        doc_id: Held(
            Source(doc_id, tuple(sorted(uris[doc_id])), sizes[doc_id]),
            kept.get(doc_id, generation),
            frozenset(reasons[doc_id]),
        )
        for doc_id in sorted(uris)
    }
    complete = find_published(folder, manifest.key) is not None
    intact = complete or all(
        _is_whole(folder, entry) for entry in manifest.files if entry.path.endswith(".parquet")
    )
    return Published(manifest, intact, complete, documents, unreadable)


def _is_whole(folder: Path, entry: FileEntry) -> bool:
    path = folder / entry.path
    return path.is_file() and path.stat().st_size == entry.bytes


def select(
    found: SourceList, published: Published | None, tries: Tries, request: Request
) -> Selection:
    """What to hold and what of it to parse. Reads files of earlier runs only where it must."""
    if published is None:
        return Selection(found, frozenset(), {}, frozenset())
    given = {source.doc_id for source in found.documents}
    sources = found if request.sync else _with_held(found, published)
    chosen: list[Source] = []
    reused: set[str] = set()
    kept: dict[str, str] = {}
    retried: set[str] = set()
    for source in sources.documents:
        held = published.documents.get(source.doc_id)
        again = held is not None and _is_due(source, held, tries, request)
        right = (
            published.intact
            and held is not None
            and held.generation == request.generation
            and held.source.suffix == source.suffix
        )
        if right and not again:
            reused.add(source.doc_id)
        elif held is not None and source.doc_id not in given:
            readable = _find_file(source)
            if readable is not None:
                source = readable
            else:
                _require_rows(published, source)
                reused.add(source.doc_id)
                if held.generation != request.generation:
                    kept[source.doc_id] = held.generation
        if right and source.doc_id not in reused:
            retried.add(source.doc_id)
        chosen.append(source)
    return Selection(
        replace(sources, documents=tuple(chosen)), frozenset(reused), kept, frozenset(retried)
    )


def _is_due(source: Source, held: Held, tries: Tries, request: Request) -> bool:
    if not held.reasons:
        return False
    return request.retry_quarantined or tries.due(
        source.doc_id, held.reasons, limits=request.limits, max_tries=request.max_tries
    )


def _with_held(found: SourceList, published: Published) -> SourceList:
    """Also what earlier runs brought in, but for places that now hold other bytes."""
    taken = found.uris
    documents = {source.doc_id: source for source in found.documents}
    for doc_id, held in published.documents.items():
        left = [uri for uri in held.source.uris if uri not in taken]
        here = documents.get(doc_id)
        if here is not None:
            # A file that was moved is known by its new name alone.
            there = {uri for uri in left if Path(uri).exists()}
            documents[doc_id] = replace(here, uris=tuple(sorted({*here.uris, *there})))
        elif left:
            documents[doc_id] = replace(held.source, uris=tuple(left))
    unreadable = list(found.unreadable)
    for uri, detail in published.unreadable.items():
        # Never read, so there is nothing to keep once it is gone.
        if uri not in taken and Path(uri).exists():
            unreadable.append(UnreadableSource(uri, detail))
    return replace(
        found,
        documents=tuple(documents[doc_id] for doc_id in sorted(documents)),
        unreadable=tuple(sorted(unreadable, key=lambda item: item.uri)),
    )


def _find_file(source: Source) -> Source | None:
    """The source with a place where its bytes still are, or None."""
    for uri in source.uris:
        path = Path(uri)
        try:
            if path.stat().st_size == source.bytes and hash_file(path) == source.doc_id:
                return replace(source, local=uri)
        except OSError:
            continue
    return None


def _require_rows(published: Published, source: Source) -> None:
    if not published.intact:
        raise UserError(
            f"the published corpus is damaged, and {source.uris[0]} is no longer there to be read "
            "again: bring the file back, or pass --sync to leave it out"
        )


def _rows(folder: Path, manifest: Manifest, table: str, columns: list[str]) -> Iterator[Row]:
    return iterate_files(manifest_files(folder, manifest, table), columns)
