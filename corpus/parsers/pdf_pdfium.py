"""PDF pages through pypdfium2 (BSD-3-Clause/Apache-2.0), for installations without PyMuPDF.

In: a path. Out: `RawPage` per page with lines, their sizes and weights, embedded pictures and the
page as PNG. Finds no tables and no line art: a corpus made with it has only running text there.
"""

from __future__ import annotations

import ctypes
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from PIL.Image import Image

from corpus.parsed import Box, ParseOptions, Unreadable
from corpus.parsers.boxes import area, enclose
from corpus.parsers.line_blocks import group_lines
from corpus.parsers.page_png import encode_page
from corpus.parsers.page_size import fit_dpi
from corpus.parsers.pdf_raw import (
    AS_SHOWN,
    Bookmark,
    PageFiles,
    Pose,
    RawImage,
    RawLine,
    RawOutline,
    RawPage,
    RawTable,
)
from corpus.parsers.table_grid import Word
from corpus.passwords import CURE
from corpus.step_clock import CLOCK

MIN_PIXELS: Final = 16
WHOLE_PAGE: Final = 0.85
BOLD_WEIGHT: Final = 600
# PDFium converts to whole device units only, so points are asked for a hundredfold.
_FINE: Final = 100
_PASSWORD_ERROR: Final = 4
_FIXED_PITCH: Final = 1  # bit of a PDF font descriptor's flags


class PdfiumDocument:
    """An open PDF."""

    def __init__(self, path: Path, options: ParseOptions) -> None:
        import pypdfium2

        self._options = options
        try:
            self._document = pypdfium2.PdfDocument(path, password=options.password or None)
        except pypdfium2.PdfiumError as error:
            if getattr(error, "err_code", None) == _PASSWORD_ERROR:
                raise Unreadable("encrypted", f"the PDF needs a password: {CURE}") from error
            raise Unreadable("corrupt", f"PDFium cannot open it: {error}") from error
        if len(self._document) == 0:
            raise Unreadable("no_pages", "the PDF has no pages")
        self.outline = _outline(pypdfium2, self._document)

    def close(self) -> None:
        self._document.close()

    def read_page(self, page: int, files: PageFiles, pose: Pose = AS_SHOWN) -> RawPage:
        """One page, laid upright; raises `PdfiumError` when it cannot be loaded."""
        loaded = self._document[page - 1]
        try:
            rotation = int(loaded.get_rotation())
            loaded.set_rotation((rotation + pose.turn) % 360)
            width, height = loaded.get_size()
            place = _Placement(loaded, width, height)
            with CLOCK.measure("text"):
                lines = _Lines(loaded, place).read()
            with CLOCK.measure("render"):
                png, dpi = self._render(loaded, width, height, pose.skew)
            files.put_page_png(page, png)
            with CLOCK.measure("images"):
                pictures, n_tiny, flags = self._pictures(loaded, place, files)
            if dpi < self._options.page_dpi:
                flags.append("low_resolution")
            return RawPage(
                page=page,
                width_pt=float(width),
                height_pt=float(height),
                rotation=rotation,
                blocks=tuple(group_lines(lines)),
                images=tuple(pictures),
                png_bytes=len(png),
                dpi=round(dpi),
                n_tiny_images=n_tiny,
                flags=tuple(flags),
            )
        finally:
            loaded.close()

    def render(self, page: int, dpi: float) -> Image:
        """The page as shown, in greys."""
        loaded = self._document[page - 1]
        try:
            picture: Image = loaded.render(scale=dpi / 72, grayscale=True).to_pil()
            return picture.convert("L")
        finally:
            loaded.close()

    def find_tables(self, page: int, words: Sequence[Word], pose: Pose) -> tuple[RawTable, ...]:
        """None: this backend has no search for tables."""
        return ()

    def _render(self, page: Any, width: float, height: float, skew: float) -> tuple[bytes, float]:
        dpi = fit_dpi(width, height, self._options.page_dpi, self._options.max_page_pixels)
        drawn = page.render(scale=dpi / 72).to_pil().convert("RGB")
        return encode_page(drawn.tobytes(), drawn.width, drawn.height, skew), dpi

    def _pictures(
        self, page: Any, place: _Placement, files: PageFiles
    ) -> tuple[list[RawImage], int, list[str]]:
        import pypdfium2
        from pypdfium2 import raw

        found: list[RawImage] = []
        n_tiny, flags = 0, []
        for item in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=4):
            width, height = item.get_px_size()
            box = place.box(*item.get_bounds())
            if min(width, height) < MIN_PIXELS:
                n_tiny += 1
            elif area(box) >= WHOLE_PAGE * place.width * place.height:
                flags.append("scanned")
            elif width * height > self._options.max_page_pixels:
                flags.append("image_too_large")
            elif self._options.extract_images:
                try:
                    data = _encode_png(item.get_bitmap())
                except pypdfium2.PdfiumError:
                    flags.append("image_error")
                    continue
                found.append(RawImage(box, width, height, files.put_image(data)))
        return found, n_tiny, sorted(set(flags))


def _encode_png(bitmap: Any) -> bytes:
    buffer = io.BytesIO()
    bitmap.to_pil().convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def _outline(pypdfium2: Any, document: Any) -> RawOutline:
    metadata = {
        name.lower(): value for name, value in document.get_metadata_dict(skip_empty=True).items()
    }
    bookmarks = []
    for mark in document.get_toc():
        target = mark.get_dest()
        index = target.get_index() if target else None
        title = " ".join(mark.get_title().split())
        if title and index is not None:
            bookmarks.append(Bookmark(mark.level + 1, title, index + 1))
    version = pypdfium2.version.PYPDFIUM_INFO
    return RawOutline(
        n_pages=len(document),
        parser=f"pypdfium2 {version}",
        bookmarks=tuple(bookmarks),
        metadata=tuple(sorted(metadata.items())),
    )


class _Placement:
    """From PDF user space to points of the page as shown."""

    def __init__(self, page: Any, width: float, height: float) -> None:
        self._page = page
        self.width = width
        self.height = height

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        x0, y0 = self._point(left, top)
        x1, y1 = self._point(right, bottom)
        return Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    def _point(self, x: float, y: float) -> tuple[float, float]:
        from pypdfium2 import raw

        across, down = ctypes.c_int(), ctypes.c_int()
        size = round(self.width * _FINE), round(self.height * _FINE)
        raw.FPDF_PageToDevice(self._page, 0, 0, *size, 0, x, y, across, down)
        return across.value / _FINE, down.value / _FINE


@dataclass
class _OpenLine:
    text: list[str] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    sizes: Counter[float] = field(default_factory=Counter)
    bold: int = 0
    mono: int = 0


class _Lines:
    """Lines of a page, cut where PDFium ends a line or leaves a wide gap."""

    def __init__(self, page: Any, place: _Placement) -> None:
        from pypdfium2 import raw

        self._raw = raw
        self._place = place
        self._text = page.get_textpage()

    def read(self) -> list[RawLine]:
        lines: list[RawLine] = []
        current = _OpenLine()
        for index in range(self._text.count_chars()):
            char = self._char(index)
            if char in "\r\n":
                lines += self._close(current)
                current = _OpenLine()
                continue
            box = self._place.box(*self._text.get_charbox(index, loose=True))
            if char.strip() and current.boxes and self._is_gap(current, box):
                lines += self._close(current)
                current = _OpenLine()
            self._add(current, index, char, box)
        lines += self._close(current)
        self._text.close()
        return lines

    def _char(self, index: int) -> str:
        code = self._raw.FPDFText_GetUnicode(self._text, index)
        return chr(code) if 0 < code < 0x110000 else "\ufffd"

    @staticmethod
    def _is_gap(line: _OpenLine, box: Box) -> bool:
        size = max(line.sizes, default=10.0)
        return box.x0 - line.boxes[-1].x1 > 2 * size

    def _add(self, line: _OpenLine, index: int, char: str, box: Box) -> None:
        line.text.append(char)
        if not char.strip():
            return
        line.boxes.append(box)
        line.sizes[self._size(index)] += 1
        line.bold += self._raw.FPDFText_GetFontWeight(self._text, index) >= BOLD_WEIGHT
        flags = ctypes.c_int()
        self._raw.FPDFText_GetFontInfo(self._text, index, None, 0, flags)
        line.mono += bool(flags.value & _FIXED_PITCH)

    def _size(self, index: int) -> float:
        """Size as shown: many producers set size 1 and scale it by the text matrix."""
        matrix = self._raw.FS_MATRIX()
        self._raw.FPDFText_GetMatrix(self._text, index, matrix)
        nominal = float(self._raw.FPDFText_GetFontSize(self._text, index))
        return round(nominal * math.hypot(matrix.c, matrix.d), 1)

    @staticmethod
    def _close(line: _OpenLine) -> Iterator[RawLine]:
        text = "".join(line.text).strip().replace("\x02", "-").replace("\ufffe", "-")
        if not text or not line.boxes:
            return
        box = enclose(line.boxes)
        size = min(line.sizes, key=lambda size: (-line.sizes[size], size))
        upright = len(line.boxes) < 3 or box.x1 - box.x0 > 0.5 * (box.y1 - box.y0)
        half = len(line.boxes) / 2
        yield RawLine(text, box, size, line.bold > half, line.mono > half, upright)
