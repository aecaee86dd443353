"""A document in pieces: what the browser's pages load, the same from the server and from files.

    document          what it is, its pages, outline, tables, figures, modules, summaries, faults
    page-<p>-<k>      elements of page p, the k-th PART_ELEMENTS of them, with their boxes
    table-<id>-<k>    cells of a table, the k-th window of its rows
    chunks-<k>        the k-th PART_CHUNKS chunks
    module-<id>       one RTL module with ports, parameters, instances and source

Each is a plain value for JSON. Pieces are bounded, so that a page with 100,000 elements or a sheet
with a million cells costs a browser as little as any other; what is cut says so. Boxes are in
points, origin top left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from corpus.browser.published import Published, with_places
from workspace.errors import UserError
from workspace.shards import Row

PART_ELEMENTS: Final = 300
PART_CHUNKS: Final = 50
PART_CELLS: Final = 6_000
PART_ROWS: Final = 200
MAX_COLUMNS: Final = 400
MAX_TEXT_CHARS: Final = 20_000
MAX_SOURCE_CHARS: Final = 1_000_000
MAX_LISTED: Final = 5_000

DOC_ID: Final = re.compile(r"[0-9a-f]{64}")
ROW_ID: Final = re.compile(r"[0-9a-f]{32}")
_PAGE: Final = re.compile(r"page-(\d{1,9})-(\d{1,6})")
_TABLE: Final = re.compile(r"table-([0-9a-f]{32})-(\d{1,6})")
_CHUNKS: Final = re.compile(r"chunks-(\d{1,6})")
_MODULE: Final = re.compile(r"module-([0-9a-f]{32})")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Piece = dict[str, Any]


class NotThereError(UserError):
    """No such document, page, table, chunk, module or picture in the published corpus."""


class Pieces:
    """Pieces of the documents of one published corpus; safe to call from several threads."""

    def __init__(self, corpus: Published) -> None:
        self._corpus = corpus
        self._document = lru_cache(maxsize=16)(self._make_document)

    def piece(self, doc_id: str, name: str) -> Piece:
        """The piece `name`. Raises `NotThereError` for one that the corpus does not have."""
        if not DOC_ID.fullmatch(doc_id):
            raise NotThereError(f"document {doc_id!r}: an id has 64 hex digits")
        if name == "document":
            return self._document(doc_id)
        if match := _PAGE.fullmatch(name):
            return self._page(doc_id, int(match[1]), int(match[2]))
        if match := _TABLE.fullmatch(name):
            return self._table(doc_id, match[1], int(match[2]))
        if match := _CHUNKS.fullmatch(name):
            return self._chunks(doc_id, int(match[1]))
        if match := _MODULE.fullmatch(name):
            return self._module(doc_id, match[1])
        raise NotThereError(f"piece {name!r}: document, page, table, chunks or module")

    def names(self, doc_id: str) -> Iterable[str]:
        """Every piece of a document."""
        document = self.piece(doc_id, "document")
        yield "document"
        for page in document["pages"]:
            for part in range(n_parts(page["n_elements"], PART_ELEMENTS)):
                yield f"page-{page['page']}-{part}"
        for table in document["tables"]:
            for part in range(n_parts(table["n_rows"], table["part_rows"])):
                yield f"table-{table['table_id']}-{part}"
        for part in range(n_parts(document["n_chunks"], PART_CHUNKS)):
            yield f"chunks-{part}"
        for module in document["modules"]:
            yield f"module-{module['module_id']}"

    def page_picture(self, doc_id: str, page: int) -> bytes:
        """The page's image. Raises `NotThereError` when it has none."""
        rows = self._corpus.rows("pages", doc_id, ["image"], page=page)
        return _picture(rows, f"page {page} of {doc_id[:12]}")

    def figure_picture(self, doc_id: str, image_id: str) -> bytes:
        """A figure as found in the document."""
        rows = self._corpus.rows("images", doc_id, ["image"], image_id=image_id)
        return _picture(rows, f"image {image_id[:12]}")

    def _make_document(self, doc_id: str) -> Piece:
        rows = self._corpus.rows("documents", doc_id)
        if not rows:
            raise NotThereError(f"document {doc_id[:12]} is not in the corpus")
        places = self._places(doc_id)
        chunk_ids = self._corpus.rows("chunks", doc_id, ["doc_id"])
        faults = self._corpus.rows("quarantine", doc_id)
        return {
            **{name: value for name, value in rows[0].items() if name != "metadata_json"},
            "metadata": json.loads(rows[0]["metadata_json"] or "{}"),
            "cpu_s": self._corpus.cpu_s.get(doc_id),
            "pages": self._pages(doc_id, places.on_page),
            "outline": places.outline[:MAX_LISTED],
            "tables": self._tables(doc_id, places.of),
            "figures": self._figures(doc_id, places.of),
            "modules": self._modules(doc_id, places.of),
            "summaries": self._summaries(doc_id, places.of),
            "n_chunks": len(chunk_ids),
            "part_chunks": PART_CHUNKS,
            "part_elements": PART_ELEMENTS,
            "max_listed": MAX_LISTED,
            "quarantine": [_pick(row, "page stage reason detail retry") for row in faults],
        }

    def _places(self, doc_id: str) -> _Places:
        columns = ["element_id", "doc_id", "page", "category", "level", "text"]
        return _Places(self._corpus.rows("elements", doc_id, columns))

    def _pages(self, doc_id: str, on_page: Counter[int]) -> list[Piece]:
        columns = ["page", "width_pt", "height_pt", "rotation", "text_source", "image_dpi", "flags"]
        rows = self._corpus.rows("pages", doc_id, columns)
        return [{**row, "n_elements": on_page[row["page"]]} for row in rows]

    def _tables(self, doc_id: str, of: dict[str, list[int]]) -> list[Piece]:
        columns = [
            "table_id", "element_id", "page", "pages", "caption", "n_rows", "n_cols", "bbox_pt",
            "section_path",
        ]  # fmt: skip
        rows = self._corpus.rows("tables", doc_id, columns)[:MAX_LISTED]
        parts = self._table_parts(doc_id, [row for row in rows if len(row["pages"]) > 1])
        return [
            {
                **row,
                "parts": parts.get(row["table_id"]) or [[row["page"], row["bbox_pt"]]],
                "caption": _cut(row["caption"]),
                "place": of.get(row["element_id"]),
                "part_rows": part_rows(row["n_cols"]),
                "max_columns": MAX_COLUMNS,
            }
            for row in rows
        ]

    def _table_parts(self, doc_id: str, tables: list[Row]) -> dict[str, list[list[Any]]]:
        """Table id -> [page, box of the cells there] for `tables` that go over pages."""
        if "page" not in self._corpus.cell_fields():
            return {}
        parts: dict[str, list[list[Any]]] = {}
        for first in tables:
            (row,) = self._corpus.rows("tables", doc_id, ["cells"], table_id=first["table_id"])
            boxes: dict[int, list[list[float]]] = {}
            for cell in row["cells"]:
                if cell["bbox_pt"]:
                    boxes.setdefault(cell["page"], []).append(cell["bbox_pt"])
            parts[first["table_id"]] = [
                [page, first["bbox_pt"] if page == first["page"] else _enclose(boxes[page])]
                for page in first["pages"]
                if page == first["page"] or page in boxes
            ]
        return parts

    def _figures(self, doc_id: str, of: dict[str, list[int]]) -> list[Piece]:
        columns = [
            "image_id", "element_id", "page", "caption", "bbox_pt", "width_px", "height_px",
            "sha256",
        ]  # fmt: skip
        rows = self._corpus.rows("images", doc_id, columns)[:MAX_LISTED]
        return [
            {**row, "caption": _cut(row["caption"]), "place": of.get(row["element_id"])}
            for row in rows
        ]

    def _modules(self, doc_id: str, of: dict[str, list[int]]) -> list[Piece]:
        columns = ["module_id", "element_id", "name", "language", "line_start", "line_end"]
        rows = self._corpus.rows("modules", doc_id, columns)[:MAX_LISTED]
        return [{**row, "place": of.get(row["element_id"])} for row in rows]

    def _summaries(self, doc_id: str, of: dict[str, list[int]]) -> list[Piece]:
        rows = self._corpus.rows("summaries", doc_id)[:MAX_LISTED]
        return [
            {
                **_pick(row, "level target_id title text method"),
                "sources": [
                    [of[element], element] for element in row["source_element_ids"] if element in of
                ][:20],
            }
            for row in rows
        ]

    def _page(self, doc_id: str, page: int, part: int) -> Piece:
        rows = self._corpus.rows("elements", doc_id, page=page)
        first = part * PART_ELEMENTS
        shown = rows[first : first + PART_ELEMENTS]
        if not shown:
            raise NotThereError(f"page {page} of {doc_id[:12]} has no elements from {first} on")
        ids = {
            **self._ids("tables", "table_id", doc_id, page),
            **self._ids("images", "image_id", doc_id, page),
            **self._ids("modules", "module_id", doc_id),
        }
        return {
            "total": len(rows),
            "first": first,
            "elements": [
                {
                    **_pick(row, "element_id category bbox_pt level section_path"),
                    "text": _cut(row["text"]),
                    "n_chars": len(row["text"]),
                    "metadata": json.loads(row["metadata_json"] or "{}"),
                    "is": ids.get(row["element_id"], ""),
                }
                for row in shown
            ],
        }

    def _ids(self, table: str, column: str, doc_id: str, page: int = 0) -> dict[str, str]:
        equal: dict[str, object] = {"page": page} if page else {}
        rows = self._corpus.rows(table, doc_id, ["element_id", column], **equal)
        return {row["element_id"]: row[column] for row in rows}

    def _table(self, doc_id: str, table_id: str, part: int) -> Piece:
        columns = ["cells", "n_rows", "n_cols", "columns_json"]
        rows = self._corpus.rows("tables", doc_id, columns, table_id=table_id)
        if not rows:
            raise NotThereError(f"table {table_id[:12]} is not in document {doc_id[:12]}")
        height = part_rows(rows[0]["n_cols"])
        first = part * height
        cells = [
            {**cell, "text": _cut(cell["text"], 2_000)}
            for cell in rows[0]["cells"]
            if first <= cell["row"] < first + height and cell["col"] < MAX_COLUMNS
        ]
        columns_read = json.loads(rows[0]["columns_json"] or "[]")[:MAX_COLUMNS]
        kinds = [[column["kind"], column["unit"]] for column in columns_read]
        return {"first": first, "cells": cells, "kinds": kinds}

    def _chunks(self, doc_id: str, part: int) -> Piece:
        rows = self._corpus.rows("chunks", doc_id)[part * PART_CHUNKS : (part + 1) * PART_CHUNKS]
        if not rows:
            raise NotThereError(f"document {doc_id[:12]} has no chunks in part {part}")
        names = "chunk_id order kind tokens pages section_path element_ids"
        return {"chunks": [{**_pick(row, names), "text": _cut(row["text"])} for row in rows]}

    def _module(self, doc_id: str, module_id: str) -> Piece:
        rows = self._corpus.rows("modules", doc_id, module_id=module_id)
        if not rows:
            raise NotThereError(f"module {module_id[:12]} is not in document {doc_id[:12]}")
        names = "name language comment ports parameters instances line_start line_end"
        return {**_pick(rows[0], names), "source": _cut(rows[0]["source"], MAX_SOURCE_CHARS)}


class _Places:
    """Where each element stands: [page, place on the page]; and the document's titles."""

    def __init__(self, elements: Iterable[Row]) -> None:
        self.on_page: Counter[int] = Counter()
        self.of: dict[str, list[int]] = {}
        self.outline: list[Piece] = []
        for row, number in with_places(elements):
            place = [row["page"], number]
            self.on_page[row["page"]] += 1
            self.of[row["element_id"]] = place
            if row["category"] == "Title":
                title = {**_pick(row, "element_id level"), "text": _cut(row["text"], 300)}
                self.outline.append({**title, "place": place})


def _enclose(boxes: list[list[float]]) -> list[float]:
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return [min(x0), min(y0), max(x1), max(y1)]


def part_rows(n_cols: int) -> int:
    """Rows of a table in one piece."""
    return max(1, min(PART_ROWS, PART_CELLS // max(1, min(n_cols, MAX_COLUMNS))))


def n_parts(count: int, size: int) -> int:
    return -(-count // size)


def to_json(value: Any) -> str:
    """JSON in ASCII that is safe inside HTML and scripts as well."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _picture(rows: list[Row], what: str) -> bytes:
    data = rows[0]["image"]["bytes"] if rows and rows[0]["image"] else None
    if not data:
        raise NotThereError(f"{what} has no picture")
    return bytes(data)


def _pick(row: Row, names: str) -> Piece:
    return {name: row[name] for name in names.split()}


def _cut(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
