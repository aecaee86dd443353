"""The lists of the browser from its index: documents, quarantine, duplicates, full-text hits.

Each answer is a plain value for JSON, at most PAGE_ROWS rows, whatever the size of the corpus.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from corpus.browser.index import SORTABLE, spaced, unspaced
from workspace.errors import UserError

PAGE_ROWS: Final = 50
MAX_COUNTED: Final = 10_000  # hits are counted exactly up to here
MAX_QUERY_CHARS: Final = 400
MAX_MEMBERS: Final = 20
FACETS: Final = ("format", "status", "language", "licence")
_SNIPPET_WORDS: Final = 24
_OPEN, _CLOSE = "\x02", "\x03"


@dataclass(frozen=True)
class DocumentQuery:
    """What the list of documents shows: `None` filters nothing."""

    sort: str = "name"
    descending: bool = False
    format: str | None = None
    status: str | None = None
    language: str | None = None
    licence: str | None = None
    text: str = ""  # part of a name, title or path
    page: int = 1

    def __post_init__(self) -> None:
        if self.sort not in SORTABLE:
            raise UserError(f"sort: {self.sort!r} is none of {', '.join(SORTABLE)}")
        if self.page < 1:
            raise UserError("page: pages count from 1")


def list_documents(index: sqlite3.Connection, query: DocumentQuery) -> dict[str, Any]:
    """One page of documents, the total, and how many there are by each facet."""
    where, values = _conditions(query)
    (total,) = index.execute(f"SELECT count(*) FROM documents{where}", values).fetchone()  # noqa: S608
    sql, more = documents_sql(query)
    return {
        "total": total,
        "page": query.page,
        "page_rows": PAGE_ROWS,
        "rows": [_shown(row) for row in index.execute(sql, more)],
    }


def documents_sql(query: DocumentQuery) -> tuple[str, list[Any]]:
    """The statement for a page of documents; ordered through the index of the sorted column."""
    where, values = _conditions(query)
    direction = "DESC" if query.descending else "ASC"
    # rowid last: a total order, and the order that the index has anyway.
    sql = (
        f"SELECT * FROM documents{where} ORDER BY {query.sort} {direction}, rowid {direction} "  # noqa: S608
        "LIMIT ? OFFSET ?"
    )
    return sql, [*values, PAGE_ROWS, (query.page - 1) * PAGE_ROWS]


def count_facets(index: sqlite3.Connection) -> dict[str, list[list[Any]]]:
    """Per facet its values with their numbers of documents, the most frequent first."""
    return {
        facet: [
            list(row)
            for row in index.execute(
                f"SELECT {facet}, count(*) FROM documents GROUP BY {facet} "  # noqa: S608
                f"ORDER BY count(*) DESC, {facet} LIMIT 100"
            )
        ]
        for facet in FACETS
    }


def list_quarantine(index: sqlite3.Connection, page: int) -> dict[str, Any]:
    """One page of quarantine records in order of path and page."""
    if page < 1:
        raise UserError("page: pages count from 1")
    (total,) = index.execute("SELECT count(*) FROM quarantine").fetchone()
    rows = index.execute(
        "SELECT * FROM quarantine ORDER BY uri, page LIMIT ? OFFSET ?",
        (PAGE_ROWS, (page - 1) * PAGE_ROWS),
    )
    return {
        "total": total,
        "page": page,
        "page_rows": PAGE_ROWS,
        "rows": [dict(row) for row in rows],
    }


def list_duplicates(
    index: sqlite3.Connection, kind: str, page: int, page_rows: int = PAGE_ROWS
) -> dict[str, Any]:
    """One page of groups of `kind` ("" is all), each with its first MAX_MEMBERS members."""
    if page < 1:
        raise UserError("page: pages count from 1")
    counts = dict(
        list(row) for row in index.execute("SELECT kind, count(*) FROM duplicate_groups GROUP BY 1")
    )
    where, values = (" WHERE kind = ?", [kind]) if kind else ("", [])
    groups = index.execute(
        f"SELECT * FROM duplicate_groups{where} ORDER BY number LIMIT ? OFFSET ?",  # noqa: S608
        [*values, page_rows, (page - 1) * page_rows],
    ).fetchall()
    members = (
        "SELECT m.*, d.name FROM duplicates AS m LEFT JOIN documents AS d USING (doc_id) "
        "WHERE m.number = ? ORDER BY m.is_representative DESC, m.rowid LIMIT ?"
    )
    return {
        "total": counts.get(kind, 0) if kind else sum(counts.values()),
        "page": page,
        "page_rows": page_rows,
        "kinds": counts,
        "rows": [
            {
                **dict(group),
                "members": [
                    dict(row) for row in index.execute(members, (group["number"], MAX_MEMBERS))
                ],
            }
            for group in groups
        ],
    }


def search(index: sqlite3.Connection, text: str, page: int, doc_id: str = "") -> dict[str, Any]:
    """Elements that hold all words of `text` (the last one as a beginning).

    The best come first; of more than MAX_COUNTED hits, those of the first documents. A snippet is a
    list of [text, is_hit]. `doc_id` narrows to one document.
    """
    if page < 1:
        raise UserError("page: pages count from 1")
    match = match_expression(text)
    empty = {"query": text, "total": 0, "is_more": False, "page": page, "page_rows": PAGE_ROWS}
    if not match:
        return {**empty, "rows": []}
    condition = "elements MATCH ?"
    values: list[Any] = [match]
    if doc_id:
        condition += " AND document = (SELECT rowid FROM documents WHERE doc_id = ?)"
        values.append(doc_id)
    (total,) = index.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM elements WHERE {condition} LIMIT ?)",  # noqa: S608
        [*values, MAX_COUNTED + 1],
    ).fetchone()
    # Ranking reads every hit: seconds for a word that stands in a million elements.
    order = "rowid" if total > MAX_COUNTED else "rank, rowid"
    best = f"""SELECT rowid AS number, document, page, place, category, element_id,
        snippet(elements, 0, ?, ?, '…', {_SNIPPET_WORDS}) AS snippet
        FROM elements WHERE {condition} ORDER BY {order} LIMIT ? OFFSET ?"""  # noqa: S608
    values += [PAGE_ROWS, (page - 1) * PAGE_ROWS]
    rows = index.execute(best, [_OPEN, _CLOSE, *values]).fetchall()
    names = _document_names(index, {row["document"] for row in rows})
    hits = [
        {**dict(row), **names[row["document"]], "snippet": split_snippet(row["snippet"])}
        for row in rows
    ]
    return {
        **empty, "total": min(total, MAX_COUNTED), "is_more": total > MAX_COUNTED, "rows": hits,
    }  # fmt: skip


def _document_names(index: sqlite3.Connection, numbers: set[int]) -> dict[int, dict[str, str]]:
    """doc_id and name of the documents with these row numbers."""
    found = (
        (number, index.execute("SELECT doc_id, name FROM documents WHERE rowid = ?", (number,)))
        for number in sorted(numbers)
    )
    return {number: dict(rows.fetchone()) for number, rows in found}


def match_expression(text: str) -> str:
    """FTS5's expression for what a person typed: its words as phrases, never its operators."""
    words = [
        f'"{phrase}"'
        for word in text[:MAX_QUERY_CHARS].replace('"', " ").replace("\x00", " ").split()
        if any(char.isalnum() for char in word) and (phrase := " ".join(spaced(word).split()))
    ]
    return " ".join(words) + "*" if words else ""


def split_snippet(snippet: str) -> list[list[Any]]:
    """Pieces of a snippet: [text, whether it is a hit]."""
    pieces: list[list[Any]] = []
    for part in unspaced(snippet).split(_OPEN):
        hit, mark, rest = part.partition(_CLOSE)
        pieces += [[hit, True], [rest, False]] if mark else [[part, False]]
    return [piece for piece in pieces if piece[0]]


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in row.keys() if name != "sought"}  # noqa: SIM118


def _conditions(query: DocumentQuery) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for facet in FACETS:
        value = getattr(query, facet)
        if value is not None:
            terms.append(f"{facet} = ?")
            values.append(value)
    for word in query.text[:MAX_QUERY_CHARS].split():
        terms.append("instr(sought, ?) > 0")
        values.append(word.lower())
    return (" WHERE " + " AND ".join(terms) if terms else ""), values
