"""What a parser returns: one document's pages and elements in reading order, before ids.

Every parser is `parse(path, options) -> ParsedDocument`, runs in a killable child process, and
knows nothing of workspaces or ids. `corpus.rows` turns the result into table rows.
A parser raises `corpus.parsed.Unreadable` when nothing of the document can be had, and appends a
`Fault` when a page or a part is lost and the rest is good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from workspace.errors import DsmError


class Box(NamedTuple):
    """Points, origin top left, page as shown."""

    x0: float
    y0: float
    x1: float
    y1: float


class Unreadable(DsmError):
    """The whole document goes to quarantine. `reason` is a code, e.g. corrupt, encrypted, empty."""

    def __init__(self, reason: str, detail: str, *, stage: str = "open"):
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.stage = stage

    def __reduce__(self) -> tuple[object, ...]:
        # The arguments differ from `args`, and errors cross process borders.
        return (_rebuild_unreadable, (self.reason, self.detail, self.stage))


def _rebuild_unreadable(reason: str, detail: str, stage: str) -> Unreadable:
    return Unreadable(reason, detail, stage=stage)


@dataclass(frozen=True)
class Fault:
    """A part that was lost; `page` 0 means the document as a whole."""

    page: int
    stage: str
    reason: str
    detail: str


@dataclass(frozen=True)
class ParsedCell:
    """Spans count from the top-left position; covered positions have no cell of their own."""

    row: int
    col: int
    text: str
    row_span: int = 1
    col_span: int = 1
    is_header: bool = False
    bbox_pt: Box | None = None
    page: int = 0  # 0: the table's first page


@dataclass(frozen=True)
class ParsedTable:
    cells: tuple[ParsedCell, ...]
    caption: str = ""
    pages: tuple[int, ...] = ()  # empty: the element's page


@dataclass(frozen=True)
class ParsedImage:
    """Encoded bytes as found (PNG or JPEG; other kinds are converted to PNG)."""

    data: bytes
    width_px: int
    height_px: int
    caption: str = ""
    repeated_on: tuple[int, ...] = ()  # further pages with this logo in the margin


@dataclass(frozen=True)
class ParsedPort:
    name: str
    direction: str
    width: int  # bits with default parameters, 0 when not constant
    type: str
    comment: str = ""
    line: int = 0


@dataclass(frozen=True)
class ParsedParameter:
    name: str
    value: str
    is_local: bool = False
    comment: str = ""
    line: int = 0


@dataclass(frozen=True)
class ParsedInstance:
    module: str
    name: str
    line: int = 0


@dataclass(frozen=True)
class ParsedModule:
    """One RTL module or interface."""

    name: str
    language: str
    source: str
    comment: str = ""
    ports: tuple[ParsedPort, ...] = ()
    parameters: tuple[ParsedParameter, ...] = ()
    instances: tuple[ParsedInstance, ...] = ()
    line_start: int = 0
    line_end: int = 0


# Role, in its metadata, of an element that lists where others stand; and flag of its page.
CONTENTS: Final = "contents"


@dataclass(frozen=True)
class ParsedElement:
    """One element in reading order. At most one of `table`, `image`, `module` is set."""

    category: str
    text: str
    page: int = 1
    bbox_pt: Box | None = None
    level: int = 0  # heading depth from 1 for Title, 0 for the rest
    metadata: dict[str, str] = field(default_factory=dict)
    table: ParsedTable | None = None
    image: ParsedImage | None = None
    module: ParsedModule | None = None


@dataclass(frozen=True)
class ParsedPage:
    page: int
    width_pt: float
    height_pt: float
    text: str
    rotation: int = 0
    text_source: str = "native"  # native | ocr | none
    image_png: bytes | None = None
    image_dpi: int = 0
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParsedDocument:
    format: str
    parser: str  # backend and version
    pages: tuple[ParsedPage, ...]
    elements: tuple[ParsedElement, ...]
    title: str = ""
    language: str = ""
    licence: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class ParseOptions:
    """The settings that parsers read; filled from `IngestConfig`."""

    page_dpi: int = 100
    max_page_pixels: int = 40_000_000
    extract_images: bool = True
    max_table_rows: int = 20_000
    pdf_backend: str = "pymupdf"  # pymupdf | pypdfium2
    table_detection: str = "routed"  # fast | routed | full, as in IngestConfig
    ocr: str = "auto"  # auto | off | force
    ocr_engine: str = "none"  # both | tesseract | rapidocr | none
    ocr_languages: tuple[str, ...] = ("eng",)
    ocr_dpi: int = 200
    password: str = field(default="", repr=False)  # of this document
