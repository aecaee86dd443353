"""Documents behind URLs (s3, gs, http, sftp, anything that fsspec opens) -> files named by hash.

A record of each URL's version (ETag, time of change and size, as far as the server says) spares
the download when nothing changed, also after the file itself was cleaned up. A download that was
cut off goes on where it was if the server says that the version is the same. Listing a bucket or
folder is one call; http(s) has no folders, so there each file is named. Credentials come from the
environment or fsspec's own configuration; a password inside a URL is used, and never stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from workspace import publish
from workspace.errors import MissingToolError, UserError
from workspace.ids import hash_file

BLOCK_BYTES: Final = 4 << 20
SIDE_BY_SIDE: Final = 8
TRIES: Final = 3
MAX_LISTED: Final = 1_000_000
# What file systems call the thing that changes when the content does.
_VERSION_KEYS: Final = (
    "ETag", "etag", "Content-MD5", "md5Hash", "content_hash", "Digest", "version_id", "generation",
    "LastModified", "Last-Modified", "last_modified", "mtime", "updated", "created", "modified",
)  # fmt: skip


@dataclass(frozen=True)
class RemoteFile:
    """One file; `uri` is what is stored, `url` what is opened."""

    uri: str
    url: str
    relative: str  # inside the folder or pattern that was asked for


class Fetched(NamedTuple):
    """Exactly one of `doc_id` and `reason` is set."""

    doc_id: str = ""
    bytes: int = 0
    reason: str = ""
    detail: str = ""


class Downloads:
    """Fetches into `files` (content under its hash) and remembers in `records`."""

    def __init__(self, files: Path, records: Path, max_bytes: int) -> None:
        self.files = files
        self._records = records
        self._max_bytes = max_bytes
        self.used: set[str] = set()  # names of the records in use

    def expand(self, url: str) -> list[RemoteFile]:
        """The files that a URL names: one, a folder's, or a pattern's. Raises `UserError`."""
        system, path = _open_system(url)
        shown = public_url(url)
        try:
            if any(char in path for char in "*[") and not url.startswith("http"):
                found = sorted(p for p in system.glob(path) if system.isfile(p))
            elif not url.startswith("http") and system.isdir(path):
                found = sorted(system.find(path))
            elif system.exists(path):
                return [_one(system, url, path)]
            else:
                found = []
        except Exception as error:  # each protocol raises what its client gives it
            raise UserError(f"source {shown!r} cannot be listed: {_describe(error)}") from error
        if not found:
            raise UserError(f"source {shown!r}: nothing is there; check the address and the access")
        if len(found) > MAX_LISTED:
            raise UserError(f"source {shown!r}: {len(found)} files; name smaller folders")
        base = path.split("*", 1)[0].split("[", 1)[0]
        base = path if system.isdir(path) else base.rpartition("/")[0]
        return [
            replace(_one(system, url, name), relative=name.removeprefix(base).strip("/"))
            for name in found
        ]

    def name_one(self, url: str) -> RemoteFile:
        """The file that a list names; whether it is there is found out when it is fetched."""
        system, path = _open_system(url)
        return _one(system, url, path)

    def fetch_all(self, files: Iterable[RemoteFile]) -> Iterator[tuple[RemoteFile, Fetched]]:
        """Each with its hash, or with the reason why it could not be had; in the order given."""
        self.files.mkdir(parents=True, exist_ok=True)
        listed = list(files)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            yield from zip(listed, threads.map(self._fetch, listed), strict=True)

    def materialise(self, files: Iterable[RemoteFile]) -> None:
        """Have the bytes of these on disk, too, where only their hash was remembered."""
        missing = [file for file in files if not self._has(self._record(file))]
        for file in missing:
            self._record_path(file).unlink(missing_ok=True)
        for _ in self.fetch_all(missing):
            pass

    def _has(self, record: dict[str, Any]) -> bool:
        path = self.files / str(record.get("doc_id", ""))
        return path.is_file() and path.stat().st_size == record.get("bytes")

    def _fetch(self, file: RemoteFile) -> Fetched:
        self.used.add(self._record_path(file).name)
        error: Exception = OSError()
        for _ in range(TRIES):
            try:
                return self._try(file)
            except FileNotFoundError:
                return Fetched(reason="unreadable", detail="not found; check address and access")
            except (MissingToolError, PermissionError) as refused:
                return Fetched(reason="unreadable", detail=str(refused)[:500])
            except Exception as caught:  # each protocol raises what its client gives it
                error = caught
        return Fetched(reason="unreadable", detail=_describe(error))

    def _try(self, file: RemoteFile) -> Fetched:
        system, path = _open_system(file.url)
        info = system.info(path)
        version = _version(info)
        record = self._record(file)
        if version and record.get("version") == version:
            return Fetched(record["doc_id"], record["bytes"])
        size = info.get("size")
        if size is not None and int(size) > self._max_bytes:
            return self._too_large()
        partial = self.files / f"part-{_name(file.uri + version)}"
        if not version:
            partial.unlink(missing_ok=True)
        if not self._download(system, path, partial, size):
            partial.unlink(missing_ok=True)
            return self._too_large()
        return self._keep(file, partial, version)

    def _keep(self, file: RemoteFile, partial: Path, version: str) -> Fetched:
        publish.fsync(partial)
        doc_id, size = hash_file(partial), partial.stat().st_size
        partial.replace(self.files / doc_id)
        record = {"uri": file.uri, "version": version, "doc_id": doc_id, "bytes": size}
        publish.write_json(self._record_path(file), record)
        return Fetched(doc_id, size)

    def _download(self, system: Any, path: str, partial: Path, size: int | None) -> bool:
        """False when it grew past the limit. Continues a partial file where that can be done."""
        done = partial.stat().st_size if partial.exists() else 0
        if size is None or done > size:
            done = 0
        with system.open(path, "rb") as stream, partial.open("r+b" if done else "wb") as out:
            if done:
                stream.seek(done)
                out.seek(done)
            while block := stream.read(BLOCK_BYTES):
                out.write(block)
                done += len(block)
                if done > self._max_bytes:
                    return False
        if size is not None and done != size:
            os.truncate(partial, 0)
            raise OSError(f"{done} of {size} bytes came")
        return True

    def _too_large(self) -> Fetched:
        limit = self._max_bytes >> 20
        return Fetched(reason="too_large", detail=f"larger than max_file_mb={limit}")

    def _record_path(self, file: RemoteFile) -> Path:
        return self._records / f"{_name(file.uri)}.json"

    def _record(self, file: RemoteFile) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads(self._record_path(file).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return value


def public_url(url: str) -> str:
    """The URL without a password in it."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at and ":" in user:
        return urlunsplit(parts._replace(netloc=f"{user.split(':', 1)[0]}@{host}"))
    return url


def _one(system: Any, url: str, path: str) -> RemoteFile:
    """Under the one address that its file system gives it, however it was written."""
    full = url if url.startswith("http") else _with_path(url, str(system.unstrip_protocol(path)))
    return RemoteFile(public_url(full), full, path.rstrip("/").rsplit("/", 1)[-1])


def _open_system(url: str) -> tuple[Any, str]:
    """File system and path. Raises `UserError` naming the package that a protocol needs."""
    import fsspec

    protocol = url.split("://", 1)[0]
    if "::" in url:
        raise UserError(f"source {public_url(url)!r}: chained URLs are not read; name the archive")
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError as error:
        raise MissingToolError(
            f"source {public_url(url)!r}: {protocol}:// needs another package: {error} "
            f"({_package(protocol)})"
        ) from error
    except ValueError as error:
        raise UserError(
            f"source {public_url(url)!r}: {protocol}:// is no protocol that fsspec knows"
        ) from error
    return system, path


def _package(protocol: str) -> str:
    packages = {
        "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "sftp": "paramiko",
        "ssh": "paramiko", "abfs": "adlfs", "az": "adlfs", "abfss": "adlfs", "http": "aiohttp",
        "https": "aiohttp", "smb": "smbprotocol", "webdav": "webdav4", "oss": "ossfs",
        "hdfs": "pyarrow", "hf": "huggingface_hub",
    }  # fmt: skip
    name = packages.get(protocol)
    return f"pip install {name}" if name else "see the list of drivers in fsspec's documentation"


def _with_path(url: str, full: str) -> str:
    """`full` with the user, password and port that `url` has and listings leave out."""
    asked, found = urlsplit(url), urlsplit(full)
    if "@" in asked.netloc and "@" not in found.netloc:
        return urlunsplit(found._replace(scheme=asked.scheme, netloc=asked.netloc))
    return full


def _version(info: dict[str, Any]) -> str:
    """What tells this version from another, "" when the server says nothing."""
    found = {
        key: value.isoformat() if isinstance(value, datetime) else str(value)
        for key in _VERSION_KEYS
        if (value := info.get(key)) not in (None, "")
    }
    if not found:
        return ""
    return json.dumps({**found, "size": info.get("size")}, sort_keys=True)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]
