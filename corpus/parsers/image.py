"""Lone pictures as documents: one page a frame, which stays on it as an element of its own.

In: PNG, JPEG, TIFF (all frames), GIF and WebP (first frame), BMP; and SVG, which PyMuPDF renders
and whose words are kept. Out: a raster file as a `PdfDocument` without text, whose pages are the
frames as shown (EXIF rotation applied), so that frames are read in parallel, by OCR, and lost one
by one; an SVG as a `ParsedDocument`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from PIL import Image as pillow
from PIL import ImageOps, UnidentifiedImageError
from PIL.Image import Image

from corpus.parsed import (
    Box,
    ParsedDocument,
    ParsedElement,
    ParsedImage,
    ParsedPage,
    ParseOptions,
    Unreadable,
)
from corpus.parsers.pdf_raw import (
    AS_SHOWN,
    PageFiles,
    Pose,
    RawImage,
    RawOutline,
    RawPage,
    RawTable,
)
from corpus.parsers.skew import straighten
from corpus.parsers.table_grid import Word

DEFAULT_DPI: Final = 96.0
MAX_FRAMES: Final = 500
# Over this many times the page cap a picture is not even decoded.
MAX_OVER_CAP: Final = 10
RASTER: Final = ("png", "jpeg", "tiff", "gif", "bmp", "webp")
_STORED_AS_IS: Final = ("PNG", "JPEG")


class ImageDocument:
    """An open raster file."""

    def __init__(self, path: Path, options: ParseOptions) -> None:
        self._options = options
        self._path = path
        pillow.MAX_IMAGE_PIXELS = None  # our own limit is checked before decoding
        try:
            self._image = pillow.open(path)
            count = getattr(self._image, "n_frames", 1) if self._image.format == "TIFF" else 1
            if count > MAX_FRAMES:
                raise Unreadable("too_large", f"{count} frames, more than {MAX_FRAMES}")
            self._shown: tuple[int, Image, float] | None = None
            self._frame(1)
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable("corrupt", f"Pillow cannot read it: {error}") from error
        self.outline = RawOutline(
            n_pages=count,
            parser=f"pillow {version('pillow')}",
            format=(self._image.format or "").lower(),
        )

    def close(self) -> None:
        self._image.close()

    def read_page(self, page: int, files: PageFiles, pose: Pose = AS_SHOWN) -> RawPage:
        """One frame, laid upright. Raises `Unreadable` (too_large) and what Pillow raises."""
        shown, dpi = self._frame(page)
        width_pt, height_pt = shown.width * 72 / dpi, shown.height * 72 / dpi
        fitted, fitted_dpi, flags = self._fit(shown, dpi)
        fitted = _laid(fitted, pose)
        if pose.turn % 180:
            width_pt, height_pt = height_pt, width_pt
        png = _encode(fitted)
        files.put_page_png(page, png)
        picture, size = png, fitted.size
        if self._image.format in _STORED_AS_IS:
            picture, size = self._path.read_bytes(), self._image.size
        box = Box(0.0, 0.0, width_pt, height_pt)
        return RawPage(
            page=page,
            width_pt=width_pt,
            height_pt=height_pt,
            rotation=0,
            images=(RawImage(box, *size, files.put_image(picture), kind="frame"),),
            png_bytes=len(png),
            dpi=round(fitted_dpi),
            flags=flags,
        )

    def render(self, page: int, dpi: float) -> Image:
        """The frame as shown, in greys."""
        shown, own_dpi = self._frame(page)
        scale = dpi / own_dpi
        size = max(1, round(shown.width * scale)), max(1, round(shown.height * scale))
        grey = _on_white(shown).convert("L")
        return grey if size == shown.size else grey.resize(size, pillow.Resampling.LANCZOS)

    def find_tables(self, page: int, words: Sequence[Word], pose: Pose) -> tuple[RawTable, ...]:
        """Tables among OCR words, where PyMuPDF is in use."""
        if self._options.pdf_backend != "pymupdf":
            return ()
        from corpus.parsers.pdf_pymupdf import load
        from corpus.parsers.pdf_pymupdf_scans import find_tables_on_scan

        shown, dpi = self._frame(page)
        fitted, fitted_dpi, _ = self._fit(shown, dpi)
        laid = _laid(fitted, pose)
        size = laid.width * 72 / fitted_dpi, laid.height * 72 / fitted_dpi
        mode = self._options.table_detection
        return find_tables_on_scan(load(), _encode(laid), *size, words, mode)

    def _frame(self, page: int) -> tuple[Image, float]:
        """A decoded frame as shown and its resolution; the last one is kept."""
        if self._shown is None or self._shown[0] != page:
            if page > 1:
                self._image.seek(page - 1)
            elif self._shown is not None:
                self._image.seek(0)
            width, height = self._image.size
            if width * height > MAX_OVER_CAP * self._options.max_page_pixels:
                raise Unreadable("too_large", f"frame {page} is {width}x{height} pixels")
            dpi = _resolution(self._image)
            self._shown = page, ImageOps.exif_transpose(self._image), dpi
        return self._shown[1:]

    def _fit(self, shown: Image, dpi: float) -> tuple[Image, float, tuple[str, ...]]:
        """The frame within the pixel cap."""
        scale = math.sqrt(self._options.max_page_pixels / (shown.width * shown.height))
        if scale >= 1:
            return shown, dpi, ()
        size = max(1, int(shown.width * scale)), max(1, int(shown.height * scale))
        return shown.resize(size), dpi * scale, ("low_resolution",)


def _resolution(image: Image) -> float:
    dpi = float(image.info.get("dpi", (DEFAULT_DPI,))[0] or DEFAULT_DPI)
    return dpi if 20 <= dpi <= 4800 else DEFAULT_DPI


def _on_white(image: Image) -> Image:
    """Transparent pixels are shown on paper; as black they would hide black letters."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    layer = image.convert("RGBA")
    return pillow.alpha_composite(pillow.new("RGBA", layer.size, "white"), layer)


def _laid(image: Image, pose: Pose) -> Image:
    if pose.skew:
        shown = _on_white(image)
        image = straighten(shown.convert("L" if shown.mode in ("1", "L") else "RGB"), pose.skew)
    return image.rotate(-pose.turn, expand=True) if pose.turn else image


def _encode(image: Image) -> bytes:
    buffer = io.BytesIO()
    keep = image.mode in ("1", "L", "RGB", "RGBA", "P")
    (image if keep else image.convert("RGB")).save(buffer, "PNG")
    return buffer.getvalue()


def parse_svg(path: Path, options: ParseOptions) -> ParsedDocument:
    """Raises `Unreadable` (corrupt, needs_pymupdf)."""
    if options.pdf_backend != "pymupdf":
        raise Unreadable("needs_pymupdf", "SVG is rendered by PyMuPDF, which is not in use")
    from corpus.parsers.pdf_pymupdf import render_svg

    drawn = render_svg(path, options)
    page = ParsedPage(
        page=1,
        width_pt=drawn.width_pt,
        height_pt=drawn.height_pt,
        text=drawn.text,
        text_source="native" if drawn.text else "none",
        image_png=drawn.png,
        image_dpi=drawn.dpi,
        flags=() if drawn.text else ("no_text",),
    )
    element = ParsedElement(
        "Image",
        drawn.text,
        1,
        Box(0.0, 0.0, drawn.width_pt, drawn.height_pt),
        image=ParsedImage(drawn.png, drawn.width_px, drawn.height_px),
    )
    return ParsedDocument("svg", drawn.parser, (page,), (element,))


FORMATS: Final = {"svg": parse_svg}
