"""Text as it comes out of files, made fit for tables: decoded, without control characters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from corpus.parsed import Unreadable

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_BOMS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
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
    encoding = unicode_encoding(data[:65536])
    if encoding:
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


def unicode_encoding(head: bytes) -> str:
    """The encoding that a byte order mark states, or UTF-16 by its zero bytes; "" otherwise."""
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    # Western text in UTF-16 without a mark: nearly every second byte is zero, the others never.
    if half >= 8 and max(even, odd) > 0.7 * half and min(even, odd) < 0.02 * half:
        return "utf-16-be" if even > odd else "utf-16-le"
    return ""
