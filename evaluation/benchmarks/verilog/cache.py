"""Judgements and recordings on disk, by the hash of everything they depend on.

One file an entry, written beside and renamed, so that any number of processes may share a folder.
An entry is not flushed to the disk: one that a crash tore fails its check and counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from workspace import publish


def key_of(*parts: object) -> str:
    """A key from JSON values."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/dsm-pipeline/verilog`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dsm-pipeline" / "verilog"


class Cache:
    """JSON values by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Any:
        """The value, None when absent or damaged."""
        try:
            head, _, body = self._path(key).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        return json.loads(body) if head.decode("ascii", "replace") == _check(key, body) else None

    def put(self, key: str, value: Any) -> None:
        """Keep a value."""
        body = json.dumps(value).encode()
        target = self._path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".tmp-{secrets.token_hex(6)}")
        try:
            with publish.naming(target):
                temporary.write_bytes(_check(key, body).encode() + b"\n" + body)
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def _check(key: str, body: bytes) -> str:
    return hashlib.sha256(key.encode() + body).hexdigest()
