"""An archive as a document: a row that its members point to; they are documents of their own.

`corpus.discover` has unpacked it before. Out: one page without text.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from corpus.parsed import ParsedDocument, ParseOptions
from corpus.parsers import documents
from corpus.sniff import ARCHIVES


def parse(path: Path, options: ParseOptions, *, kind: str) -> ParsedDocument:
    """Nothing is read: what is inside is listed under the archive's `doc_id` as `parent_id`."""
    return documents.build(kind, "archive", [])


FORMATS: Final = {kind: partial(parse, kind=kind) for kind in ARCHIVES}
