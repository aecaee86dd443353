"""The real worker with faults set off by words in the document: a stand-in for hostile files.

A PDF page that says CRASH aborts the process, HANG spins for ever, EXHAUST asks for memory until
the limit stops it, RAISE throws. In a text file the same words strike when it is parsed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus import worker
from corpus.parsed import ParsedDocument, ParseOptions
from corpus.parsers import pdf_pymupdf, text


def strike(words: str) -> None:
    if "CRASH" in words:
        os.abort()
    while "HANG" in words:
        pass
    hoard = []
    while "EXHAUST" in words:
        hoard.append(bytearray(64 << 20))
    if "RAISE" in words:
        raise RuntimeError("a library gave up")


def after(read: Callable[..., Any], words_of: Callable[[Any], str]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        result = read(*arguments)
        strike(words_of(result))
        return result

    return wrapped


def page_words(page: Any) -> str:
    return " ".join(line.text for block in page.blocks for line in block.lines)


def parse_text(path: Path, options: ParseOptions) -> ParsedDocument:
    strike(path.read_text(encoding="utf-8"))
    return text.parse_text(path, options)


if __name__ == "__main__":
    document = pdf_pymupdf.PymupdfDocument
    document.read_page = after(document.read_page, page_words)  # type: ignore[method-assign]
    text.FORMATS["txt"] = parse_text
    sys.exit(worker.main())
