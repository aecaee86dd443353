"""Text as it comes out of files, made fit for tables: decoded, without control characters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from corpus.parsed import Unreadable

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_BOMS: Final = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
MAX_TEXT_BYTES: Final = 64 * 1024 * 1024


def clean(text: str) -> str:
    """Line ends as `\\n`, no control characters, no lone surrogates (Parquet refuses them)."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def read_text(path: Path) -> str:
    """A text file's content. Raises `Unreadable` when it is empty, too large or no text."""
    size = path.stat().st_size
    if size == 0:
        raise Unreadable("empty", "the file has no bytes")
    if size > MAX_TEXT_BYTES:
        raise Unreadable("too_large", f"{size} bytes of text, at most {MAX_TEXT_BYTES}")
    text = clean(decode(path.read_bytes()))
    if not text.strip():
        raise Unreadable("empty", "the file has no text")
    return text


def decode(data: bytes) -> str:
    """Bytes of unknown encoding as text. Raises `Unreadable("not_text")` for binary data."""
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            return data.decode(encoding, "replace")
    if b"\x00" in data[:65536]:
        raise Unreadable("not_text", "the file holds zero bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        # The beginning decides, so that a large file costs no more than a small one.
        guess = from_bytes(data[:200_000]).best()
        if guess is None:
            raise Unreadable("not_text", "no text encoding fits the bytes") from None
        return data.decode(guess.encoding, "replace")
