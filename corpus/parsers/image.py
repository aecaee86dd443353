"""A lone picture as a document: one page a frame, with the picture as its only element.

In: PNG, JPEG, TIFF (all frames), GIF and WebP (first frame), BMP, SVG (rendered by PyMuPDF, words
kept). Out: pages whose image is the frame as shown (EXIF rotation applied). Does no OCR: a raster
page is flagged `no_text`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from corpus.parsed import (
    Box,
    ParsedDocument,
    ParsedElement,
    ParsedImage,
    ParsedPage,
    ParseOptions,
    Unreadable,
)

if TYPE_CHECKING:
    from PIL import Image

DEFAULT_DPI: Final = 96.0
MAX_FRAMES: Final = 500
# Over this many times the page cap a picture is not even decoded.
MAX_OVER_CAP: Final = 10
_STORED_AS_IS: Final = {"PNG": "png", "JPEG": "jpeg"}


def parse(path: Path, options: ParseOptions) -> ParsedDocument:
    """Raises `Unreadable` (corrupt, too_large, needs_pymupdf)."""
    with path.open("rb") as stream:
        head = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    return _parse_svg(path, options) if head.startswith(b"<") else _parse_raster(path, options)


def _parse_raster(path: Path, options: ParseOptions) -> ParsedDocument:
    from PIL import Image, UnidentifiedImageError, __version__

    Image.MAX_IMAGE_PIXELS = None  # our own limit is checked before decoding
    try:
        with Image.open(path) as image:
            frames = list(_frames(image, path, options))
            format_name = (image.format or "").lower()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        raise Unreadable("corrupt", f"Pillow cannot read it: {error}") from error
    return ParsedDocument(
        format=format_name,
        parser=f"pillow {__version__}",
        pages=tuple(page for page, _ in frames),
        elements=tuple(element for _, element in frames),
    )


def _frames(
    image: Image.Image, path: Path, options: ParseOptions
) -> Iterator[tuple[ParsedPage, ParsedElement]]:
    count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if count > MAX_FRAMES:
        raise Unreadable("too_large", f"{count} frames, more than {MAX_FRAMES}")
    for number in range(1, count + 1):
        if count > 1:
            image.seek(number - 1)
        if image.width * image.height > MAX_OVER_CAP * options.max_page_pixels:
            raise Unreadable("too_large", f"frame {number} is {image.width}x{image.height} pixels")
        yield _frame(image, number, path, options)


def _frame(
    image: Image.Image, number: int, path: Path, options: ParseOptions
) -> tuple[ParsedPage, ParsedElement]:
    from PIL import ImageOps

    stored = image.format in _STORED_AS_IS
    dpi = _resolution(image)
    shown = ImageOps.exif_transpose(image)
    width_pt, height_pt = shown.width * 72 / dpi, shown.height * 72 / dpi
    flags = ["no_text"]
    scale = math.sqrt(options.max_page_pixels / (shown.width * shown.height))
    if scale < 1:
        flags.append("low_resolution")
        shown = shown.resize((max(1, int(shown.width * scale)), max(1, int(shown.height * scale))))
        dpi *= scale
    png = _encode(shown)
    page = ParsedPage(
        page=number,
        width_pt=width_pt,
        height_pt=height_pt,
        text="",
        text_source="none",
        image_png=png,
        image_dpi=round(dpi),
        flags=tuple(flags),
    )
    data = path.read_bytes() if stored else png
    size = (image.width, image.height) if stored else (shown.width, shown.height)
    element = ParsedElement(
        "Image", "", number, Box(0.0, 0.0, width_pt, height_pt), image=ParsedImage(data, *size)
    )
    return page, element


def _resolution(image: Image.Image) -> float:
    dpi = float(image.info.get("dpi", (DEFAULT_DPI,))[0] or DEFAULT_DPI)
    return dpi if 20 <= dpi <= 4800 else DEFAULT_DPI


def _encode(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    keep = image.mode in ("1", "L", "RGB", "RGBA", "P")
    (image if keep else image.convert("RGB")).save(buffer, "PNG")
    return buffer.getvalue()


def _parse_svg(path: Path, options: ParseOptions) -> ParsedDocument:
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


FORMATS: Final = dict.fromkeys(("png", "jpeg", "tiff", "gif", "bmp", "webp", "svg"), parse)
