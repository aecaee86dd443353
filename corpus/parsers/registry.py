"""Which module parses which format.

To add a parser: write `corpus/parsers/<name>.py` with `FORMATS`, a dict from format to a function
`(path, options) -> ParsedDocument`, name it here, and teach `corpus.sniff` to tell the format.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.image import RASTER
from corpus.passwords import CURE
from corpus.sniff import ARCHIVES

Parse = Callable[[Path, ParseOptions], ParsedDocument]

# Formats whose pages (frames) are read one by one, in ranges that run in parallel, by `pdf`.
PAGED: Final = frozenset({"pdf", *RASTER})

# format -> the module whose FORMATS holds its parser
WHOLE: Final[dict[str, str]] = {
    "svg": "image",
    "docx": "word",
    "pptx": "slides",
    "xlsx": "spreadsheet",
    "odt": "pandoc",
    "ods": "legacy_office",
    "odp": "legacy_office",
    "doc": "legacy_office",
    "ppt": "legacy_office",
    "xls": "legacy_office",
    "csv": "delimited",
    "tsv": "delimited",
    "html": "markup",
    "md": "markup",
    "rst": "pandoc",
    "adoc": "pandoc",
    "rtf": "pandoc",
    "org": "pandoc",
    "epub": "pandoc",
    "txt": "text",
    "eml": "mail",
    "msg": "mail",
    **dict.fromkeys(sorted(ARCHIVES), "archive"),
    "xps": "converted_pdf",
    "mobi": "converted_pdf",
    "svd": "registers",
    "ipxact": "registers",
    "json_registers": "registers",
    "hjson": "registers",
    "systemrdl": "registers",
    "verilog": "verilog",
    "systemverilog": "verilog",
}

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    "empty": ("empty", "the file has no bytes"),
    "encrypted": ("encrypted", f"the Office file needs a password: {CURE}"),
    "zstd": ("unsupported", "Zstandard is not read: decompress it first"),
    "corrupt_zip": ("corrupt", "the zip container cannot be read"),
}


def find_parser(format_name: str) -> Parse:
    """The parser of a whole-document format. Raises `Unreadable` when there is none."""
    module = WHOLE.get(format_name)
    if module is None:
        raise refusal(format_name)
    formats = importlib.import_module(f"corpus.parsers.{module}").FORMATS
    return cast(Parse, formats[format_name])


def refusal(format_name: str) -> Unreadable:
    """Why `format_name` is not parsed."""
    if format_name in _REFUSED:
        reason, detail = _REFUSED[format_name]
        return Unreadable(reason, detail, stage="sniff")
    return Unreadable("unsupported", f"no parser takes {format_name!r} data", stage="sniff")
