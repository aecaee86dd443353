"""Small documents made for the ingest tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pymupdf
from PIL import Image, ImageDraw

BODY = (
    "The controller keeps one descriptor for each frame and writes its state back to memory when "
    "the frame has left. "
)


def text_pdf(path: Path, pages: Sequence[str]) -> Path:
    """A PDF with one paragraph a page."""
    with pymupdf.open() as document:
        for text in pages:
            page = document.new_page()
            page.insert_textbox(pymupdf.Rect(72, 100, 520, 700), text, fontsize=11)
        document.save(path, no_new_id=True)
    return path


def picture(width: int = 120, height: int = 80, colour: str = "steelblue") -> bytes:
    """A PNG."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).ellipse((5, 5, width - 5, height - 5), fill=colour)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def manual_pdf(path: Path, n_pages: int = 4, rotation: int = 0) -> Path:
    """A manual: running header, page numbers, numbered headings, two columns, figure, table, list.

    With `rotation` the pages are stored turned, and shown upright to nobody: as shown they are
    turned by that angle.
    """
    with pymupdf.open() as document:
        for number in range(1, n_pages + 1):
            page = document.new_page(width=595, height=842)
            _furniture(page, number)
            page.insert_text((72, 110), f"{number} Chapter of part {number}", fontsize=18)
            page.insert_text((72, 135), f"{number}.1 Overview", fontname="hebo", fontsize=13)
            _columns(page, number)
            _figure(page, number)
            _table(page, number)
            page.set_rotation(rotation)
        document.set_toc(
            [
                item
                for number in range(1, n_pages + 1)
                for item in (
                    [1, f"Chapter of part {number}", number],
                    [2, "Overview", number],
                )
            ]
        )
        document.save(path, no_new_id=True)
    return path


def _furniture(page: pymupdf.Page, number: int) -> None:
    page.insert_text((72, 50), "Example Core Manual", fontsize=9)
    page.insert_text((290, 815), str(number), fontsize=9)


def _columns(page: pymupdf.Page, number: int) -> None:
    left = f"Left column of page {number}. " + BODY * 2
    right = f"Right column of page {number}. " + BODY * 2
    page.insert_textbox(pymupdf.Rect(72, 150, 285, 290), left, fontsize=10)
    page.insert_textbox(pymupdf.Rect(310, 150, 523, 290), right, fontsize=10)


def _figure(page: pymupdf.Page, number: int) -> None:
    page.insert_image(pymupdf.Rect(200, 330, 380, 450), stream=picture(180, 120 + number))
    page.insert_text((200, 470), f"Figure {number}: State machine of unit {number}", fontsize=9)


def _table(page: pymupdf.Page, number: int) -> None:
    page.insert_text((72, 520), f"Table {number}: Registers of unit {number}", fontsize=9)
    rows = [
        ("Name", "Offset", "Access"),
        ("CTRL", "0x00", "RW"),
        ("STATUS", "0x04", "RO"),
        (f"UNIT{number}", "0x08", "RW"),
    ]
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            box = pymupdf.Rect(72 + 150 * c, 530 + 22 * r, 222 + 150 * c, 552 + 22 * r)
            page.draw_rect(box, width=0.7)
            page.insert_text(
                (box.x0 + 5, box.y1 - 7), text, fontsize=10, fontname="hebo" if r == 0 else "helv"
            )
