"""The corpus browser with 50,000 documents, large tables and long pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser_client import one_document
from browser_corpora import doc_id_of, publish_rows

from corpus.browser.index import SORTABLE, connect, open_index
from corpus.browser.listing import DocumentQuery, documents_sql, list_documents
from corpus.browser.pieces import PART_CELLS
from corpus.browser.published import Published

MANY = 50_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a corpus with 50,000 documents."""
    workspace = tmp_path_factory.mktemp("many")
    formats = ("pdf", "docx", "html")
    documents = [
        {
            "doc_id": doc_id_of(n),
            "uri": f"/data/{n % 100}/Manual {n}.pdf",
            "name": f"Manual {n}.pdf",
            "title": f"The manual of part {n}",
            "format": formats[n % 3],
            "status": "partial" if n % 10 == 0 else "ok",
            "language": "en" if n % 2 else "de",
            "bytes": (n * 7919) % MANY,
            "n_pages": n % 97,
            "metadata_json": "{}",
        }
        for n in range(MANY)
    ]
    documents.sort(key=lambda row: str(row["doc_id"]))
    publish_rows(workspace, {"documents": documents})
    return open_index(Published(workspace / "corpus"), workspace / ".cache")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTABLE)
def test_a_page_of_a_long_list_is_read_through_an_index(
    many: Path, sort: str, descending: bool
) -> None:
    connection = connect(many)
    sql, values = documents_sql(DocumentQuery(sort=sort, descending=descending, page=500))
    plan = " ".join(
        row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    )
    assert f"USING INDEX documents_by_{sort}" in plan
    assert "TEMP B-TREE" not in plan
    connection.close()


def test_pages_of_a_long_list_follow_each_other(many: Path) -> None:
    connection = connect(many)
    seen = []
    for page in (1, 2, 1000):
        found = list_documents(connection, DocumentQuery(sort="bytes", page=page))
        assert found["total"] == MANY and len(found["rows"]) == found["page_rows"] == 50
        seen += [row["bytes"] for row in found["rows"]]
    assert seen[:100] == list(range(100)) and seen[-1] == MANY - 1
    assert not list_documents(connection, DocumentQuery(page=1001))["rows"]
    connection.close()


def test_filters_narrow_a_long_list(many: Path) -> None:
    connection = connect(many)
    query = DocumentQuery(format="pdf", status="partial", text="manual 4999")
    found = list_documents(connection, query)
    expected = {
        f"Manual {n}.pdf"
        for n in range(MANY)
        if n % 3 == 0 and n % 10 == 0 and f"manual {n}.pdf".startswith("manual 4999")
    }
    assert {row["name"] for row in found["rows"]} == expected and found["total"] == len(expected)
    connection.close()


def cell(row: int, col: int, **more: Any) -> dict[str, Any]:
    return {"row": row, "col": col, "row_span": 1, "col_span": 1, "is_header": False,
            "text": f"{row}/{col}", "bbox_pt": None, **more}  # fmt: skip


def test_a_large_table_comes_in_windows_that_hold_each_cell_once(tmp_path: Path) -> None:
    cells = [cell(row, col) for row in range(3_000) for col in range(7)]
    table = {"doc_id": doc_id_of(1), "table_id": "a" * 32, "element_id": "e" * 32, "page": 1,
             "pages": [1], "n_rows": 3_000, "n_cols": 7, "cells": cells,
             "columns_json": "[]"}  # fmt: skip
    pieces = one_document(tmp_path, {"tables": [table]})
    names = [name for name in pieces.names(doc_id_of(1)) if name.startswith("table-")]
    windows = [pieces.piece(doc_id_of(1), name)["cells"] for name in names]
    assert all(0 < len(window) <= PART_CELLS for window in windows)
    assert [found["text"] for window in windows for found in window] == [c["text"] for c in cells]


def test_a_page_with_many_elements_comes_in_parts(tmp_path: Path) -> None:
    elements = [
        {"doc_id": doc_id_of(1), "element_id": f"{n:032x}", "page": 1, "order": n,
         "category": "ListItem", "text": f"item {n}", "metadata_json": "{}"}
        for n in range(1_000)
    ]  # fmt: skip
    pieces = one_document(tmp_path, {"elements": elements})
    names = [name for name in pieces.names(doc_id_of(1)) if name.startswith("page-")]
    parts = [pieces.piece(doc_id_of(1), name)["elements"] for name in names]
    assert max(map(len, parts)) <= 300
    assert [row["text"] for part in parts for row in part] == [row["text"] for row in elements]


def test_a_table_over_two_pages_says_where_it_is_on_each(tmp_path: Path) -> None:
    cells = [
        cell(0, 0, page=1, bbox_pt=[10, 700, 50, 720]),
        cell(1, 0, page=2, bbox_pt=[10, 30, 50, 50]),
        cell(2, 0, page=2, bbox_pt=[12, 50, 60, 70]),
    ]
    table = {"doc_id": doc_id_of(1), "table_id": "a" * 32, "element_id": "e" * 32, "page": 1,
             "pages": [1, 2], "n_rows": 3, "n_cols": 1, "cells": cells, "columns_json": "[]",
             "bbox_pt": [10, 700, 50, 720]}  # fmt: skip
    pieces = one_document(tmp_path, {"tables": [table]})
    (shown,) = pieces.piece(doc_id_of(1), "document")["tables"]
    assert shown["parts"] == [[1, [10, 700, 50, 720]], [2, [10, 30, 60, 70]]]
