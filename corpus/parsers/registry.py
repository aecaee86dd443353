"""Which module parses which format.

To add a parser: write `corpus/parsers/<name>.py` with `parse(path, options) -> ParsedDocument`,
name it here, and teach `corpus.sniff` to tell the format.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable

Parse = Callable[[Path, ParseOptions], ParsedDocument]

# Formats whose pages are parsed one by one, in ranges that run in parallel.
PAGED: Final[dict[str, str]] = {"pdf": "corpus.parsers.pdf"}

WHOLE: Final[dict[str, str]] = {
    "png": "corpus.parsers.image",
    "jpeg": "corpus.parsers.image",
    "tiff": "corpus.parsers.image",
    "gif": "corpus.parsers.image",
    "bmp": "corpus.parsers.image",
    "webp": "corpus.parsers.image",
    "svg": "corpus.parsers.image",
    "docx": "corpus.parsers.office",
    "pptx": "corpus.parsers.office",
    "odt": "corpus.parsers.office",
    "xlsx": "corpus.parsers.spreadsheet",
    "csv": "corpus.parsers.spreadsheet",
    "tsv": "corpus.parsers.spreadsheet",
    "html": "corpus.parsers.markup",
    "md": "corpus.parsers.markup",
    "rst": "corpus.parsers.markup",
    "txt": "corpus.parsers.text",
    "json": "corpus.parsers.text",
    "eml": "corpus.parsers.mail",
    "msg": "corpus.parsers.mail",
    "verilog": "corpus.parsers.verilog",
    "systemverilog": "corpus.parsers.verilog",
}

# Read after LibreOffice has converted them.
CONVERTED: Final = frozenset({"doc", "ppt", "xls", "rtf", "ods", "odp"})

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    "empty": ("empty", "the file has no bytes"),
    "encrypted": ("encrypted", "the Office file needs a password"),
    "corrupt_zip": ("corrupt", "the zip container cannot be read"),
}


def find_parser(format_name: str) -> Parse:
    """The parser of a whole-document format. Raises `Unreadable` when there is none."""
    module = WHOLE.get(format_name)
    if module is None:
        raise refusal(format_name)
    return cast(Parse, importlib.import_module(module).parse)


def refusal(format_name: str) -> Unreadable:
    """Why `format_name` is not parsed."""
    if format_name in _REFUSED:
        reason, detail = _REFUSED[format_name]
        return Unreadable(reason, detail, stage="sniff")
    if format_name in CONVERTED:
        found = "no parser uses it yet" if shutil.which("soffice") else "soffice is not on PATH"
        return Unreadable(
            "needs_libreoffice",
            f"{format_name} must be converted by LibreOffice, and {found}",
            stage="sniff",
        )
    return Unreadable("unsupported", f"no parser takes {format_name!r} data", stage="sniff")
