"""Files, folders and globs -> the list of documents to ingest.

Out: `SourceList`: documents by content hash with every path that has those bytes, the files that
could not be hashed, and counts of what was passed over (hidden files, exclusions). The order of
the sources does not matter.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

from workspace.errors import UserError
from workspace.ids import hash_file


@dataclass(frozen=True)
class Source:
    """One document: the same bytes under one or more paths, sorted."""

    doc_id: str
    uris: tuple[str, ...]
    bytes: int
    local: str = ""  # the file with the bytes, where the first uri is not one

    @property
    def path(self) -> Path:
        return Path(self.local or self.uris[0])

    @property
    def name(self) -> str:
        return Path(self.uris[0]).name

    @property
    def suffix(self) -> str:
        """Lower case with the dot; tells kinds of plain text apart."""
        return Path(self.uris[0]).suffix.lower()


@dataclass(frozen=True)
class UnreadableSource:
    uri: str
    detail: str


@dataclass(frozen=True)
class SourceList:
    """All given files. `documents` is sorted by doc_id, `unreadable` by uri."""

    documents: tuple[Source, ...]
    unreadable: tuple[UnreadableSource, ...] = ()
    hidden: int = 0
    excluded: int = 0

    @property
    def n_files(self) -> int:
        return sum(len(source.uris) for source in self.documents) + len(self.unreadable)

    @property
    def uris(self) -> set[str]:
        found = {uri for source in self.documents for uri in source.uris}
        return found | {source.uri for source in self.unreadable}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        documents = (Source(**{**item, "uris": tuple(item["uris"])}) for item in value["documents"])
        unreadable = (UnreadableSource(**item) for item in value["unreadable"])
        return cls(tuple(documents), tuple(unreadable), value["hidden"], value["excluded"])


@dataclass
class _Walk:
    include: Sequence[str]
    exclude: Sequence[str]
    files: set[Path] = field(default_factory=set)
    hidden: set[Path] = field(default_factory=set)
    excluded: set[Path] = field(default_factory=set)

    def add(self, path: Path, relative: str) -> None:
        wanted = not self.include or _matches(relative, self.include)
        if wanted and not _matches(relative, self.exclude):
            self.files.add(path)
        else:
            self.excluded.add(path)

    def add_folder(self, folder: Path) -> None:
        for root, names, files in os.walk(folder, onerror=_raise):
            here = Path(root)
            hidden = [name for name in names if name.startswith(".")]
            self.hidden.update(here / name for name in hidden)
            names[:] = sorted(set(names) - set(hidden))
            for name in files:
                path = here / name
                if name.startswith("."):
                    self.hidden.add(path)
                else:
                    self.add(path, path.relative_to(folder).as_posix())


def _raise(error: OSError) -> None:
    raise UserError(f"folder {error.filename} cannot be listed: {error.strerror}") from error


def find_sources(
    sources: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> SourceList:
    """Enumerate and hash. Raises `UserError` naming a source that is missing or has no file."""
    if not sources:
        raise UserError("sources: name at least one file, folder or glob")
    walk = _Walk(include, exclude)
    for source in sources:
        _add_source(walk, source)
    documents: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    unreadable = []
    for path in sorted(walk.files):
        try:
            doc_id = hash_file(path)
            sizes[doc_id] = path.stat().st_size
        except OSError as error:
            unreadable.append(UnreadableSource(path.as_posix(), str(error.strerror)))
            continue
        documents.setdefault(doc_id, []).append(path.as_posix())
    return SourceList(
        documents=tuple(
            Source(doc_id, tuple(uris), sizes[doc_id]) for doc_id, uris in sorted(documents.items())
        ),
        unreadable=tuple(unreadable),
        hidden=len(walk.hidden),
        excluded=len(walk.excluded - walk.files),
    )


def _add_source(walk: _Walk, source: str) -> None:
    before = len(walk.files) + len(walk.excluded)
    for path in _expand(source):
        if path.is_dir():
            walk.add_folder(path)
        elif path.is_file():
            walk.add(path, path.name)
        else:
            raise UserError(f"source {source!r}: {path} is neither a file nor a folder")
    if len(walk.files) + len(walk.excluded) == before and not _seen(walk, source):
        raise UserError(f"source {source!r} holds no file; check the path and the hidden files")


def _seen(walk: _Walk, source: str) -> bool:
    """Whether files of this source came in with an earlier one (the same folder given twice)."""
    known = walk.files | walk.excluded
    return any(
        path in known or any(path in file.parents for file in known) for path in _expand(source)
    )


def _expand(source: str) -> Iterator[Path]:
    plain = source.removeprefix("file://")
    if "://" in plain:
        raise UserError(f"source {source!r}: only local paths are read; mount or download it first")
    # Not resolved: a link's own name is what the user knows the document by.
    path = Path(os.path.normpath(Path(plain).expanduser().absolute()))
    if path.exists():
        yield path
    elif glob.has_magic(plain):
        # Path.glob takes no absolute pattern.
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
        if not matches:
            raise UserError(f"source {source!r}: nothing matches this pattern")
        yield from (Path(match) for match in matches)
    else:
        raise UserError(f"source {source!r} does not exist")


def _matches(relative: str, patterns: Sequence[str]) -> bool:
    name = relative.rsplit("/", 1)[-1]
    return any(fnmatch(relative, pattern) or fnmatch(name, pattern) for pattern in patterns)
