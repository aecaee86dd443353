"""The browser's index: every file, every quarantine record and every element's text in SQLite.

In: a `Published` corpus. Out: `WORKSPACE/.cache/corpus-browser-<version>-<stamp>.sqlite`, built
once per manifest under a temporary name and renamed, so that it is there whole or not at all. It
can be deleted at any time. SQLite's own FTS5 does the full text: it needs no download.

    documents   one row per file kept or given up, sortable by each shown column through an index
    quarantine  one row per record
    duplicates  members of `duplicate_groups`, where the corpus has that table
    elements    full text of all elements, with document, page, place on the page and box

Limits: of an element the first MAX_INDEXED_CHARS are searched. Words are split as Unicode says;
Chinese, Japanese and Korean are indexed by character and found as phrases.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from corpus.browser.published import Published, text_digest, with_places
from workspace import publish
from workspace.errors import UserError
from workspace.locking import file_lock
from workspace.shards import Row

VERSION: Final = 2
MAX_INDEXED_CHARS: Final = 50_000
BUILD_PATIENCE_S: Final = 3_600.0
SORTABLE: Final = (
    "name", "format", "status", "n_pages", "n_tables", "n_images", "n_modules", "language",
    "licence", "bytes", "cpu_s",
)  # fmt: skip
_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_SPACED: Final = re.compile(f"([{_CJK}])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

_SCHEMA: Final = """
CREATE TABLE documents (
  doc_id TEXT PRIMARY KEY, kept INTEGER NOT NULL, uri TEXT NOT NULL,
  name TEXT NOT NULL COLLATE NOCASE, title TEXT NOT NULL, format TEXT NOT NULL,
  status TEXT NOT NULL, n_pages INTEGER NOT NULL, n_tables INTEGER NOT NULL,
  n_images INTEGER NOT NULL, n_modules INTEGER NOT NULL, language TEXT NOT NULL,
  licence TEXT NOT NULL, bytes INTEGER NOT NULL, cpu_s REAL, n_faults INTEGER NOT NULL,
  sought TEXT NOT NULL -- name, title and path in small letters
);
CREATE TABLE quarantine (
  doc_id TEXT NOT NULL, kept INTEGER NOT NULL, uri TEXT NOT NULL, page INTEGER NOT NULL,
  stage TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, bytes INTEGER NOT NULL,
  retry INTEGER NOT NULL
);
CREATE TABLE duplicate_groups (
  number INTEGER PRIMARY KEY, group_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
  n_members INTEGER NOT NULL
);
CREATE TABLE duplicates (
  number INTEGER NOT NULL, doc_id TEXT NOT NULL, uri TEXT NOT NULL, page INTEGER NOT NULL,
  image_id TEXT NOT NULL, similarity REAL, number_agreement REAL, is_representative INTEGER NOT NULL
);
CREATE VIRTUAL TABLE elements USING fts5(
  text, document UNINDEXED, page UNINDEXED, place UNINDEXED, category UNINDEXED,
  element_id UNINDEXED, tokenize = 'unicode61 remove_diacritics 2'
);
"""


def open_index(corpus: Published, cache: Path) -> Path:
    """The index of `corpus` in the folder `cache`, built when it is not there."""
    target = cache / f"corpus-browser-{VERSION}-{corpus.stamp}.sqlite"
    if target.exists():
        return target
    try:
        what = f"{cache}: the browser's index"
        with file_lock(cache / "corpus-browser.lock", what, wait_s=BUILD_PATIENCE_S):
            _sweep(cache, target)
            if not target.exists():  # another browser may have built it while we waited
                with publish.atomic_path(target) as path:
                    _build(corpus, path)
    except OSError as error:
        raise UserError(
            f"the index cannot be written to {cache}: {error.strerror}; name a folder with --cache"
        ) from error
    return target


def _sweep(cache: Path, keep: Path) -> None:
    """Remove indexes of earlier corpora and what a killed browser left. Call with the lock held."""
    left = cache.glob(f"{publish.TEMPORARY_PREFIX}*-corpus-browser-*")
    for old in (*cache.glob("corpus-browser-*.sqlite"), *left):
        if old != keep:
            old.unlink(missing_ok=True)


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection whose rows know their columns."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


def _build(corpus: Published, path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        # The file is renamed only when whole, so a crash while it is written costs nothing.
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        numbers = _insert_documents(connection, corpus)
        _insert_duplicates(connection, corpus)
        connection.executemany(
            "INSERT INTO elements VALUES (?, ?, ?, ?, ?, ?)", _element_values(corpus, numbers)
        )
        for column in SORTABLE:
            connection.execute(f"CREATE INDEX documents_by_{column} ON documents ({column})")
        connection.execute("CREATE INDEX quarantine_by_uri ON quarantine (uri, page)")
        connection.execute("CREATE INDEX duplicates_by_group ON duplicates (number)")
        connection.execute("CREATE INDEX groups_by_kind ON duplicate_groups (kind)")
        connection.execute("ANALYZE")
        connection.commit()
    finally:
        connection.close()


def _insert_documents(connection: sqlite3.Connection, corpus: Published) -> dict[str, int]:
    """Fill documents and quarantine; returns the rowid of each document that has elements."""
    records = list(corpus.all_rows("quarantine"))
    faults = Counter(row["doc_id"] for row in records)
    kept: dict[str, int] = {}
    for row in corpus.all_rows("documents"):
        kept[row["doc_id"]] = len(kept) + 1
        _insert(connection, "documents", _document_values(row, corpus, faults[row["doc_id"]]))
    lost: set[str] = set()
    for row in records:
        doc_id = row["doc_id"] or text_digest(row["uri"])
        is_kept = row["doc_id"] in kept
        if not is_kept and doc_id not in lost:
            lost.add(doc_id)
            _insert(connection, "documents", _lost_values(row, doc_id, corpus))
        values = {**row, "doc_id": doc_id, "kept": is_kept}
        _insert(connection, "quarantine", values)
    return kept


def _insert_duplicates(connection: sqlite3.Connection, corpus: Published) -> None:
    numbers: dict[str, int] = {}
    names = ("doc_id", "uri", "page", "image_id", "similarity", "number_agreement",
             "is_representative")  # fmt: skip
    for row in corpus.all_rows("duplicates"):
        if row["group_id"] not in numbers:
            numbers[row["group_id"]] = len(numbers) + 1
            group = {name: row[name] for name in ("group_id", "kind", "n_members")}
            _insert(connection, "duplicate_groups", {"number": len(numbers), **group})
        member = {name: row[name] for name in names}
        _insert(connection, "duplicates", {"number": numbers[row["group_id"]], **member})


def _document_values(row: Row, corpus: Published, n_faults: int) -> dict[str, Any]:
    names = (
        "doc_id", "uri", "name", "title", "format", "status", "n_pages", "n_tables", "n_images",
        "n_modules", "language", "licence", "bytes",
    )  # fmt: skip
    seconds = corpus.cpu_s.get(row["doc_id"], {}).get("total")
    values = {name: row[name] for name in names}
    return {**values, "kept": 1, "cpu_s": seconds, "n_faults": n_faults, "sought": _sought(values)}


def _lost_values(record: Row, doc_id: str, corpus: Published) -> dict[str, Any]:
    """A file of which nothing was kept, as a line of the list of documents."""
    path = Path(record["uri"])
    counts = dict.fromkeys(("n_pages", "n_tables", "n_images", "n_modules"), 0)
    texts = {"title": record["reason"], "language": "", "licence": ""}
    return {
        "sought": _sought({"name": path.name, "uri": record["uri"], **texts}),
        "doc_id": doc_id,
        "kept": 0,
        "uri": record["uri"],
        "name": path.name,
        "format": path.suffix.lower().lstrip("."),
        "status": "quarantined",
        "bytes": record["bytes"],
        "cpu_s": corpus.cpu_s.get(doc_id, {}).get("total"),
        "n_faults": 1,
        **counts,
        **texts,
    }


def _sought(values: dict[str, Any]) -> str:
    # Here and not in SQL, whose lower() knows ASCII alone.
    return "\n".join(values[name] for name in ("name", "title", "uri")).lower()


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({marks})",  # noqa: S608  names from this file
        [_clean(value) if isinstance(value, str) else value for value in values.values()],
    )


def _element_values(corpus: Published, numbers: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    columns = ["element_id", "doc_id", "page", "category", "text"]
    for row, place in with_places(corpus.all_rows("elements", columns)):
        text = spaced(_clean(row["text"][:MAX_INDEXED_CHARS]))
        if text.strip():
            document = numbers[row["doc_id"]]
            yield (text, document, row["page"], place, row["category"], row["element_id"])


def spaced(text: str) -> str:
    """Each character of a script without spaces becomes a word of its own."""
    return _SPACED.sub(r" \1 ", text)


def unspaced(text: str) -> str:
    """`spaced` undone, around marks in the text as well."""
    return re.sub(f"(?<=[{_CJK}])([\x02\x03]*)  ?([\x02\x03]*)(?=[{_CJK}])", r"\1\2", text)


def _clean(text: str) -> str:
    """Without characters that no text has: they would break SQLite, JSON or the marks of hits."""
    return _CONTROL.sub(" ", text)
