"""Given files -> `SourceList`: hashed, with the documents inside them, to a limited depth.

In: `GivenFiles`. Archives and mails are unpacked by an `Unpacker`, level by level; each child is a
document with the uri `container!/member`, and becomes a container itself if it holds more. What
cannot be had is in `refused` with its reason, so that each file and each child is accounted for.
The order of the sources does not matter: levels and members are taken in order of their uris.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from corpus.children import Listing
from corpus.given_files import GivenFile, GivenFiles, is_hidden
from corpus.remote import Downloads
from corpus.sniff import ARCHIVES, CONTAINERS, HEAD_BYTES, may_hold_documents
from corpus.sources import (
    MEMBER,
    Given,
    Refused,
    Source,
    SourceList,
    in_order,
    uri_name,
    uri_suffix,
)
from corpus.unpacking import Candidate, Unpacker
from workspace.ids import hash_file


@dataclass(frozen=True)
class _Node:
    """One place of one document."""

    uri: str
    doc_id: str
    bytes: int
    local: Path
    may_hold: bool
    depth: int = 0
    parent_id: str = ""
    root: str = ""  # uri of the given file above it
    given: Given = field(default_factory=Given)
    passwords: tuple[str, ...] = field(default=(), repr=False)


@dataclass
class Discovered:
    """The list, and the passwords to try by document."""

    sources: SourceList
    passwords: dict[str, tuple[str, ...]] = field(repr=False)


def find_sources(
    given: GivenFiles, unpacker: Unpacker | None = None, passwords: tuple[str, ...] = ()
) -> Discovered:
    """Hash, unpack, account. Without `unpacker`, containers stay closed."""
    tree = _Tree(given, unpacker, passwords)
    tree.read_given()
    level = tree.nodes
    while level and unpacker is not None:
        level = tree.open_level(level, unpacker)
    return Discovered(tree.source_list(), tree.passwords())


class _Tree:
    def __init__(
        self, given: GivenFiles, unpacker: Unpacker | None, passwords: tuple[str, ...]
    ) -> None:
        self._given = given
        self._unpacker = unpacker
        self._passwords = passwords
        self.nodes: list[_Node] = []
        self.refused: list[Refused] = []
        self._hidden = 0
        self._excluded = 0
        self._members: dict[str, int] = defaultdict(int)  # by root
        self._bytes: dict[str, int] = defaultdict(int)

    def read_given(self) -> None:
        """Hash every given file; downloads first."""
        files = sorted(self._given.files.values(), key=lambda file: file.uri)
        for file in files:
            if file.remote is None:
                self._read_local(file)
        remote = [file for file in files if file.remote is not None]
        if remote:
            assert self._given.downloads is not None and self._unpacker is not None
            self._read_remote(remote, self._given.downloads, self._unpacker)

    def _read_local(self, file: GivenFile) -> None:
        path = Path(file.uri)
        try:
            with path.open("rb") as stream:
                head = stream.read(HEAD_BYTES)
            doc_id, size = hash_file(path), path.stat().st_size
        except OSError as error:
            self._refuse(file.uri, "unreadable", str(error.strerror))
            return
        may_hold = may_hold_documents(head, uri_suffix(file.uri))
        self._add_root(file, doc_id, size, path, may_hold)

    def _read_remote(
        self, files: list[GivenFile], downloads: Downloads, unpacker: Unpacker
    ) -> None:
        fetched = downloads.fetch_all(file.remote for file in files if file.remote is not None)
        for file, (_, got) in zip(files, fetched, strict=True):
            if got.reason:
                self._refuse(file.uri, got.reason, got.detail)
            else:
                if file.remote is not None:
                    unpacker.remote.setdefault(got.doc_id, file.remote)
                # Unchanged ones are not on disk: the record of their listing says what they hold.
                path = downloads.files / got.doc_id
                self._add_root(file, got.doc_id, got.bytes, path, may_hold=True)

    def _add_root(
        self, file: GivenFile, doc_id: str, size: int, path: Path, may_hold: bool
    ) -> None:
        tried = tuple(dict.fromkeys([*file.passwords, *self._passwords]))
        self.nodes.append(
            _Node(
                uri=file.uri,
                doc_id=doc_id,
                bytes=size,
                local=path,
                may_hold=may_hold,
                root=file.uri,
                given=file.given,
                passwords=tried,
            )
        )

    def _refuse(self, uri: str, reason: str, detail: str) -> None:
        self.refused.append(Refused(uri, reason, detail))

    def open_level(self, level: list[_Node], unpacker: Unpacker) -> list[_Node]:
        """Unpack the containers of one level; returns the next."""
        closed = [node for node in level if node.may_hold]
        closed.sort(key=lambda node: node.uri)
        tried = self.passwords()
        candidates: dict[tuple[str, str], Candidate] = {}
        for node in closed:
            candidate = Candidate(
                node.doc_id,
                node.local,
                uri_name(node.uri),
                node.bytes,
                tried.get(node.doc_id, ()),
            )
            candidates.setdefault(candidate.key, candidate)
        listings = unpacker.list_all(list(candidates.values()))
        below: list[_Node] = []
        for node in closed:
            below += self._open(node, listings[node.doc_id, uri_name(node.uri)], unpacker)
        self.nodes += below
        return below

    def _open(self, node: _Node, listing: Listing, unpacker: Unpacker) -> Iterator[_Node]:
        limits = unpacker.limits
        reason, detail = listing.reason, listing.detail
        holds_some = bool(listing.children or listing.lost)
        if listing.format in ARCHIVES and not holds_some and not reason:
            reason, detail = "empty", "the archive holds no files"
        elif holds_some and node.depth >= limits.depth:
            reason, detail = "nested_too_deep", f"below {node.depth} others; raise archive_depth"
        elif holds_some:
            self._members[node.root] += len(listing.children) + len(listing.lost)
            self._bytes[node.root] += sum(child.bytes for child in listing.children)
            if self._members[node.root] > limits.members:
                detail = f"more than {limits.members} members below {node.root}"
                reason, detail = "too_large", f"{detail}; raise archive_max_members"
            elif self._bytes[node.root] > limits.total_bytes:
                detail = f"unpacks to more than {limits.total_bytes >> 20} MB below {node.root}"
                reason, detail = "too_large", f"{detail}; raise archive_max_mb"
        if reason:
            self.refused.append(Refused(node.uri, reason, detail, node.doc_id, node.bytes))
            self.nodes.remove(node)
        if reason in ("nested_too_deep", "too_large"):
            return
        for item in listing.lost:
            if self._is_wanted(item.name):
                self._refuse(f"{node.uri}{MEMBER}{item.name}", item.reason, item.detail)
        for child in listing.children:
            if self._is_wanted(child.name):
                yield _Node(
                    uri=f"{node.uri}{MEMBER}{child.name}",
                    doc_id=child.doc_id,
                    bytes=child.bytes,
                    local=unpacker.files / child.doc_id,
                    may_hold=child.format in CONTAINERS,
                    depth=node.depth + 1,
                    parent_id=node.doc_id,
                    root=node.root,
                    given=node.given.for_child(),
                    passwords=node.passwords,
                )

    def _is_wanted(self, member: str) -> bool:
        if is_hidden(member):
            self._hidden += 1
            return False
        if not self._given.patterns.take(member):
            self._excluded += 1
            return False
        return True

    def source_list(self) -> SourceList:
        by_id: dict[str, list[_Node]] = defaultdict(list)
        for node in self.nodes:
            by_id[node.doc_id].append(node)
        return SourceList(
            documents=tuple(_source(by_id[doc_id]) for doc_id in sorted(by_id)),
            refused=tuple(sorted(self.refused, key=lambda item: (item.uri, item.reason))),
            hidden=len(self._given.hidden) + self._hidden,
            excluded=len(self._given.excluded - self._given.files.keys()) + self._excluded,
        )

    def passwords(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for node in sorted(self.nodes, key=lambda node: (node.depth, node.uri)):
            found[node.doc_id].update(dict.fromkeys(node.passwords))
        return {doc_id: tuple(names) for doc_id, names in found.items() if names}


def _source(nodes: Iterable[_Node]) -> Source:
    """The same bytes in several places; a file of its own comes before members of others."""
    by_uri = {node.uri: node for node in nodes}
    ordered = [by_uri[uri] for uri in in_order(by_uri)]
    first = ordered[0]
    given = first.given
    for node in ordered[1:]:
        given = given.merged(node.given)
    return Source(
        doc_id=first.doc_id,
        uris=tuple(node.uri for node in ordered),
        bytes=first.bytes,
        local="" if str(first.local) == first.uri else str(first.local),
        parent_id=first.parent_id,
        given=given,
    )
