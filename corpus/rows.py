"""A parsed document -> rows of the corpus tables.

In: a `ParsedDocument` (elements in reading order, before ids) and its `doc_id`. Out: a
`DocumentRows` whose rows fit `corpus.schema`, with ids, reading order, section paths and parents.
Ids depend on the document's bytes and the element's place and text alone.

Left to others: `summaries`, `chunks`, `fingerprints` and the hashes by which pages and pictures are
compared are filled in by `corpus.parse_task`; `uri`, `uris`, `name`, `parent_id` and `tags` are
filled in when the corpus is published, since the same bytes may lie under several names; page
images are written straight from their spool, so `image` is null in `DocumentRows.pages`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from corpus import table_views
from corpus.parsed import (
    CONTENTS,
    Box,
    ParsedCell,
    ParsedDocument,
    ParsedElement,
    ParsedImage,
    ParsedModule,
    ParsedTable,
)
from workspace.ids import derive_id
from workspace.shards import Row

OUT_OF_FLOW = frozenset({"Header", "Footer", "PageNumber"})


def in_flow(element: Row) -> bool:
    """Whether an element row is part of what the document says, and not of what frames it."""
    if element["category"] in OUT_OF_FLOW:
        return False
    role = json.loads(element["metadata_json"] or "{}").get("role")
    return bool(role != CONTENTS)


@dataclass
class DocumentRows:
    """One document's rows by table, each list in reading order."""

    doc_id: str
    document: Row
    pages: list[Row] = field(default_factory=list)
    elements: list[Row] = field(default_factory=list)
    tables: list[Row] = field(default_factory=list)
    images: list[Row] = field(default_factory=list)
    modules: list[Row] = field(default_factory=list)
    summaries: list[Row] = field(default_factory=list)
    chunks: list[Row] = field(default_factory=list)
    fingerprints: list[Row] = field(default_factory=list)


def build_rows(doc_id: str, parsed: ParsedDocument, *, size_bytes: int) -> DocumentRows:
    """Rows of every table except summaries and chunks."""
    rows = DocumentRows(doc_id, document={})
    sections = _SectionStack()
    for order, element in enumerate(parsed.elements):
        row = _element_row(doc_id, order, element, sections)
        rows.elements.append(row)
        if element.table is not None:
            rows.tables.append(_table_row(row, element.table))
        if element.image is not None:
            rows.images.append(_image_row(row, element.image))
        if element.module is not None:
            rows.modules.append(_module_row(row, element.module))
    rows.pages.extend(_page_rows(doc_id, parsed))
    rows.document = _document_row(rows, parsed, size_bytes)
    return rows


class _SectionStack:
    """The open titles, outermost first: (level, text, element_id)."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str, str]] = []

    def above(self, element: ParsedElement) -> tuple[list[str], str]:
        """Section path and parent id for `element`, closing the sections that it ends."""
        if element.category in OUT_OF_FLOW:
            return [], ""
        if element.category == "Title":
            level = max(element.level, 1)
            while self._open and self._open[-1][0] >= level:
                self._open.pop()
        path = [text for _, text, _ in self._open]
        return path, self._open[-1][2] if self._open else ""

    def enter(self, element: ParsedElement, element_id: str) -> None:
        self._open.append((max(element.level, 1), element.text, element_id))


def _element_row(doc_id: str, order: int, element: ParsedElement, sections: _SectionStack) -> Row:
    path, parent_id = sections.above(element)
    element_id = derive_id(doc_id, element.page, order, element.category, element.text)
    if element.category == "Title":
        sections.enter(element, element_id)
    return {
        "element_id": element_id,
        "doc_id": doc_id,
        "page": element.page,
        "order": order,
        "category": element.category,
        "text": element.text,
        "bbox_pt": _box(element.bbox_pt),
        "level": max(element.level, 1) if element.category == "Title" else 0,
        "section_path": path,
        "parent_id": parent_id,
        "metadata_json": _json(element.metadata),
    }


def _table_row(element: Row, table: ParsedTable) -> Row:
    cells = tuple(sorted(table.cells, key=lambda cell: (cell.row, cell.col)))
    return {
        "table_id": derive_id("table", element["element_id"]),
        "element_id": element["element_id"],
        "doc_id": element["doc_id"],
        "page": element["page"],
        "pages": list(table.pages) or [element["page"]],
        "order": element["order"],
        "caption": table.caption,
        "n_rows": max((cell.row + cell.row_span for cell in cells), default=0),
        "n_cols": max((cell.col + cell.col_span for cell in cells), default=0),
        "cells": [_cell(cell, element["page"]) for cell in cells],
        "html": table_views.html(cells),
        "markdown": table_views.markdown(cells),
        "columns_json": table_views.columns_json(cells),
        "bbox_pt": element["bbox_pt"],
        "section_path": element["section_path"],
    }


def _cell(cell: ParsedCell, first_page: int) -> Row:
    return {
        "row": cell.row,
        "col": cell.col,
        "row_span": cell.row_span,
        "col_span": cell.col_span,
        "is_header": cell.is_header,
        "text": cell.text,
        "page": cell.page or first_page,
        "bbox_pt": _box(cell.bbox_pt),
    }


def _image_row(element: Row, image: ParsedImage) -> Row:
    digest = hashlib.sha256(image.data).hexdigest()
    return {
        "image_id": derive_id("image", element["element_id"], digest),
        "element_id": element["element_id"],
        "doc_id": element["doc_id"],
        "page": element["page"],
        "order": element["order"],
        "caption": image.caption,
        "bbox_pt": element["bbox_pt"],
        "width_px": image.width_px,
        "height_px": image.height_px,
        "sha256": digest,
        "phash": "",
        "repeated_on": list(image.repeated_on),
        "image": {"bytes": image.data, "path": None},
    }


def _module_row(element: Row, module: ParsedModule) -> Row:
    return {
        "module_id": derive_id("module", element["element_id"], module.name),
        "element_id": element["element_id"],
        "doc_id": element["doc_id"],
        "order": element["order"],
        "name": module.name,
        "language": module.language,
        "comment": module.comment,
        "ports": [vars(port).copy() for port in module.ports],
        "parameters": [vars(parameter).copy() for parameter in module.parameters],
        "instances": [vars(instance).copy() for instance in module.instances],
        "source": module.source,
        "line_start": module.line_start,
        "line_end": module.line_end,
    }


def _page_rows(doc_id: str, parsed: ParsedDocument) -> list[Row]:
    per_page = Counter(element.page for element in parsed.elements)
    return [
        {
            "doc_id": doc_id,
            "page": page.page,
            "width_pt": page.width_pt,
            "height_pt": page.height_pt,
            "rotation": page.rotation,
            "text": page.text,
            "text_source": page.text_source,
            "image": None,
            "image_dpi": page.image_dpi,
            "n_elements": per_page[page.page],
            "flags": list(page.flags),
            "content_hash": "",
        }
        for page in parsed.pages
    ]


def _document_row(rows: DocumentRows, parsed: ParsedDocument, size_bytes: int) -> Row:
    return {
        "doc_id": rows.doc_id,
        "uri": "",
        "uris": [],
        "parent_id": "",
        "name": "",
        "format": parsed.format,
        "bytes": size_bytes,
        "title": parsed.title or _first_title(rows.elements),
        "language": parsed.language,
        "licence": parsed.licence,
        "n_pages": len(rows.pages),
        "n_elements": len(rows.elements),
        "n_tables": len(rows.tables),
        "n_images": len(rows.images),
        "n_modules": len(rows.modules),
        "parser": parsed.parser,
        "status": "partial" if parsed.faults else "ok",
        "tags": [],
        "metadata_json": _json(parsed.metadata),
    }


def _first_title(elements: Sequence[Row]) -> str:
    titles = (row["text"] for row in elements if row["category"] == "Title")
    return str(next(titles, ""))


def _box(box: Box | None) -> list[float] | None:
    return None if box is None else [float(value) for value in box]


def _json(values: dict[str, str]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False)
