"""From elements to a `ParsedDocument`: page texts, table texts, faults from lost pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from corpus.parsed import (
    Fault,
    ParsedCell,
    ParsedDocument,
    ParsedElement,
    ParsedPage,
    ParsedTable,
    ParseOptions,
)
from corpus.parsers import pictures

PageSizes = Mapping[int, tuple[float, float]]


def build(
    kind: str,
    parser: str,
    elements: Sequence[ParsedElement],
    *,
    page_sizes: PageSizes | None = None,
    title: str = "",
    language: str = "",
    metadata: Mapping[str, str] | None = None,
    faults: Sequence[Fault] = (),
) -> ParsedDocument:
    """One page for each number up to the last one; sizes in points, 0 where a format has none."""
    sizes = page_sizes or {}
    last = max([1, *sizes, *(element.page for element in elements)])
    texts: dict[int, list[str]] = {page: [] for page in range(1, last + 1)}
    for element in elements:
        if element.text:
            texts[element.page].append(element.text)
    pages = [_page(page, texts[page], sizes.get(page, (0.0, 0.0))) for page in texts]
    kept = {key: value for key, value in (metadata or {}).items() if value}
    return ParsedDocument(
        format=kind,
        parser=parser,
        pages=tuple(pages),
        elements=tuple(elements),
        title=title.strip(),
        language=language,
        metadata=kept,
        faults=tuple(faults),
    )


def table_element(
    cells: Sequence[ParsedCell], *, page: int = 1, caption: str = "", **metadata: str
) -> ParsedElement:
    """A Table element; its text is one line per row, cells separated by ` | `."""
    ordered = sorted(cells, key=lambda cell: (cell.row, cell.col))
    rows = groupby(ordered, key=lambda cell: cell.row)
    lines = (" | ".join(" ".join(cell.text.split()) for cell in row) for _, row in rows)
    return ParsedElement(
        category="Table",
        text="\n".join(lines),
        page=page,
        metadata=metadata,
        table=ParsedTable(tuple(ordered), caption),
    )


def picture_element(
    data: bytes, options: ParseOptions, *, page: int = 1, caption: str = "", where: str = ""
) -> ParsedElement | Fault:
    """An Image element, or the fault that says why the picture is left out."""
    try:
        image = pictures.load(data, max_pixels=options.max_page_pixels, caption=caption)
    except pictures.PictureError as error:
        detail = f"{where}: {error.detail}" if where else error.detail
        return Fault(page, "images", error.reason, detail)
    return ParsedElement("Image", caption, page=page, image=image)


def split_faults(
    parts: Sequence[ParsedElement | Fault],
) -> tuple[list[ParsedElement], list[Fault]]:
    """Elements and faults apart, each in order."""
    elements = [part for part in parts if isinstance(part, ParsedElement)]
    return elements, [part for part in parts if isinstance(part, Fault)]


def _page(page: int, texts: list[str], size: tuple[float, float]) -> ParsedPage:
    text = "\n".join(texts)
    return ParsedPage(
        page=page,
        width_pt=size[0],
        height_pt=size[1],
        text=text,
        text_source="native" if text else "none",
        flags=() if text else ("no_text",),
    )
