"""Tables of a scanned page through PyMuPDF: its picture, with the OCR words as invisible text.

The layout model finds nothing on a bare scan; with the words in place it finds tables there, too.
The copy holds nothing of the document but pixels, so that its rotation and its own broken text
play no part. Rules are seen in the picture alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corpus.parsers.pdf_pymupdf_tables import find_with_layout, has_rows_of_pieces
from corpus.parsers.pdf_raw import RawLine, RawTable
from corpus.parsers.table_grid import Word


def find_tables_on_scan(
    pymupdf: Any,
    png: bytes,
    width_pt: float,
    height_pt: float,
    words: Sequence[Word],
    mode: str,
) -> tuple[RawTable, ...]:
    """Tables in points of the page; `mode` is `table_detection`, and `fast` looks for none."""
    lines = [RawLine(word.text, word.box, word.height) for word in words]
    if mode == "fast" or (mode == "routed" and not has_rows_of_pieces(lines)):
        return ()
    with pymupdf.open() as document:
        page = document.new_page(width=width_pt, height=height_pt)
        page.insert_image(page.rect, stream=png)
        _write_invisibly(pymupdf, page, words)
        return find_with_layout(page).tables


def _write_invisibly(pymupdf: Any, page: Any, words: Sequence[Word]) -> None:
    writer = pymupdf.TextWriter(page.rect)
    fonts = {name: pymupdf.Font(name) for name in ("helv", "cjk")}
    for word in words:
        font = fonts["helv" if all(ord(char) < 256 for char in word.text) else "cjk"]
        width = max(font.text_length(word.text, fontsize=1), 0.1)
        size = min((word.box.x1 - word.box.x0) / width, 1.5 * max(word.height, 1.0))
        writer.append((word.box.x0, word.box.y1), word.text, font=font, fontsize=size)
    writer.write_text(page, render_mode=3)
