"""Raw pages of a PDF -> elements in reading order: the judgement that the backends leave out.

In: every `RawPage` of a document, its outline, and a way to fetch picture bytes. Out: a
`ParsedDocument`. Headers, footers and headings need the whole document, which is why this runs
after all pages are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corpus.parsed import (
    CONTENTS,
    Box,
    Fault,
    ParsedDocument,
    ParsedElement,
    ParsedImage,
    ParsedPage,
    ParsedTable,
)
from corpus.parsers.boxes import contains_centre, enclose
from corpus.parsers.captions import caption_kind, match_captions
from corpus.parsers.contents_pages import find_contents_pages, is_contents_title, is_entry
from corpus.parsers.headings import HeadingModel, is_leader
from corpus.parsers.line_numbers import find_line_numbers
from corpus.parsers.page_furniture import (
    Furniture,
    Place,
    drop_repeated_images,
    find_furniture,
    page_lines,
)
from corpus.parsers.page_tables import JoinedTables, PageRegions, Region, join_tables
from corpus.parsers.paragraphs import BULLET, LIST_MARKER, Paragraph, join_broken, split_block
from corpus.parsers.pdf_raw import RawImage, RawLine, RawOutline, RawPage, RawTable
from corpus.parsers.reading_order import sort_reading_order
from corpus.parsers.text_quality import is_garbled

LoadImage = Callable[[str], bytes]

_NUMBER_ALONE: Final = re.compile(
    r"^(?:\d{1,2}(?:\.\d{1,2}){0,3}|[A-Z]|(?:chapter|appendix|part)\s+[\dA-Z]+)\.?$", re.IGNORECASE
)


@dataclass
class _Page:
    """A page taken apart: what flows, and what stands outside the flow."""

    raw: RawPage
    regions: list[Region] = field(default_factory=list)
    headers: list[tuple[str, RawLine]] = field(default_factory=list)
    footers: list[tuple[str, RawLine]] = field(default_factory=list)
    labels: dict[int, list[str]] = field(default_factory=dict)  # picture -> words drawn in it
    n_line_numbers: int = 0


def build_document(
    pages: Sequence[RawPage], outline: RawOutline, load_image: LoadImage
) -> ParsedDocument:
    """Elements, pages and faults of the whole document. `pages` are sorted and complete."""
    furniture = find_furniture(_without_tables(page) for page in pages)
    pages, n_repeated = drop_repeated_images(pages)
    contents = find_contents_pages(pages, lambda page, place: Place(page, place) in furniture)
    pages = [_marked(page) if page.page in contents else page for page in pages]
    parts = [_take_apart(page, furniture) for page in pages]
    headings = HeadingModel(
        [(p.raw.page, item) for p in parts for item in p.regions if isinstance(item, Paragraph)],
        outline.bookmarks,
    )
    captions = [_captions_of_objects(part) for part in parts]
    joined, faults = _join(
        [PageRegions(p.raw, p.regions, own) for p, own in zip(parts, captions, strict=True)]
    )
    elements: list[ParsedElement] = []
    parsed_pages = []
    for part, own in zip(parts, captions, strict=True):
        found = _page_elements(part, own, headings, load_image)
        parsed_pages.append(_parsed_page(part.raw, [element for _, element in found]))
        elements += _with_joined_tables(part.raw.page, found, joined)
    metadata = dict(outline.metadata)
    left_out = {
        "tiny_images_left_out": sum(page.n_tiny_images for page in pages),
        "repeated_images_left_out": n_repeated,
        "line_numbers_left_out": sum(part.n_line_numbers for part in parts),
    }
    metadata |= {name: str(count) for name, count in left_out.items() if count}
    return ParsedDocument(
        format=outline.format,
        parser=_parser(outline, pages),
        pages=tuple(parsed_pages),
        elements=tuple(elements),
        title=_stated_title(metadata.pop("title", "")),
        metadata=metadata,
        faults=tuple(
            Fault(
                page.page,
                page.fault_stage,
                page.fault_reason,
                page.fault_detail,
            )
            for page in pages
            if page.fault_reason
        )
        + faults,
    )


def _marked(page: RawPage) -> RawPage:
    """A page of contents: what looks like a table there is none."""
    return replace(page, tables=(), flags=(*page.flags, CONTENTS))


def _join(pages: Sequence[PageRegions]) -> tuple[JoinedTables, tuple[Fault, ...]]:
    """Tables over page breaks; a failure leaves them in parts, and must not cost the document."""
    try:
        return join_tables(pages), ()
    except (ArithmeticError, LookupError, ValueError) as error:
        return {}, (Fault(0, "tables", "join_error", f"{type(error).__name__}: {error}"),)


def _without_tables(page: RawPage) -> RawPage:
    """Furniture positions count through all lines, so lines in tables are blanked, not removed."""
    if not page.tables:
        return page

    def outside(line: RawLine) -> RawLine:
        inside = any(contains_centre(table.box, line.box) for table in page.tables)
        middle = Box(0.0, page.height_pt / 2, 0.0, page.height_pt / 2)
        return replace(line, box=middle) if inside else line

    blocks = tuple(
        replace(block, lines=tuple(outside(line) for line in block.lines)) for block in page.blocks
    )
    return replace(page, blocks=blocks)


def _take_apart(page: RawPage, furniture: Furniture) -> _Page:
    part = _Page(page)
    position = -1
    numbers = find_line_numbers(page_lines(page))
    part.n_line_numbers = len(numbers)
    paragraphs: list[Paragraph] = []
    for block in page.blocks:
        flowing = []
        for line in block.lines:
            position += 1
            category = furniture.get(Place(page.page, position))
            if position in numbers:
                continue
            if category:
                upper = line.box.y1 < page.height_pt / 2
                (part.headers if upper else part.footers).append((category, line))
            elif not _inside_object(part, line):
                flowing.append(line)
        paragraphs += split_block(flowing)
    upright = [paragraph for paragraph in paragraphs if paragraph.upright]
    frames = [image for image in page.images if image.kind == "frame"]
    placed = [image for image in page.images if image.kind != "frame"]
    regions: list[Region] = [*upright, *page.tables, *placed]
    ordered = sort_reading_order(regions, lambda region: region.box)
    # Text that runs up or down a margin would cut through the columns beside it.
    turned = [paragraph for paragraph in paragraphs if not paragraph.upright]
    part.regions = [*frames, *_join_neighbours(ordered), *turned]
    return part


def _inside_object(part: _Page, line: RawLine) -> bool:
    """Words of a table are in its cells; words drawn in a figure become its text."""
    if any(contains_centre(table.box, line.box) for table in part.raw.tables):
        return True
    for index, image in enumerate(part.raw.images):
        if image.kind == "vector" and contains_centre(image.box, line.box):
            part.labels.setdefault(index, []).append(line.text.strip())
            return True
    return False


def _join_neighbours(regions: Sequence[Region]) -> list[Region]:
    joined: list[Region] = []
    run: list[Paragraph] = []
    for region in regions:
        if isinstance(region, Paragraph):
            run.append(region)
            continue
        joined += [*join_broken(run), region]
        run = []
    return [*joined, *join_broken(run)]


def _page_elements(
    part: _Page, captions: Mapping[int, int], headings: HeadingModel, load_image: LoadImage
) -> list[tuple[int, ParsedElement]]:
    """Elements of the page by itself, each with its place among the regions (-1: furniture)."""
    images = list(part.raw.images)
    flow: list[tuple[int, ParsedElement]] = []
    contents = _contents(part)
    for index, region in enumerate(part.regions):
        caption = _region_text(part.regions[captions[index]]) if index in captions else ""
        if isinstance(region, RawTable):
            table = ParsedTable(region.cells, caption, (part.raw.page,))
            element = _table_element(part.raw.page, region.box, table)
        elif isinstance(region, RawImage):
            labels = part.labels.get(images.index(region), [])
            element = _image_element(part.raw.page, region, caption, labels, load_image)
        elif index in contents:
            metadata = {"role": CONTENTS}
            element = ParsedElement(
                "UncategorizedText", region.text, part.raw.page, region.box, metadata=metadata
            )
        else:
            element = _text_element(part.raw.page, region, headings)
            if flow and element.category == "Title" and _NUMBER_ALONE.match(_text_of(flow[-1])):
                element = _with_number(flow.pop()[1], element)
        flow.append((index, element))
    return [
        *((-1, _furniture_element(part.raw.page, item)) for item in part.headers),
        *flow,
        *((-1, _furniture_element(part.raw.page, item)) for item in part.footers),
    ]


def _text_of(item: tuple[int, ParsedElement]) -> str:
    return item[1].text.strip()


def _region_text(region: Region) -> str:
    assert isinstance(region, Paragraph)
    return region.text


def _with_joined_tables(
    page: int, found: Sequence[tuple[int, ParsedElement]], joined: JoinedTables
) -> list[ParsedElement]:
    """The page's elements, with tables that begin here whole and the rest of others left out."""
    kept: list[ParsedElement] = []
    for index, element in found:
        table = joined.get((page, index), element.table)
        if element.table is None:
            kept.append(element)
        elif table is not None:
            assert element.bbox_pt is not None
            kept.append(_table_element(page, element.bbox_pt, table))
    return kept


def _captions_of_objects(part: _Page) -> dict[int, int]:
    """Position of a table or picture among the regions -> that of its caption."""
    found: dict[int, int] = {}
    for kind, wanted in (("table", RawTable), ("figure", RawImage)):
        captions = [
            i
            for i, region in enumerate(part.regions)
            if isinstance(region, Paragraph) and caption_kind(region.text) == kind
        ]
        objects = [
            i
            for i, region in enumerate(part.regions)
            if isinstance(region, wanted)
            and not (isinstance(region, RawImage) and region.kind == "frame")
        ]
        matched = match_captions(
            [part.regions[i].box for i in captions], [part.regions[i].box for i in objects]
        )
        found.update({objects[item]: captions[n] for item, n in matched.items()})
    return found


def _text_element(page: int, paragraph: Paragraph, headings: HeadingModel) -> ParsedElement:
    text = paragraph.text
    level = 0
    if is_leader(text):
        category = "UncategorizedText"
    elif caption_kind(text):
        category = "FigureCaption"
    elif level := headings.level(page, paragraph):
        category = "Title"
    elif paragraph.mono and any(char.isalnum() for char in text):
        category = "CodeSnippet"
    elif LIST_MARKER.match(text):
        category, text = "ListItem", BULLET.sub("", text)
    elif not _is_prose(text):
        category = "UncategorizedText"
    else:
        category = "NarrativeText"
    return ParsedElement(category, text, page, paragraph.box, level)


def _contents(part: _Page) -> set[int]:
    """Positions of the entries among the regions of a page of contents.

    All from the first one on, but for titles of lists and for prose after the last entry.
    """
    texts = {i: region for i, region in enumerate(part.regions) if isinstance(region, Paragraph)}
    if CONTENTS not in part.raw.flags:
        return set()
    entries = [i for i, paragraph in texts.items() if is_entry(paragraph.text)]
    return {
        i
        for i, paragraph in texts.items()
        if i >= min(entries, default=0)
        and not is_contents_title(paragraph.text)
        and (is_entry(paragraph.text) or len(paragraph.lines) <= 2)
    }


def _with_number(number: ParsedElement, title: ParsedElement) -> ParsedElement:
    """A chapter number that is set apart from its title, as one element."""
    assert number.bbox_pt is not None and title.bbox_pt is not None
    return replace(
        title,
        text=f"{number.text} {title.text}",
        bbox_pt=enclose([number.bbox_pt, title.bbox_pt]),
    )


def _is_prose(text: str) -> bool:
    words = text.split()
    return len(words) >= 4 and sum(1 for word in words if word[:1].isalpha()) >= len(words) / 2


def _table_element(page: int, box: Box, table: ParsedTable) -> ParsedElement:
    rows: dict[int, list[str]] = {}
    for cell in sorted(table.cells, key=lambda cell: (cell.row, cell.col)):
        rows.setdefault(cell.row, []).append(cell.text)
    text = "\n".join(" | ".join(cells) for cells in rows.values())
    return ParsedElement("Table", text, page, box, table=table)


def _image_element(
    page: int, image: RawImage, caption: str, labels: Sequence[str], load_image: LoadImage
) -> ParsedElement:
    picture = ParsedImage(
        load_image(image.file), image.width_px, image.height_px, caption, image.repeated_on
    )
    text = " ".join(label for label in labels if label)
    return ParsedElement(
        "Image", text, page, image.box, metadata={"kind": image.kind}, image=picture
    )


def _furniture_element(page: int, item: tuple[str, RawLine]) -> ParsedElement:
    category, line = item
    return ParsedElement(category, line.text.strip(), page, line.box)


def _parsed_page(raw: RawPage, elements: Sequence[ParsedElement]) -> ParsedPage:
    text = "\n".join(element.text for element in elements if element.text)
    flags = list(raw.flags)
    if raw.fault_reason and raw.fault_stage != "ocr":
        flags.append("lost")
    elif not text.strip():
        flags.append("no_text")
    elif is_garbled(text):
        flags.append("garbled_text")
    return ParsedPage(
        page=raw.page,
        width_pt=raw.width_pt,
        height_pt=raw.height_pt,
        text=text,
        rotation=raw.rotation,
        text_source=_text_source(raw, text),
        image_dpi=raw.dpi,
        flags=tuple(flags),
    )


def _text_source(raw: RawPage, text: str) -> str:
    if not text.strip():
        return "none"
    return "ocr" if raw.ocr_engine else "native"


def _parser(outline: RawOutline, pages: Sequence[RawPage]) -> str:
    """The backend, and every OCR engine that a page's text comes from."""
    return " + ".join([outline.parser, *sorted({p.ocr_engine for p in pages if p.ocr_engine})])


def _stated_title(title: str) -> str:
    """The title in the metadata, unless a program left a file name or nothing there."""
    stripped = title.strip()
    machine_made = stripped.lower().startswith(("microsoft ", "untitled")) or (
        "." in stripped and " " not in stripped
    )
    return "" if machine_made else stripped
