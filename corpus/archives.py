"""Archives: zip, tar (plain or compressed), 7z, and single files under gzip, bzip2 or xz.

`unpack` hands each member to a `MemberStore`. Links and devices inside archives are not followed.
Zip members under the old ZipCrypto and whole 7z archives open with a password; WinZip's AES does
not. 7z needs the package py7zr (`pip install "dsm-pipeline[archives]"`).
"""

from __future__ import annotations

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from corpus.children import MemberStore, MemberWriter
from corpus.parsed import Unreadable
from corpus.sniff import COMPRESSED, open_compressed

_ENCRYPTED: Final = 1  # bit of a zip member's flags
_AES: Final = 99  # WinZip's compression method of an AES member
_DAMAGE: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
)
CURE: Final = "needs a password: put it into a file and name that with --passwords"


def unpack(path: Path, kind: str, name: str, store: MemberStore, passwords: Sequence[str]) -> None:
    """Every member into `store`; `name` is the archive's own.

    Raises `Unreadable` where the archive, or its rest, is lost.
    """
    if kind == "zip":
        _unpack_zip(path, store, passwords)
    elif kind == "tar":
        _unpack_tar(path, store)
    elif kind == "7z":
        _unpack_7z(path, store, passwords)
    else:
        _unpack_single(path, kind, name, store)


def _unpack_zip(path: Path, store: MemberStore, passwords: Sequence[str]) -> None:
    try:
        container = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise Unreadable("corrupt", f"the zip container cannot be read: {error}") from error
    with container:
        members = [member for member in container.infolist() if not member.is_dir()]
        store.expect(len(members), sum(member.file_size for member in members))
        for member in sorted(members, key=lambda member: (member.filename, member.header_offset)):
            _take_zip_member(container, member, store, passwords)


def _take_zip_member(
    container: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    store: MemberStore,
    passwords: Sequence[str],
) -> None:
    name = member.filename
    if stat.S_ISLNK(member.external_attr >> 16):
        store.lose(name, "link", "links in archives are not followed")
        return
    if member.compress_type == _AES:
        store.lose(name, "encrypted", "AES inside a zip is not read; pack it anew without")
        return
    if not member.flag_bits & _ENCRYPTED:
        _read_zip_member(container, member, store, None)
        return
    for password in passwords:
        if _opens_zip_member(container, member, password.encode()):
            _read_zip_member(container, member, store, password.encode())
            return
    store.lose(name, "encrypted", CURE)


def _opens_zip_member(container: zipfile.ZipFile, member: zipfile.ZipInfo, password: bytes) -> bool:
    """ZipCrypto checks one byte only, so the whole member is read against its checksum."""
    try:
        with container.open(member, pwd=password) as stream:
            left = member.file_size
            while left > 0 and (block := stream.read(min(1 << 20, left))):
                left -= len(block)
            stream.read(1)
    except (RuntimeError, *_DAMAGE):
        return False
    return True


def _read_zip_member(
    container: zipfile.ZipFile, member: zipfile.ZipInfo, store: MemberStore, password: bytes | None
) -> None:
    try:
        with container.open(member, pwd=password) as stream:
            store.add_stream(member.filename, stream)
    except NotImplementedError as error:
        store.lose(member.filename, "unsupported", str(error))
    except (RuntimeError, *_DAMAGE) as error:
        store.lose(member.filename, "corrupt", f"the member cannot be unpacked: {error}")


def _unpack_tar(path: Path, store: MemberStore) -> None:
    taken = 0
    try:
        with tarfile.open(path, "r:*") as container:
            for member in container:
                if not member.isdir():
                    _take_tar_member(container, member, store)
                    taken += 1
    except (*_DAMAGE, RecursionError) as error:
        detail = f"the archive is damaged behind its member {taken}: {error}"
        raise Unreadable("corrupt", detail, stage="unpack") from error


def _take_tar_member(
    container: tarfile.TarFile, member: tarfile.TarInfo, store: MemberStore
) -> None:
    if member.issym() or member.islnk() or not member.isfile():
        store.lose(member.name, "link", "links and devices in archives are not followed")
        return
    stream = container.extractfile(member)
    assert stream is not None  # it is a regular file
    store.add_stream(member.name, stream)


def _unpack_single(path: Path, kind: str, name: str, store: MemberStore) -> None:
    with open_compressed(path, kind) as stream:
        try:
            store.add_stream(inner_name(name), stream)
        except _DAMAGE as error:
            raise Unreadable("corrupt", f"cannot be unpacked: {error}", stage="unpack") from error


def inner_name(name: str) -> str:
    """`top.v.gz` holds `top.v`, `plot.svgz` holds `plot.svg`."""
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix.lower() in COMPRESSED:
        return stem
    return name[:-1] if name.lower().endswith(".svgz") else name


def _unpack_7z(path: Path, store: MemberStore, passwords: Sequence[str]) -> None:
    try:
        import py7zr
    except ImportError as error:
        cure = 'pip install "dsm-pipeline[archives]"'
        raise Unreadable("needs_tool", f"7z archives need py7zr: {cure}") from error
    for password in (None, *passwords):
        try:
            return _read_7z(py7zr, path, store, password)
        except py7zr.exceptions.PasswordRequired:
            continue
        except (py7zr.exceptions.ArchiveError, *_DAMAGE, LookupError, AssertionError) as error:
            store.forget()
            if password is None:  # with one, damage says that it is wrong
                detail = f"the 7z archive cannot be read: {type(error).__name__}: {error}"
                raise Unreadable("corrupt", detail, stage="unpack") from error
    raise Unreadable("encrypted", f"the 7z archive {CURE}", stage="unpack")


def _read_7z(py7zr: Any, path: Path, store: MemberStore, password: str | None) -> None:
    from py7zr.io import WriterFactory

    class Factory(WriterFactory):  # type: ignore[misc]
        def create(self, filename: str) -> MemberWriter:
            return store.begin(filename)

    # Given a stream, py7zr does not start threads.
    with path.open("rb") as stream, py7zr.SevenZipFile(stream, password=password) as container:
        if container.needs_password() and password is None:
            raise py7zr.exceptions.PasswordRequired([], "")
        files = [item for item in container.files if not item.is_directory]
        store.expect(len(files), sum(item.uncompressed or 0 for item in files))
        plain = [item.filename for item in files if not (item.is_symlink or item.is_junction)]
        if plain:
            container.extract(targets=plain, factory=Factory())
    for item in files:
        if item.filename not in plain:
            store.lose(item.filename, "link", "links in archives are not followed")
