"""PDF pages through PyMuPDF. Only the `pdf_pymupdf*` modules use it: it is AGPL-3.0, and optional.

In: a path. Out: `RawPage` per page: lines with style, pictures, tables with spans, the page as PNG.
MuPDF's layout model costs about 0.4 s of CPU a page against 0.03 s for the rest, so that by
default it runs only on pages that show signs of a table (`table_detection`).

Runs in a killable child: some pages hang or crash MuPDF, and no time limit exists inside it.
Does not decide what is a heading, a caption or a footer (`pdf_structure`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from PIL.Image import Image, frombuffer

from corpus.parsed import Box, ParseOptions, Unreadable
from corpus.parsers import pdf_pymupdf_images as images
from corpus.parsers import pdf_pymupdf_tables as tables
from corpus.parsers.boxes import enclose
from corpus.parsers.page_png import encode_page
from corpus.parsers.page_size import fit_dpi
from corpus.parsers.pdf_pymupdf_characters import speed_up
from corpus.parsers.pdf_pymupdf_scans import find_tables_on_scan
from corpus.parsers.pdf_raw import (
    AS_SHOWN,
    Bookmark,
    PageFiles,
    Pose,
    RawBlock,
    RawLine,
    RawOutline,
    RawPage,
    RawTable,
)
from corpus.parsers.table_grid import Word
from corpus.passwords import CURE
from corpus.step_clock import CLOCK

_MONO: Final = re.compile(r"mono|courier|consol|typewriter|cmtt|menlo|inconsol|fixed", re.I)
_BOLD: Final = re.compile(r"bold|black|heavy|semibold|demi|cmbx|-bd", re.I)
_METADATA: Final = (
    "author",
    "subject",
    "keywords",
    "creator",
    "producer",
    "creationDate",
    "modDate",
    "format",
    "title",
)
# Past this many vector paths the layout model and the ruling search take minutes.
MAX_DRAWINGS: Final = 5_000


def load() -> Any:
    """The library, silent, and with single-threaded models.

    ONNX Runtime sizes its thread pool by the CPUs that the process may use when a model is
    loaded, which happens at import, and offers no setting from outside.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        import pymupdf
    finally:
        os.sched_setaffinity(0, allowed)
    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    pymupdf.no_recommend_layout()
    speed_up(pymupdf)
    return pymupdf


class PymupdfDocument:
    """An open PDF."""

    def __init__(self, path: Path, options: ParseOptions) -> None:
        self._options = options
        self._pymupdf = load()
        self._document = _open(self._pymupdf, path, options.password)
        self.outline = _outline(self._pymupdf, self._document)
        self._images = images.ImageExtractor(self._pymupdf, self._document, options)

    def close(self) -> None:
        self._document.close()
        # MuPDF keeps up to 256 MB of decoded pictures, also those of closed documents.
        self._pymupdf.TOOLS.store_shrink(100)

    def read_page(self, page: int, files: PageFiles, pose: Pose = AS_SHOWN) -> RawPage:
        """One page, laid upright; raises whatever MuPDF raises when it cannot be read."""
        loaded = self._document.load_page(page - 1)
        rotation = int(loaded.rotation)
        if pose.turn:
            loaded.set_rotation((rotation + pose.turn) % 360)
        shown = loaded.rect
        with CLOCK.measure("text"):
            blocks = _read_blocks(self._pymupdf, loaded)
        with CLOCK.measure("render"):
            png, dpi, flags = self._render(loaded, pose.skew)
        files.put_page_png(page, png)
        drawings = loaded.get_cdrawings()
        with CLOCK.measure("images"):
            found = self._images.read(loaded, blocks, drawings, files)
        # Last: on a rotated page it rewrites the content that the others read.
        with CLOCK.measure("tables"):
            found_tables = self._find_tables(loaded, blocks, drawings)
        flags += [*found.flags, *found_tables.flags]
        if len(drawings) > MAX_DRAWINGS:
            flags.append("many_drawings")
        return RawPage(
            page=page,
            width_pt=float(shown.width),
            height_pt=float(shown.height),
            rotation=rotation,
            blocks=blocks,
            images=tuple(found.images),
            tables=found_tables.tables,
            png_bytes=len(png),
            dpi=dpi,
            n_drawings=len(drawings),
            n_tiny_images=found.n_tiny,
            flags=tuple(flags),
        )

    def render(self, page: int, dpi: float) -> Image:
        """The page as shown, in greys."""
        pixmap = self._document.load_page(page - 1).get_pixmap(
            matrix=self._pymupdf.Matrix(dpi / 72, dpi / 72), colorspace=self._pymupdf.csGRAY
        )
        return frombuffer("L", (pixmap.width, pixmap.height), bytes(pixmap.samples))

    def find_tables(self, page: int, words: Sequence[Word], pose: Pose) -> tuple[RawTable, ...]:
        """Tables among OCR words, on a copy of the page that shows its picture alone."""
        loaded = self._document.load_page(page - 1)
        if pose.turn:
            loaded.set_rotation((int(loaded.rotation) + pose.turn) % 360)
        png = self._render(loaded, pose.skew)[0]
        width, height = float(loaded.rect.width), float(loaded.rect.height)
        return find_tables_on_scan(
            self._pymupdf, png, width, height, words, self._options.table_detection
        )

    def _find_tables(
        self, page: Any, blocks: tuple[RawBlock, ...], drawings: list[dict[str, Any]]
    ) -> tables.FoundTables:
        # The search for rulings is quadratic in the paths, and so is the layout model's.
        if len(drawings) > 4 * MAX_DRAWINGS:
            return tables.FoundTables(())
        mode = "fast" if len(drawings) > MAX_DRAWINGS else self._options.table_detection
        return tables.find_tables(page, blocks, mode, drawings)

    def _render(self, page: Any, skew: float) -> tuple[bytes, int, list[str]]:
        dpi = fit_dpi(
            page.rect.width, page.rect.height, self._options.page_dpi, self._options.max_page_pixels
        )
        flags = ["low_resolution"] if dpi < self._options.page_dpi else []
        scale = dpi / 72
        pixmap = page.get_pixmap(matrix=self._pymupdf.Matrix(scale, scale), alpha=False)
        png = encode_page(pixmap.samples_mv, pixmap.width, pixmap.height, skew)
        return png, round(dpi), flags


class Drawn(NamedTuple):
    """A rendered SVG; `text` holds its words, a line each."""

    png: bytes
    width_px: int
    height_px: int
    width_pt: float
    height_pt: float
    dpi: int
    text: str
    parser: str


def render_svg(path: Path, options: ParseOptions) -> Drawn:
    """Draw an SVG file. Raises `Unreadable` (corrupt)."""
    pymupdf = load()
    try:
        with pymupdf.open(path, filetype="svg") as document:
            page = document[0]
            width, height = float(page.rect.width), float(page.rect.height)
            dpi = fit_dpi(width, height, options.page_dpi, options.max_page_pixels)
            pixmap = page.get_pixmap(matrix=pymupdf.Matrix(dpi / 72, dpi / 72), alpha=False)
            lines = (" ".join(line.split()) for line in page.get_text().splitlines())
            text = "\n".join(line for line in lines if line)
    except Exception as error:
        raise Unreadable("corrupt", f"MuPDF cannot draw it: {error}") from error
    return Drawn(
        pixmap.tobytes("png"),
        pixmap.width,
        pixmap.height,
        width,
        height,
        round(dpi),
        text,
        f"pymupdf {pymupdf.VersionBind}",
    )


def convert_to_pdf(path: Path, kind: str) -> bytes:
    """An XPS or MOBI file as PDF. Raises `Unreadable` (corrupt, no_pages)."""
    pymupdf = load()
    try:
        with pymupdf.open(path, filetype=kind) as document:
            if document.page_count == 0:
                raise Unreadable("no_pages", f"the {kind} has no pages")
            return bytes(document.convert_to_pdf())
    except (RuntimeError, ValueError, pymupdf.mupdf.FzErrorBase) as error:
        raise Unreadable("corrupt", f"MuPDF cannot open it: {error}") from error


def _open(pymupdf: Any, path: Path, password: str) -> Any:
    try:
        document = pymupdf.open(path, filetype="pdf")
    except Exception as error:
        raise Unreadable("corrupt", f"MuPDF cannot open it: {error}") from error
    if document.needs_pass and not document.authenticate(password):
        raise Unreadable("encrypted", f"the PDF needs a password: {CURE}")
    if document.page_count == 0:
        raise Unreadable("no_pages", "the PDF has no pages")
    return document


def _outline(pymupdf: Any, document: Any) -> RawOutline:
    metadata = {
        name: str(value)
        for name, value in (document.metadata or {}).items()
        if value and name in _METADATA
    }
    try:
        entries = document.get_toc(simple=True)
    except Exception:  # a broken outline costs the bookmarks, not the document
        entries = []
        metadata["outline"] = "unreadable"
    bookmarks = tuple(
        Bookmark(int(level), " ".join(str(title).split()), int(page))
        for level, title, page in entries
        if str(title).strip()
    )
    return RawOutline(
        n_pages=document.page_count,
        parser=f"pymupdf {pymupdf.VersionBind}",
        bookmarks=bookmarks,
        metadata=tuple(sorted(metadata.items())),
    )


def _read_blocks(pymupdf: Any, page: Any) -> tuple[RawBlock, ...]:
    # Pictures are left out: with them this call decodes each one (300 ms a page against 1 ms).
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    content = page.get_text("dict", flags=flags, sort=False)
    # Text comes in the coordinates of the page before its rotation.
    matrix = page.rotation_matrix
    blocks = []
    for block in content["blocks"]:
        lines = [line for raw in block.get("lines", ()) if (line := _line(pymupdf, raw, matrix))]
        if lines:
            blocks.append(RawBlock(tuple(lines), enclose([line.box for line in lines])))
    return tuple(blocks)


def _line(pymupdf: Any, raw: dict[str, Any], matrix: Any) -> RawLine | None:
    spans = [span for span in raw["spans"] if span["text"]]
    text = "".join(span["text"] for span in spans).strip()
    if not text:
        return None
    inked = [span for span in spans if span["text"].strip()]
    weight = sum(len(span["text"]) for span in inked)
    largest = max(inked, key=lambda span: len(span["text"]))
    cosine, sine = raw["dir"]
    return RawLine(
        text=" ".join(text.split()) if not _is_mono(largest) else text,
        box=_to_box(pymupdf.Rect(raw["bbox"]) * matrix),
        size=round(float(largest["size"]), 1),
        bold=sum(len(span["text"]) for span in inked if _is_bold(span)) > weight / 2,
        mono=sum(len(span["text"]) for span in inked if _is_mono(span)) > weight / 2,
        upright=cosine * matrix.a + sine * matrix.c > 0.9,
    )


def _is_mono(span: dict[str, Any]) -> bool:
    return bool(span["flags"] & 8) or bool(_MONO.search(span["font"]))


def _is_bold(span: dict[str, Any]) -> bool:
    return bool(span["flags"] & 16) or bool(_BOLD.search(span["font"]))


def _to_box(rect: Any) -> Box:
    return Box(*(round(float(value), 2) for value in (rect.x0, rect.y0, rect.x1, rect.y1)))
