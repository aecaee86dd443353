"""Sources as a user names them -> the files to read, before anything is opened.

In: files, folders, globs, URLs, `@list.csv`, and list files. Out: `GivenFiles`: each file once,
with what a list says about it, and counts of what was passed over (hidden files, exclusions).
Patterns look at a file's name and at its path inside the source that it came with.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from corpus.remote import Downloads, RemoteFile
from corpus.source_list import ListedSource, read_source_list
from corpus.sources import Given, is_url
from workspace.errors import UserError


@dataclass(frozen=True)
class GivenFile:
    """A local file, or a remote one."""

    uri: str
    remote: RemoteFile | None = None
    given: Given = field(default_factory=Given)
    passwords: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Patterns:
    """Which files are wanted."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def take(self, relative: str) -> bool:
        wanted = not self.include or _matches(relative, self.include)
        return wanted and not _matches(relative, self.exclude)


@dataclass
class GivenFiles:
    """Collects; `files` is by uri."""

    patterns: Patterns
    downloads: Downloads | None = None
    workspace: Path | None = None  # what the stages write is no source
    files: dict[str, GivenFile] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)

    def add(self, source: str) -> None:
        """A file, folder, glob, URL or @list. Raises `UserError` naming a source without files."""
        if source.startswith("@"):
            self.add_list(Path(source[1:]).expanduser())
        elif is_url(source):
            for remote in self._expand_url(source):
                self._add(GivenFile(remote.uri, remote), remote.relative)
        else:
            self._add_local(source)

    def add_list(self, path: Path) -> None:
        """Every entry of a list file; entries that are not there are found out when read."""
        for entry in read_source_list(path):
            self._add_listed(entry)

    def _add_listed(self, entry: ListedSource) -> None:
        if is_url(entry.place):
            if self.downloads is None:
                raise UserError(f"source list {entry.origin}: URLs are not read here")
            remote = self.downloads.name_one(entry.place)
            file, name = GivenFile(remote.uri, remote), remote.relative
        else:
            path = _absolute(entry.place)
            if path.is_dir():
                raise UserError(f"source list {entry.origin}: {path} is a folder; list files")
            file, name = GivenFile(path.as_posix()), path.name
        passwords = (entry.password,) if entry.password else ()
        self._add(replace(file, given=entry.given, passwords=passwords), name)

    def _expand_url(self, url: str) -> list[RemoteFile]:
        if self.downloads is None:
            raise UserError(f"source {url!r}: URLs are not read here")
        return self.downloads.expand(url)

    def _add(self, file: GivenFile, relative: str) -> None:
        if not self.patterns.take(relative):
            self.excluded.add(file.uri)
            return
        known = self.files.get(file.uri)
        if known is not None:
            file = replace(
                known,
                given=known.given.merged(file.given),
                passwords=tuple(sorted({*known.passwords, *file.passwords})),
            )
        self.files[file.uri] = file

    def _add_local(self, source: str) -> None:
        before = len(self.files) + len(self.excluded)
        for path in _expand(source):
            if path.is_dir():
                self._add_folder(path)
            elif path.is_file():
                self._add(GivenFile(path.as_posix()), path.name)
            else:
                raise UserError(f"source {source!r}: {path} is neither a file nor a folder")
        if len(self.files) + len(self.excluded) == before and not self._seen(source):
            raise UserError(f"source {source!r} holds no file; check the path and the hidden files")

    def _add_folder(self, folder: Path) -> None:
        own = None if self.workspace is None else _absolute(str(self.workspace))
        if folder == own:
            raise UserError(
                f"source {str(folder)!r} is the workspace too: give a workspace of its own, for "
                f"instance {folder / 'workspace'}, which is then left out of the sources"
            )
        for root, names, files in os.walk(folder, onerror=_raise):
            here = Path(root)
            hidden = [name for name in names if name.startswith(".")]
            self.hidden.update((here / name).as_posix() for name in hidden)
            names[:] = sorted(set(names) - set(hidden))
            if own is not None and own.parent == here and own.name in names:
                names.remove(own.name)
                self.excluded.add(own.as_posix())
            for name in files:
                path = here / name
                if name.startswith("."):
                    self.hidden.add(path.as_posix())
                else:
                    relative = path.relative_to(folder).as_posix()
                    self._add(GivenFile(path.as_posix()), relative)

    def _seen(self, source: str) -> bool:
        """Whether files of this source came with an earlier one (the same folder given twice)."""
        known = self.files.keys() | self.excluded
        paths = [path.as_posix() for path in _expand(source)]
        return any(path in known or any(k.startswith(f"{path}/") for k in known) for path in paths)


def is_hidden(member: str) -> bool:
    """Whether a name in an archive is hidden, as files in folders are."""
    return any(part.startswith(".") for part in member.split("/"))


def _raise(error: OSError) -> None:
    raise UserError(f"folder {error.filename} cannot be listed: {error.strerror}") from error


def _absolute(source: str) -> Path:
    # Not resolved: a link's own name is what the user knows the document by.
    plain = source.removeprefix("file://")
    return Path(os.path.normpath(Path(plain).expanduser().absolute()))


def _expand(source: str) -> Iterator[Path]:
    path = _absolute(source)
    if path.exists():
        yield path
    elif glob.has_magic(source):
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
