"""PDF, and pictures as pages: choice of the backend, page ranges, and the join of all pages.

    outline = read_outline(path, spool, options)          once
    read_pages(path, pages, spool, options, on_page)       in any process, any order
    document = join_pages(spool)                           once all pages are done or lost

`parse` does the three in one process, for tests and for use without a pool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.image import RASTER, ImageDocument
from corpus.parsers.page_ocr import with_ocr
from corpus.parsers.pdf_raw import PdfDocument, RawOutline, RawPage
from corpus.parsers.pdf_spool import PdfSpool
from corpus.parsers.pdf_structure import build_document
from corpus.sniff import sniff


def open_pages(path: Path, options: ParseOptions) -> PdfDocument:
    """Open a PDF with `options.pdf_backend`, or a raster picture.

    Raises `Unreadable` (corrupt, encrypted, no_pages, too_large).
    """
    if sniff(path, "") in RASTER:
        return ImageDocument(path, options)
    if options.pdf_backend == "pymupdf":
        from corpus.parsers.pdf_pymupdf import PymupdfDocument

        return PymupdfDocument(path, options)
    from corpus.parsers.pdf_pdfium import PdfiumDocument

    return PdfiumDocument(path, options)


def read_outline(path: Path, spool: PdfSpool, options: ParseOptions) -> RawOutline:
    """Number of pages, bookmarks and metadata; also kept in the spool."""
    document = open_pages(path, options)
    try:
        spool.put_outline(document.outline)
        return document.outline
    finally:
        document.close()


def read_pages(
    path: Path,
    pages: Iterable[int],
    spool: PdfSpool,
    options: ParseOptions,
    on_page: Callable[[int], None],
) -> None:
    """Read `pages` into the spool, calling `on_page` after each. A page that raises is lost."""
    document = open_pages(path, options)
    try:
        for page in pages:
            spool.put_page(_read_page(document, page, spool, options))
            on_page(page)
    finally:
        document.close()


def _read_page(document: PdfDocument, page: int, spool: PdfSpool, options: ParseOptions) -> RawPage:
    try:
        return with_ocr(document, document.read_page(page, spool), spool, options)
    except MemoryError:
        raise
    except Unreadable as error:
        return lost_page(page, error.reason, error.detail)
    except Exception as error:  # the backends raise what their C libraries give them
        if "malloc" in str(error).lower():
            raise MemoryError(str(error)) from error
        return lost_page(page, "page_error", f"{type(error).__name__}: {error}")


def lost_page(page: int, reason: str, detail: str) -> RawPage:
    """The record of a page that could not be read."""
    return RawPage(
        page=page,
        width_pt=0.0,
        height_pt=0.0,
        rotation=0,
        fault_stage="parse",
        fault_reason=reason,
        fault_detail=detail[:1000],
    )


def join_pages(spool: PdfSpool) -> ParsedDocument:
    """The document from its spooled pages; a page that is missing there counts as lost."""
    outline = spool.get_outline()
    pages = [
        spool.get_page(page) or lost_page(page, "page_error", "the page left no record")
        for page in range(1, outline.n_pages + 1)
    ]
    return build_document(pages, outline, spool.get_image)


def parse(path: Path, options: ParseOptions) -> ParsedDocument:
    """A whole document in this process, page images included."""
    with tempfile.TemporaryDirectory() as folder:
        spool = PdfSpool(Path(folder))
        outline = read_outline(path, spool, options)
        read_pages(path, range(1, outline.n_pages + 1), spool, options, lambda page: None)
        document = join_pages(spool)
        pages = tuple(
            replace(page, image_png=spool.get_page_png(page.page)) for page in document.pages
        )
        return replace(document, pages=pages)
