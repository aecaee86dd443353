"""Passwords: read from the user's file, tried on documents, handed to `process` in a secret file.

They are never settings: a configuration holds the name of the file alone. What `plan` found to
open a document stays in a file of mode 0600 in the work area until the corpus is published.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from corpus.parsed import Unreadable
from workspace.errors import UserError
from workspace.publish import atomic_path

MAX_PASSWORDS: Final = 1_000
# Excel encrypts write-protected workbooks with this and opens them without asking.
WRITE_PROTECTION: Final = "VelvetSweatshop"
# Formats of Office files that `decrypt_office` takes.
ENCRYPTABLE: Final = frozenset({"encrypted", "doc", "xls", "ppt"})
CURE: Final = "put its password into a file, a line each, and name that with --passwords"


def read_passwords(path: Path | None) -> tuple[str, ...]:
    """One password a line, in order, without doubles. Raises `UserError`."""
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"passwords file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        # The error's own text would show bytes of the file.
        raise UserError(f"passwords file {path}: not UTF-8; save it as UTF-8") from None
    found = tuple(dict.fromkeys(line for line in text.splitlines() if line))
    if not found:
        raise UserError(f"passwords file {path} is empty: one password a line")
    if len(found) > MAX_PASSWORDS:
        raise UserError(f"passwords file {path}: {len(found)} lines, at most {MAX_PASSWORDS}")
    return found


def write_secrets(path: Path, passwords: Mapping[str, str]) -> None:
    """Keep doc_id -> password for `process`, readable by the owner alone."""
    if not passwords:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(dict(passwords), stream, sort_keys=True)


def read_secrets(path: Path) -> dict[str, str]:
    try:
        value: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return value


def may_be_encrypted(path: Path) -> bool:
    """Whether trying passwords on a file can make a difference; reads it, parses nothing."""
    with path.open("rb") as stream:
        head = stream.read(8)
        if head.startswith(b"\xd0\xcf\x11\xe0"):
            return True
        tail = b""
        while block := head + stream.read(1 << 20):
            head = b""
            # A trailer is never compressed, nor is the dictionary of a cross-reference stream.
            if b"/Encrypt" in tail + block:
                return True
            tail = block[-16:]
    return False


def find_password(path: Path, kind: str, candidates: Sequence[str]) -> str | None:
    """The candidate that opens `path`; "" where none is needed, None where none fits."""
    if kind == "pdf":
        return _find_pdf_password(path, candidates)
    if kind in ENCRYPTABLE:
        return _find_office_password(path, candidates)
    return ""


def _find_pdf_password(path: Path, candidates: Sequence[str]) -> str | None:
    import pypdfium2

    for candidate in ("", *candidates):
        try:
            pypdfium2.PdfDocument(path, password=candidate or None).close()
        except pypdfium2.PdfiumError as error:
            if getattr(error, "err_code", None) != 4:  # not a matter of the password
                return ""
        else:
            return candidate
    return None


def _find_office_password(path: Path, candidates: Sequence[str]) -> str | None:
    try:
        decrypt_office(path, "")
    except Unreadable as error:
        if error.reason != "encrypted":
            return ""
    else:
        return ""
    for candidate in candidates:
        try:
            decrypt_office(path, candidate)
        except Unreadable:
            continue
        return candidate
    return None


def decrypt_office(path: Path, password: str) -> bytes | None:
    """An Office file's content, None where it is not encrypted. Raises `Unreadable`."""
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError

    try:
        with path.open("rb") as stream:
            office: Any = msoffcrypto.OfficeFile(stream)
            if not office.is_encrypted():
                return None
            office.load_key(password=password or WRITE_PROTECTION)
            out = io.BytesIO()
            office.decrypt(out)
            return out.getvalue()
    except (InvalidKeyError, DecryptionError) as error:
        raise Unreadable("encrypted", f"the Office file needs a password: {CURE}") from error
    except (FileFormatError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreadable("corrupt", f"the encrypted Office file is damaged: {error}") from error
