"""Which module parses which format.

To add a parser: write `corpus/parsers/<name>.py` with a function `(path, options) ->
ParsedDocument`, name it here, and teach `corpus.sniff` to tell the format.
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

# format -> "module:function"
WHOLE: Final[dict[str, str]] = {
    "png": "corpus.parsers.image:parse",
    "jpeg": "corpus.parsers.image:parse",
    "tiff": "corpus.parsers.image:parse",
    "gif": "corpus.parsers.image:parse",
    "bmp": "corpus.parsers.image:parse",
    "webp": "corpus.parsers.image:parse",
    "svg": "corpus.parsers.image:parse",
    "docx": "corpus.parsers.word:parse_docx",
    "pptx": "corpus.parsers.slides:parse_pptx",
    "odt": "corpus.parsers.word:parse_odt",
    "xlsx": "corpus.parsers.spreadsheet:parse_xlsx",
    "csv": "corpus.parsers.spreadsheet:parse_csv",
    "tsv": "corpus.parsers.spreadsheet:parse_tsv",
    "html": "corpus.parsers.markup:parse_html",
    "md": "corpus.parsers.markup:parse_markdown",
    "rst": "corpus.parsers.markup:parse_rst",
    "txt": "corpus.parsers.text:parse_text",
    "json": "corpus.parsers.text:parse_text",
    "eml": "corpus.parsers.mail:parse_eml",
    "msg": "corpus.parsers.mail:parse_msg",
    "verilog": "corpus.parsers.verilog:parse_verilog",
    "systemverilog": "corpus.parsers.verilog:parse_verilog",
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
    where = WHOLE.get(format_name)
    if where is None:
        raise refusal(format_name)
    module, function = where.split(":")
    return cast(Parse, getattr(importlib.import_module(module), function))


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
