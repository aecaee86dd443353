"""XPS and MOBI: laid out by MuPDF, and read as the PDF that it makes of them.

Needs PyMuPDF as the PDF backend. MOBI with copy protection is not read.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import containers, pdf


def parse(path: Path, options: ParseOptions, *, kind: str) -> ParsedDocument:
    """Raises `Unreadable` (corrupt, no_pages, needs_pymupdf)."""
    if options.pdf_backend != "pymupdf":
        raise Unreadable("needs_pymupdf", f"{kind} is read by PyMuPDF, which is not in use")
    if kind == "xps":
        containers.check(path)
    from corpus.parsers.pdf_pymupdf import convert_to_pdf

    with tempfile.NamedTemporaryFile(suffix=".pdf") as converted:
        converted.write(convert_to_pdf(path, kind))
        converted.flush()
        return replace(pdf.parse(Path(converted.name), options), format=kind)


FORMATS: Final = {kind: partial(parse, kind=kind) for kind in ("xps", "mobi")}
