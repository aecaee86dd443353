"""Content-derived identifiers: the same input gives the same ids, in any order, on any machine."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hash_file(path: Path) -> str:
    """SHA-256 (64 hex digits) of a file's bytes, read in blocks. Used as `doc_id`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def derive_id(*parts: str | int) -> str:
    """A 32-hex-digit id from its parts. Parts are length-prefixed, so ("a","bc") != ("ab","c")."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:32]
