"""What a PDF backend reads from one page, before any judgement about structure.

Backends (`pdf_pymupdf`, `pdf_pdfium`) yield `RawPage`; `pdf_structure` turns the pages of a whole
document into elements. The JSON form is how pages wait on disk between the two, because pages of
one document are read by several processes. Boxes are in points of the page as shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, Self

from PIL.Image import Image

from corpus.parsed import Box, ParsedCell
from corpus.parsers.table_grid import Word


@dataclass(frozen=True)
class RawLine:
    """One line of text with its dominant style."""

    text: str
    box: Box
    size: float
    bold: bool = False
    mono: bool = False
    upright: bool = True  # runs left to right on the page as shown

    @property
    def height(self) -> float:
        return self.box.y1 - self.box.y0


@dataclass(frozen=True)
class RawBlock:
    """Lines that the backend keeps together."""

    lines: tuple[RawLine, ...]
    box: Box


@dataclass(frozen=True)
class RawImage:
    """A picture placed on the page. `file` names its bytes in the spool, "" when not kept."""

    box: Box
    width_px: int
    height_px: int
    file: str
    kind: str = "raster"  # raster | vector | frame: the page itself, of a lone picture
    repeated_on: tuple[int, ...] = ()  # pages on which it was left out again


@dataclass(frozen=True)
class RawTable:
    box: Box
    cells: tuple[ParsedCell, ...]


@dataclass(frozen=True)
class RawPage:
    """`png_bytes` is the size of the rendered page in the spool, 0 when it was not rendered."""

    page: int
    width_pt: float
    height_pt: float
    rotation: int
    blocks: tuple[RawBlock, ...] = ()
    images: tuple[RawImage, ...] = ()
    tables: tuple[RawTable, ...] = ()
    png_bytes: int = 0
    dpi: int = 0
    n_drawings: int = 0
    n_tiny_images: int = 0
    ocr_engine: str = ""  # set when lines come from OCR
    flags: tuple[str, ...] = ()
    fault_stage: str = ""  # set when the page was lost, or with `ocr`, only its OCR
    fault_reason: str = ""
    fault_detail: str = ""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        fields = dict(value)
        fields["blocks"] = tuple(_block(item) for item in value["blocks"])
        fields["images"] = tuple(
            RawImage(**{**item, "box": Box(*item["box"])}) for item in value["images"]
        )
        fields["tables"] = tuple(_table(item) for item in value["tables"])
        fields["flags"] = tuple(value["flags"])
        return cls(**fields)


def _block(value: dict[str, Any]) -> RawBlock:
    lines = tuple(RawLine(**{**item, "box": Box(*item["box"])}) for item in value["lines"])
    return RawBlock(lines, Box(*value["box"]))


def _table(value: dict[str, Any]) -> RawTable:
    cells = tuple(
        ParsedCell(**{**item, "bbox_pt": Box(*item["bbox_pt"]) if item["bbox_pt"] else None})
        for item in value["cells"]
    )
    return RawTable(Box(*value["box"]), cells)


class Bookmark(NamedTuple):
    """An entry of the document's own outline."""

    level: int
    title: str
    page: int


@dataclass(frozen=True)
class RawOutline:
    """What a file says about itself."""

    n_pages: int
    parser: str
    bookmarks: tuple[Bookmark, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    format: str = "pdf"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            n_pages=value["n_pages"],
            parser=value["parser"],
            bookmarks=tuple(Bookmark(*item) for item in value["bookmarks"]),
            metadata=tuple((name, text) for name, text in value["metadata"]),
            format=value["format"],
        )


class Pose(NamedTuple):
    """How a page is laid upright from how the file shows it, in degrees clockwise."""

    turn: int = 0  # 0, 90, 180 or 270
    skew: float = 0.0  # of the picture alone, about its middle: a scan that was fed in askew


AS_SHOWN: Final = Pose()


class PageFiles(Protocol):
    """Where a backend puts bytes. Both return the name under which they can be found again."""

    def put_image(self, data: bytes) -> str: ...

    def put_page_png(self, page: int, data: bytes) -> None: ...


class PdfDocument(Protocol):
    """An open PDF of one backend. Page numbers count from 1."""

    outline: RawOutline

    def read_page(self, page: int, files: PageFiles, pose: Pose = AS_SHOWN) -> RawPage:
        """One page, laid upright."""
        ...

    def render(self, page: int, dpi: float) -> Image:
        """The page as the file shows it, in greys."""
        ...

    def find_tables(self, page: int, words: Sequence[Word], pose: Pose) -> tuple[RawTable, ...]:
        """Tables of a scanned page, given its words in points of the upright page."""
        ...

    def close(self) -> None: ...
