"""Where the tables of a PDF's pages stand, so that `table_joins` can tell which go on.

In: each page's regions in reading order, and which of them is the caption of which. Out: for each
table region that is part of a table over several pages, that table (at its first part) or None.
Running headers and footers are out of the flow already; what is left beside a table and does not
part it from the page's edge: its caption, footnotes, "continued" lines, pictures at the very edge,
and lines there that the neighbouring page has as well (a short document has too few pages for them
to count as running headers).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corpus.parsed import ParsedTable
from corpus.parsers.boxes import contains_centre
from corpus.parsers.page_furniture import EDGE, page_lines, page_number
from corpus.parsers.paragraphs import Paragraph
from corpus.parsers.pdf_raw import RawImage, RawLine, RawPage, RawTable
from corpus.parsers.table_joins import TablePart, join_parts

Region = Paragraph | RawTable | RawImage
# Page and position among its regions; None: the table began on an earlier page.
JoinedTables = dict[tuple[int, int], ParsedTable | None]

SMALL_PRINT: Final = 0.93  # of the page's usual size
_NOTE_MARK: Final = re.compile(r"^\s*(?:\(?\d{1,3}\b|\(?[a-z]\)|[*†‡§¶]|notes?\b)", re.IGNORECASE)
_CONTINUES: Final = re.compile(
    r"^\W*(?:table\s+)?(?:to\s+be\s+)?cont(?:inued|['’.]?d|\.)?\b.{0,40}$", re.IGNORECASE
)


@dataclass(frozen=True)
class PageRegions:
    """`captions`: position of a table or picture -> that of its caption."""

    raw: RawPage
    regions: Sequence[Region]
    captions: Mapping[int, int]


def join_tables(pages: Sequence[PageRegions]) -> JoinedTables:
    """`pages` are all pages of a document in order."""
    parts: list[TablePart] = []
    places: list[tuple[int, int]] = []
    for number, page in enumerate(pages):
        around = [pages[i] for i in (number - 1, number + 1) if 0 <= i < len(pages)]
        for index, region in enumerate(page.regions):
            if isinstance(region, RawTable):
                parts.append(_part(page, index, region, around))
                places.append((page.raw.page, index))
    found: JoinedTables = {}
    for table in join_parts(parts):
        if len(table.parts) > 1:
            found.update(dict.fromkeys((places[i] for i in table.parts), None))
            found[places[table.parts[0]]] = ParsedTable(table.cells, table.caption, table.pages)
    return found


def _part(
    page: PageRegions, index: int, table: RawTable, around: Sequence[PageRegions]
) -> TablePart:
    caption_at = page.captions.get(index)
    caption = page.regions[caption_at] if caption_at is not None else None
    parts_it = [
        i for i in range(len(page.regions)) if i != index and _parts(page, i, index, around)
    ]
    return TablePart(
        page=page.raw.page,
        height_pt=page.raw.height_pt,
        box=table.box,
        cells=table.cells,
        caption=caption.text if isinstance(caption, Paragraph) else "",
        caption_below=caption is not None and caption.box.y0 >= table.box.y1 - 2.0,
        at_top=not any(i < index for i in parts_it),
        at_bottom=not any(i > index for i in parts_it),
        bold_rows=_bold_rows(page.raw, table),
    )


def _parts(page: PageRegions, at: int, index: int, around: Sequence[PageRegions]) -> bool:
    """Whether the region at `at` parts the table at `index` from the edge of the page's flow."""
    region = page.regions[at]
    if at == page.captions.get(index):
        return False
    in_edge = _in_edge(region, page.raw)
    if not isinstance(region, Paragraph):
        return not (isinstance(region, RawImage) and in_edge)
    if not region.upright or _CONTINUES.match(region.text):
        return False
    if in_edge and (
        page_number(region.text) is not None or any(_has_line(other, region) for other in around)
    ):
        return False
    return at < index or not _is_footnote(region, page)


def _in_edge(region: Region, page: RawPage) -> bool:
    return region.box.y1 <= EDGE * page.height_pt or region.box.y0 >= (1 - EDGE) * page.height_pt


def _has_line(page: PageRegions, paragraph: Paragraph) -> bool:
    """Whether the same text, digits aside, stands at the same height on that page."""
    shape = re.sub(r"\d+", "#", paragraph.text)
    return any(
        isinstance(other, Paragraph)
        and abs(other.box.y0 - paragraph.box.y0) < 6.0
        and re.sub(r"\d+", "#", other.text) == shape
        for other in page.regions
    )


def _is_footnote(paragraph: Paragraph, page: PageRegions) -> bool:
    sizes: Counter[float] = Counter()
    for line in page_lines(page.raw):
        sizes[line.size] += len(line.text)
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    size = max(line.size for line in paragraph.lines)
    return size < SMALL_PRINT * usual and bool(_NOTE_MARK.match(paragraph.text))


def _bold_rows(page: RawPage, table: RawTable) -> frozenset[int]:
    """Rows all of whose words are bold."""
    lines = [
        line
        for block in page.blocks
        for line in block.lines
        if contains_centre(table.box, line.box)
    ]
    bold: dict[int, bool] = {}
    for cell in table.cells:
        if cell.text and cell.bbox_pt and cell.row_span == 1:
            own = [line for line in lines if _stands_in(line, cell.bbox_pt)]
            if own:
                flag = all(line.bold for line in own)
                bold[cell.row] = bold.get(cell.row, True) and flag
    return frozenset(row for row, flag in bold.items() if flag)


def _stands_in(line: RawLine, box: tuple[float, float, float, float]) -> bool:
    x, y = line.box.x0 + 1.0, (line.box.y0 + line.box.y1) / 2
    return box[0] - 1.0 <= x <= box[2] and box[1] <= y <= box[3]
