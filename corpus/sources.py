"""What ingest reads: documents by content hash, with every place that has those bytes.

A `uri` is the place as the user knows it: a path, a URL, or a member of another document
(`archive.zip!/folder/file.pdf`, `letter.eml!/invoice.pdf`, to any depth). `SourceList` holds all of
them, with what is known to be unreadable already. `corpus.discover` makes it, `corpus.plan_file`
keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

MEMBER: Final = "!/"


@dataclass(frozen=True)
class Given:
    """What a list file says about a document."""

    title: str = ""
    licence: str = ""
    tags: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()

    def merged(self, other: Given) -> Given:
        """This, completed by `other`."""
        return Given(
            title=self.title or other.title,
            licence=self.licence or other.licence,
            tags=tuple(sorted({*self.tags, *other.tags})),
            metadata=tuple(sorted({**dict(other.metadata), **dict(self.metadata)}.items())),
        )

    def for_child(self) -> Given:
        """A licence and tags hold for what is inside, too; a title and the rest do not."""
        return Given(licence=self.licence, tags=self.tags)


@dataclass(frozen=True)
class Source:
    """One document: the same bytes in one or more places; files of their own come first."""

    doc_id: str
    uris: tuple[str, ...]
    bytes: int
    local: str = ""  # the file with the bytes, where the first uri is not one
    parent_id: str = ""  # the document that the first uri is a member of
    given: Given = field(default_factory=Given)

    @property
    def path(self) -> Path:
        return Path(self.local or self.uris[0])

    @property
    def name(self) -> str:
        return uri_name(self.uris[0])

    @property
    def suffix(self) -> str:
        """Lower case with the dot; tells kinds of plain text apart."""
        return uri_suffix(self.uris[0])


@dataclass(frozen=True)
class Refused:
    """A file, or a member, that is known before parsing to have nothing for us."""

    uri: str
    reason: str
    detail: str
    doc_id: str = ""  # "" when the bytes could not be had
    bytes: int = 0


@dataclass(frozen=True)
class SourceList:
    """All given files and their children. `documents` is sorted by doc_id, `refused` by uri."""

    documents: tuple[Source, ...]
    refused: tuple[Refused, ...] = ()
    hidden: int = 0
    excluded: int = 0

    @property
    def n_files(self) -> int:
        return sum(len(source.uris) for source in self.documents) + len(self.refused)

    @property
    def uris(self) -> set[str]:
        found = {uri for source in self.documents for uri in source.uris}
        return found | {item.uri for item in self.refused}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        documents = (
            Source(**{**item, "uris": tuple(item["uris"]), "given": _given(item["given"])})
            for item in value["documents"]
        )
        refused = (Refused(**item) for item in value["refused"])
        return cls(tuple(documents), tuple(refused), value["hidden"], value["excluded"])


def _given(value: dict[str, Any]) -> Given:
    metadata = tuple((name, text) for name, text in value["metadata"])
    return Given(value["title"], value["licence"], tuple(value["tags"]), metadata)


def is_url(text: str) -> bool:
    """Whether `text` names something that is not on this machine's file system."""
    return "://" in text.split(MEMBER, 1)[0] and not text.startswith("file://")


def in_order(uris: Iterable[str]) -> tuple[str, ...]:
    """Each once; files of their own before members of others."""
    return tuple(sorted(set(uris), key=lambda uri: (MEMBER in uri, uri)))


def containers_of(uri: str) -> Iterator[str]:
    """The places that `uri` is inside of, innermost first."""
    while MEMBER in uri:
        uri = uri.rpartition(MEMBER)[0]
        yield uri


def uri_name(uri: str) -> str:
    """The file name in a uri: without folders, containers, and a URL's query."""
    outer, inside, member = uri.rpartition(MEMBER)
    if inside:
        return PurePosixPath(member).name
    if is_url(uri):
        parts = urlsplit(uri)
        return unquote(PurePosixPath(parts.path).name) or parts.netloc
    return Path(member or outer).name


def uri_suffix(uri: str) -> str:
    """Lower case with the dot, "" without one."""
    return PurePosixPath(uri_name(uri)).suffix.lower()
