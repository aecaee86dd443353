"""PPTX: text and categories through unstructured, a slide a page.

Added to what unstructured gives: merged cells of tables, pictures in their place, the data of
charts as tables, the texts of SmartArt, and the speaker's notes (metadata `role` = `notes`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lxml import etree

from corpus.parsed import (
    Fault,
    ParsedCell,
    ParsedDocument,
    ParsedElement,
    ParseOptions,
)
from corpus.parsers import characters, containers, documents
from corpus.parsers.nearby_captions import attach_captions
from corpus.parsers.table_headers import mark_headers
from corpus.parsers.unstructured_setup import LANGUAGES, classify, prepare, to_parsed, version

_POINTS_PER_EMU: Final = 1 / 12_700
_MARK: Final = "dsmpicture"
_DRAWING: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM: Final = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_MAX_CHART_POINTS: Final = 2_000

# The pictures of the file being parsed; unstructured calls our picture reader by class.
_pictures: ContextVar[list[tuple[bytes, str]]] = ContextVar("pictures")


def parse_pptx(path: Path, options: ParseOptions) -> ParsedDocument:
    """A presentation. Raises `Unreadable` when it is no sound, unencrypted PPTX."""
    import pptx
    from pptx.exc import PythonPptxError

    containers.check(path)
    with containers.damage_as_corrupt("presentation", PythonPptxError):
        return _read(pptx.Presentation(str(path)), path, options)


def _read(deck: Any, path: Path, options: ParseOptions) -> ParsedDocument:
    slides = list(deck.slides)
    faults: list[Fault] = []
    by_page = _partition(path, options, faults)
    elements: list[ParsedElement] = []
    for page, slide in enumerate(slides, 1):
        own = _with_spans(_one_title(by_page.get(page, [])), slide, page, faults)
        extra = [*_charts(slide, page), *_smart_art(slide, page), *_notes(slide, page)]
        elements.extend(attach_captions([*own, *extra]))
    size = ((deck.slide_width or 0) * _POINTS_PER_EMU, (deck.slide_height or 0) * _POINTS_PER_EMU)
    with zipfile.ZipFile(path) as container:
        metadata = containers.core_properties(container)
    return documents.build(
        "pptx",
        version("unstructured"),
        elements,
        page_sizes=dict.fromkeys(range(1, len(slides) + 1), size),
        title=metadata.pop("title", ""),
        metadata=metadata,
        faults=faults,
    )


class _PictureReader:
    """unstructured's hook for pictures: leaves a token and keeps the bytes."""

    @classmethod
    def iter_elements(cls, picture: Any, opts: Any) -> Iterator[Any]:
        from unstructured.documents.elements import ElementMetadata, Image

        try:
            data, name = picture.image.blob, picture.name or ""
        except (AttributeError, KeyError, ValueError):
            return  # a linked picture, which is not fetched
        found = _pictures.get()
        found.append((data, _alternative_text(picture) or ("" if "Picture" in name else name)))
        metadata = ElementMetadata(page_number=opts.page_number)
        yield Image(f"{_MARK}{len(found) - 1}", metadata=metadata)


def _partition(
    path: Path, options: ParseOptions, faults: list[Fault]
) -> dict[int, list[ParsedElement]]:
    from unstructured.partition.pptx import partition_pptx, register_picture_partitioner

    prepare()
    register_picture_partitioner(_PictureReader)
    collected: list[tuple[bytes, str]] = []
    token = _pictures.set(collected)
    try:
        parsed = to_parsed(
            partition_pptx(str(path), languages=LANGUAGES), max_table_rows=options.max_table_rows
        )
    finally:
        _pictures.reset(token)
    by_page: dict[int, list[ParsedElement]] = {}
    for element in parsed:
        part: ParsedElement | Fault = element
        if element.category == "Image" and element.text.startswith(_MARK):
            data, caption = collected[int(element.text[len(_MARK) :])]
            part = documents.picture_element(data, options, page=element.page, caption=caption)
        if isinstance(part, Fault):
            faults.append(part)
        elif options.extract_images or part.image is None:
            by_page.setdefault(element.page, []).append(part)
    return by_page


def _one_title(elements: list[ParsedElement]) -> list[ParsedElement]:
    """Short points look like titles to unstructured; a slide has one title, the others are points.

    Bullets that a paragraph inherits from the slide's layout are not visible in it.
    """
    has_title = any(e.category == "Title" and e.level == 1 for e in elements)
    result: list[ParsedElement] = []
    for element in elements:
        if element.category == "Title" and (element.level > 1 or not has_title):
            depth = {"depth": str(element.level - 2)} if element.level > 2 else {}
            category = "ListItem" if has_title else "UncategorizedText"
            element = replace(element, category=category, level=0, metadata=depth)
        result.append(element)
    return result


def _with_spans(
    elements: list[ParsedElement], slide: Any, page: int, faults: list[Fault]
) -> list[ParsedElement]:
    """Tables with their merged cells: unstructured writes those as several, all but one empty."""
    shapes = sorted(_shapes(slide.shapes), key=lambda shape: (shape.top or 0, shape.left or 0))
    tables = [_cells(shape.table) for shape in shapes if getattr(shape, "has_table", False)]
    tables = [cells for cells in tables if any(cell.text for cell in cells)]
    places = [index for index, element in enumerate(elements) if element.table is not None]
    if len(places) != len(tables):
        detail = f"{len(places)} tables read, {len(tables)} on the slide"
        faults.append(Fault(page, "tables", "spans_lost", detail))
        return elements
    result = list(elements)
    for place, cells in zip(places, tables, strict=True):
        result[place] = documents.table_element(cells, page=page)
    return result


def _shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _cells(table: Any) -> tuple[ParsedCell, ...]:
    marked = bool(table.first_row)
    cells = [
        ParsedCell(
            row=row,
            col=col,
            text=characters.clean(cell.text).strip(),
            row_span=cell.span_height if cell.is_merge_origin else 1,
            col_span=cell.span_width if cell.is_merge_origin else 1,
            is_header=marked and row == 0,
        )
        for row, line in enumerate(table.rows)
        for col, cell in enumerate(line.cells)
        if not cell.is_spanned
    ]
    return mark_headers(cells)


def _charts(slide: Any, page: int) -> list[ParsedElement]:
    """Each chart's categories and series, from the values that the file caches."""
    found = []
    for shape in _shapes(slide.shapes):
        if not getattr(shape, "has_chart", False):
            continue
        chart = shape.chart
        series = [(str(s.name or ""), list(s.values)) for plot in chart.plots for s in plot.series]
        categories = [str(label) for label in chart.plots[0].categories] if chart.plots else []
        n_rows = max([len(categories), *(len(values) for _, values in series)], default=0)
        if not n_rows or n_rows * (len(series) + 1) > _MAX_CHART_POINTS:
            continue
        columns = [("", categories), *series]
        cells = [ParsedCell(0, col, name, is_header=True) for col, (name, _) in enumerate(columns)]
        cells += [
            ParsedCell(row + 1, col, _number(values[row]) if row < len(values) else "")
            for row in range(n_rows)
            for col, (_, values) in enumerate(columns)
        ]
        title = chart.chart_title.text_frame.text if _has_title(chart) else ""
        found.append(documents.table_element(cells, page=page, caption=title, role="chart"))
    return found


def _has_title(chart: Any) -> bool:
    return bool(chart.has_title and chart.chart_title.has_text_frame)


def _number(value: object) -> str:
    if value is None:
        return ""
    return format(value, ".10g") if isinstance(value, float) else str(value)


def _smart_art(slide: Any, page: int) -> list[ParsedElement]:
    found = []
    for relation in slide.part.rels.values():
        if relation.is_external or not relation.reltype.endswith("/diagramData"):
            continue
        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
        root = etree.fromstring(relation.target_part.blob, parser)
        for point in root.iter(f"{_DIAGRAM}pt") if root is not None else ():
            text = "".join(run.text or "" for run in point.iter(f"{_DRAWING}t")).strip()
            if text:
                found.append(
                    ParsedElement("ListItem", text, page=page, metadata={"role": "diagram"})
                )
    return found


def _notes(slide: Any, page: int) -> list[ParsedElement]:
    frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    text = characters.clean(frame.text).strip() if frame is not None else ""
    if not text:
        return []
    element = ParsedElement(classify(text), text, page=page, metadata={"role": "notes"})
    return [replace(element, category="NarrativeText") if element.category == "Title" else element]


def _alternative_text(picture: Any) -> str:
    properties = picture._element.find(".//{*}cNvPr")
    text = properties.get("descr") or "" if properties is not None else ""
    return "" if "automatically generated" in text else " ".join(text.split())


FORMATS: Final = {"pptx": parse_pptx}
