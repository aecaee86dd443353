"""Documents inside a document: members of archives, attachments of mails. Runs in a worker child.

In: a file. Out: a `Listing`, with the bytes of each child stored under its hash in a folder. What
an archive says is not trusted: names are never paths on our disk, sizes and ratios are limited
while unpacking, and everything that is not taken is listed with its reason. A `Listing` is about
one level; `corpus.discover` goes deeper and applies the limits over all levels.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

from corpus.parsed import Unreadable
from corpus.sniff import ARCHIVES, CONTAINERS, sniff
from corpus.sources import uri_suffix
from workspace.publish import TEMPORARY_PREFIX

BLOCK_BYTES: Final = 1 << 20
# Text compresses up to about 60 times; a bomb 1,000 times.
MAX_RATIO: Final = 250
RATIO_FROM_BYTES: Final = 32 << 20
MAX_NAME_CHARS: Final = 500


@dataclass(frozen=True)
class ContainerLimits:
    """Over all levels below one given file, except `member_bytes`."""

    depth: int = 3
    members: int = 10_000
    total_bytes: int = 8 << 30
    member_bytes: int = 512 << 20


@dataclass(frozen=True)
class Child:
    name: str  # with folders, unique in its container
    doc_id: str
    bytes: int
    format: str


@dataclass(frozen=True)
class LostChild:
    name: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Listing:
    """What one file holds. A `reason` says why it, or the rest of it, could not be unpacked."""

    format: str
    children: tuple[Child, ...] = ()
    lost: tuple[LostChild, ...] = ()
    reason: str = ""
    detail: str = ""

    @property
    def is_locked(self) -> bool:
        """Whether passwords might show more."""
        return self.reason == "encrypted" or any(item.reason == "encrypted" for item in self.lost)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        value: dict[str, Any] = json.loads(text)
        children = tuple(Child(**item) for item in value.pop("children"))
        lost = tuple(LostChild(**item) for item in value.pop("lost"))
        return cls(children=children, lost=lost, **value)


def list_children(
    path: Path, name: str, folder: Path, limits: ContainerLimits, passwords: Sequence[str]
) -> Listing:
    """Unpack one level of `path` into `folder`; a format that holds nothing has no children.

    `name` is the file's own: `path` may be a hash.
    """
    from corpus import archives
    from corpus.parsers import mail

    kind = sniff(path, uri_suffix(name))
    if kind not in CONTAINERS:
        return Listing(kind)
    store = MemberStore(folder, limits, path.stat().st_size)
    reason = detail = ""
    try:
        if kind in ARCHIVES:
            archives.unpack(path, kind, name, store, passwords)
        else:
            for attached, data in mail.attachments(path, kind):
                if data is None:
                    store.lose(attached, "unsupported", "the library cannot take it out of the MSG")
                else:
                    store.add_bytes(attached, data)
    except Unreadable as error:
        reason, detail = error.reason, error.detail
    finally:
        store.close()
    if kind not in ARCHIVES and reason != "too_large":
        reason = detail = ""  # the mail's parser will say what is wrong with it
    return Listing(kind, tuple(store.children), tuple(store.lost), reason, detail)


def clean_name(name: str) -> str:
    """A member's name for a uri: relative, without tricks; never used as a path."""
    text = name.replace("\\", "/").encode("utf-8", "replace").decode("utf-8")
    # Control and format characters, and the many spaces and line ends that are no plain space.
    text = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text)
    parts = [part.strip() for part in text[-MAX_NAME_CHARS:].split("/")]
    kept = [part for part in parts if part not in ("", ".", "..")]
    return "/".join(kept) or "unnamed"


@dataclass
class MemberStore:
    """Takes members one by one, and stops at the limits."""

    folder: Path
    limits: ContainerLimits
    packed_bytes: int
    children: list[Child] = field(default_factory=list)
    lost: list[LostChild] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _total: int = 0
    _open: MemberWriter | None = None

    def expect(self, members: int, total_bytes: int) -> None:
        """Refuse an archive by what it says of itself. Raises `Unreadable("too_large")`."""
        if members > self.limits.members:
            raise too_large(f"{members} members, at most {self.limits.members}", "members")
        if total_bytes > self.limits.total_bytes:
            raise too_large(f"unpacks to {total_bytes} bytes", "size")

    def lose(self, name: str, reason: str, detail: str) -> None:
        self.lost.append(LostChild(self._unique(name), reason, detail[:500]))

    def add_bytes(self, name: str, data: bytes) -> None:
        writer = self.begin(name)
        writer.write(data)
        writer.close()

    def add_stream(self, name: str, stream: IO[bytes]) -> None:
        """Raises what the stream raises; the member is then not among the children."""
        writer = self.begin(name)
        try:
            for block in _blocks(stream):
                writer.write(block)
        except BaseException:
            writer.abandon()
            raise
        writer.close()

    def begin(self, name: str) -> MemberWriter:
        """A writer for the next member."""
        self._count()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open = MemberWriter(self, name)
        return self._open

    def forget(self) -> None:
        """Back to empty, after a try with a wrong password."""
        self.close()
        self.children.clear()
        self.lost.clear()
        self._names.clear()
        self._total = 0

    def close(self) -> None:
        """Leave no half-written member."""
        if self._open is not None:
            self._open.abandon()

    def took(self, size: int) -> None:
        self._total += size
        if self._total > self.limits.total_bytes:
            raise too_large(f"unpacks to more than {self.limits.total_bytes} bytes", "size")
        if self._total > RATIO_FROM_BYTES and self._total > MAX_RATIO * self.packed_bytes:
            raise too_large(f"unpacks to more than {MAX_RATIO} times its size", "")

    def keep(self, name: str, file: Path, doc_id: str, size: int) -> None:
        unique = self._unique(name)
        kind = sniff(file, uri_suffix(unique))
        file.replace(self.folder / doc_id)
        self.children.append(Child(unique, doc_id, size, kind))

    def _count(self) -> None:
        if len(self._names) >= self.limits.members:
            raise too_large(f"more than {self.limits.members} members", "members")

    def _unique(self, name: str) -> str:
        cleaned = candidate = clean_name(name)
        number = 1
        while candidate in self._names:
            number += 1
            stem, dot, suffix = cleaned.rpartition(".")
            candidate = f"{stem}~{number}.{suffix}" if dot else f"{cleaned}~{number}"
        self._names.add(candidate)
        return candidate


class MemberWriter:
    """One member on its way to the disk; hashes what it writes."""

    def __init__(self, store: MemberStore, name: str) -> None:
        self._store = store
        self._name = name
        self._path = store.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._stream = self._path.open("wb")
        self._hash = hashlib.sha256()
        self._too_large = False
        self._size = 0

    def write(self, data: bytes) -> int:
        """Past `member_bytes` nothing more is stored, and the member will be lost."""
        self._store.took(len(data))
        self._size += len(data)
        if self._size <= self._store.limits.member_bytes:
            self._hash.update(data)
            self._stream.write(data)
        elif not self._too_large:
            self._too_large = True
            self._stream.truncate(0)
        return len(data)

    def close(self) -> None:
        if self._stream.closed:
            return
        if self._too_large:
            self.abandon()
            limit = self._store.limits.member_bytes >> 20
            detail = f"larger than max_file_mb={limit}: raise it to take this file"
            self._store.lose(self._name, "too_large", detail)
            return
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        self._store.keep(self._name, self._path, self._hash.hexdigest(), self._size)

    def abandon(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            self._path.unlink(missing_ok=True)

    # py7zr asks these of what it writes to.

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def flush(self) -> None:
        self._stream.flush()

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = None) -> bytes:
        return b""


def too_large(what: str, setting: str) -> Unreadable:
    """Why an archive is given up, with the setting that allows more."""
    cure = {
        "members": "; raise archive_max_members if it is trusted",
        "size": "; raise archive_max_mb if it is trusted",
    }
    return Unreadable("too_large", what + cure.get(setting, ""), stage="unpack")


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(BLOCK_BYTES):
        yield block
