"""Zip containers of office documents: guards against bombs, and reading of their parts."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from lxml import etree

from corpus.parsed import Unreadable

MAX_TOTAL_BYTES: Final = 2 * 1024**3
MAX_PART_BYTES: Final = 512 * 1024**2
# XML of large sheets compresses up to about 60 times; a bomb 1,000 times.
_MAX_RATIO: Final = 250
_RATIO_FROM_BYTES: Final = 32 * 1024**2
_MAX_PARTS: Final = 50_000
_OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0"

Element: TypeAlias = Any  # an lxml element

# What libraries raise on parts that are sound as a zip and broken as a document. XML errors of
# lxml and of the standard library are SyntaxErrors.
DAMAGE: Final = (
    AttributeError,
    LookupError,
    OverflowError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)


@contextmanager
def damage_as_corrupt(what: str, *others: type[Exception]) -> Iterator[None]:
    """Turn a library's stumbling over a damaged file into `Unreadable("corrupt")`.

    `others` are the library's own errors.
    """
    caught: tuple[type[Exception], ...] = (*DAMAGE, *others)
    try:
        yield
    except caught as error:
        detail = f"not a sound {what}: {type(error).__name__}: {error}"
        raise Unreadable("corrupt", detail) from error


def check(path: Path) -> None:
    """Raise `Unreadable` for what is no sound zip or would unpack to too much."""
    with path.open("rb") as stream:
        head = stream.read(4)
    if not head:
        raise Unreadable("empty", "the file has no bytes")
    if head == _OLE_MAGIC:
        # An encrypted OOXML file is an OLE container around the encrypted zip.
        raise Unreadable("encrypted", "the Office file is protected by a password")
    try:
        with zipfile.ZipFile(path) as container:
            parts = container.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Unreadable("corrupt", f"not a sound zip container: {error}") from error
    if len(parts) > _MAX_PARTS:
        raise Unreadable("too_large", f"{len(parts)} parts, at most {_MAX_PARTS}")
    total = sum(part.file_size for part in parts)
    if total > MAX_TOTAL_BYTES:
        raise Unreadable("too_large", f"unpacks to {total} bytes, at most {MAX_TOTAL_BYTES}")
    for part in parts:
        too_dense = part.file_size > _RATIO_FROM_BYTES and (
            part.file_size > _MAX_RATIO * max(part.compress_size, 1)
        )
        if part.file_size > MAX_PART_BYTES or too_dense:
            raise Unreadable(
                "too_large",
                f"{part.filename} unpacks from {part.compress_size} to {part.file_size} bytes",
            )
        if part.flag_bits & 1:
            raise Unreadable("encrypted", f"{part.filename} needs a password")
    _verify(path)
    with zipfile.ZipFile(path) as container:
        # OpenDocument encrypts its parts one by one.
        if b"encryption-data" in read_part(container, "META-INF/manifest.xml"):
            raise Unreadable("encrypted", "OpenDocument with a password: save it without")


def _verify(path: Path) -> None:
    """Unpack every part once: the readers above would end in whatever damage leads them to."""
    try:
        with zipfile.ZipFile(path) as container:
            damaged = container.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError) as error:
        raise Unreadable("corrupt", f"a part of the zip container is damaged: {error}") from error
    if damaged is not None:
        raise Unreadable("corrupt", f"part {damaged} of the zip container is damaged")


def read_part(container: zipfile.ZipFile, name: str) -> bytes:
    """A part's bytes, b"" when it is not there. Broken or lying parts raise `zipfile.BadZipFile`.

    zipfile stops at the stated size, so a part cannot unpack to more than `check` has seen.
    """
    try:
        return container.read(name)
    except KeyError:
        return b""


def read_xml(container: zipfile.ZipFile, name: str) -> Element | None:
    """A part as XML without entities or network, None when missing or broken."""
    data = read_part(container, name)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, huge_tree=False)
    return etree.fromstring(data, parser) if data else None


def relations(container: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Relation id -> target part, for relations inside the container."""
    folder, base = posixpath.split(name)
    root = read_xml(container, f"{folder}/_rels/{base}.rels" if folder else f"_rels/{base}.rels")
    found = {}
    for relation in root if root is not None else ():
        if not isinstance(relation.tag, str) or relation.get("TargetMode") == "External":
            continue
        target = relation.get("Target") or ""
        resolved = posixpath.normpath(posixpath.join(folder, target)).lstrip("/")
        found[relation.get("Id") or ""] = target.lstrip("/") if target[:1] == "/" else resolved
    return found


def core_properties(container: zipfile.ZipFile) -> dict[str, str]:
    """Author, dates and the like from docProps/core.xml."""
    root = read_xml(container, "docProps/core.xml")
    found = {}
    for entry in root if root is not None else ():
        if isinstance(entry.tag, str) and entry.text and entry.text.strip():
            found[etree.QName(entry).localname] = entry.text.strip()
    wanted = ("title", "creator", "subject", "keywords", "description", "created", "modified")
    return {name: found[name] for name in wanted if name in found}
