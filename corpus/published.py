"""What a workspace's corpus holds, as far as planning the next run needs to know.

Read from the manifest and from a few columns of `documents` and `quarantine`. `select` joins it
with the sources of a run: a run adds to what is there, or mirrors its sources with `--sync`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from corpus.quarantine import Tries
from corpus.sources import Given, Refused, Source, SourceList, containers_of, in_order, is_url
from workspace.errors import CorruptWorkspaceError, UserError
from workspace.ids import hash_file
from workspace.manifest import FileEntry, Manifest, find_published, read_manifest
from workspace.shards import Row, iterate_files, manifest_files

# Note of the manifest: documents whose rows are of other settings, and of which.
KEPT: Final = "kept_from_other_settings"
# Input of a manifest: how often documents that failed were tried. The same documents, tried again,
# may come to something else; what is done is told by the other inputs.
ATTEMPTS: Final = "attempts"

# Stage of quarantine rows about what was given up before it was parsed.
UNPACK_STAGE: Final = "unpack"


class Held(NamedTuple):
    """A document of the corpus; `reasons` are those of its quarantine rows.

    `is_refused` when it was given up before it was parsed, e.g. an archive that is too large.
    """

    source: Source
    generation: str
    reasons: frozenset[str]
    is_refused: bool = False


class Published(NamedTuple):
    """`intact` says that all tables are there, `complete` all files that the manifest lists."""

    manifest: Manifest
    intact: bool
    complete: bool
    documents: Mapping[str, Held]
    refused: Mapping[str, Refused]  # those whose bytes could not be had, by uri

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
    refused: dict[str, Refused] = {}
    unpacked: set[str] = set()
    described: dict[str, tuple[str, Given]] = {}
    columns = ["doc_id", "uris", "bytes", "parent_id", "title", "licence", "tags", "metadata_json"]
    for row in _rows(folder, manifest, "documents", columns):
        uris[row["doc_id"]].update(row["uris"])
        sizes[row["doc_id"]] = row["bytes"]
        described[row["doc_id"]] = (row["parent_id"], given_of(row))
    columns = ["doc_id", "uri", "page", "stage", "reason", "bytes", "detail"]
    for row in _rows(folder, manifest, "quarantine", columns):
        if not row["doc_id"]:
            refused[row["uri"]] = Refused(row["uri"], row["reason"], row["detail"])
            continue
        if row["stage"] == UNPACK_STAGE:
            unpacked.add(row["doc_id"])
        uris[row["doc_id"]].add(row["uri"])
        sizes[row["doc_id"]] = row["bytes"]
        reasons[row["doc_id"]].add(row["reason"])
    documents = {
        doc_id: Held(
            _source(doc_id, uris[doc_id], sizes[doc_id], *described.get(doc_id, ("", Given()))),
            kept.get(doc_id, generation),
            frozenset(reasons[doc_id]),
            is_refused=doc_id in unpacked,
        )
        for doc_id in sorted(uris)
    }
    complete = find_published(folder, manifest.key) is not None
    intact = complete or all(
        _is_whole(folder, entry) for entry in manifest.files if entry.path.endswith(".parquet")
    )
    return Published(manifest, intact, complete, documents, refused)


def _is_whole(folder: Path, entry: FileEntry) -> bool:
    path = folder / entry.path
    return path.is_file() and path.stat().st_size == entry.bytes


def _source(doc_id: str, uris: set[str], size: int, parent_id: str, given: Given) -> Source:
    return Source(doc_id, in_order(uris), size, parent_id=parent_id, given=given)


def given_of(row: Row) -> Given:
    """What a source list said of a published document."""
    metadata: dict[str, str] = json.loads(row["metadata_json"])
    return Given(
        title=row["title"] if "document.title" in metadata else "",
        licence=row["licence"] if "document.licence" in metadata else "",
        tags=tuple(row["tags"]),
        metadata=tuple(sorted(item for item in metadata.items() if item[0].startswith("list."))),
    )


def select(
    found: SourceList,
    published: Published | None,
    tries: Tries,
    request: Request,
    opened: Collection[str] = (),
) -> Selection:
    """What to hold and what of it to parse. Reads files of earlier runs only where it must.

    `opened` are documents that a password was found for.
    """
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
            and source.doc_id not in opened
            and not (held.is_refused and source.doc_id in given)
        )
        if right and not again:
            reused.add(source.doc_id)
        elif held is not None and source.doc_id not in given:
            # What is inside a refused archive is not known, so its own rows stay as they are.
            readable = None if held.is_refused else _find_file(source)
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
    refused = {item.doc_id for item in found.refused}
    for doc_id, held in published.documents.items():
        # A container that is given again says itself what it holds now.
        left = [uri for uri in held.source.uris if taken.isdisjoint((uri, *containers_of(uri)))]
        here = documents.get(doc_id)
        if here is not None:
            # A file that was moved is known by its new name alone.
            there = [uri for uri in left if _is_there(uri)]
            documents[doc_id] = replace(
                here,
                uris=in_order([*here.uris, *there]),
                local=str(here.path),
                given=here.given.merged(held.source.given),
            )
        elif left and doc_id not in refused:
            documents[doc_id] = replace(held.source, uris=in_order(left))
    # Never read, so there is nothing to keep once it is gone.
    kept = (
        item
        for uri, item in published.refused.items()
        if taken.isdisjoint((uri, *containers_of(uri))) and _is_there(uri)
    )
    return replace(
        found,
        documents=_with_parents(documents),
        refused=tuple(sorted([*found.refused, *kept], key=lambda item: (item.uri, item.reason))),
    )


def _with_parents(documents: Mapping[str, Source]) -> tuple[Source, ...]:
    """In order of doc_id; a document may be first of all in another place now than it was."""
    at = {uri: source.doc_id for source in documents.values() for uri in source.uris}
    found = []
    for _, source in sorted(documents.items()):
        container = next(containers_of(source.uris[0]), "")
        parent_id = at.get(container, source.parent_id) if container else ""
        found.append(replace(source, parent_id=parent_id))
    return tuple(found)


def _is_there(uri: str) -> bool:
    """Whether the file still exists; of a URL nobody knows without asking, so it stays."""
    outer = [*containers_of(uri)][-1:] or [uri]
    return is_url(uri) or Path(outer[0]).exists() or Path(uri).exists()


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
