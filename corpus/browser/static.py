"""The browser as a folder: opens from index.html without a server or a network, for an auditor.

In: a published corpus. Out: `FOLDER/index.html`, `app/` and `data/`, written under a temporary name
and renamed. Data come as small scripts, because a page that is a file may not read other files:

    data/corpus.js  documents-<k>.js  quarantine.js  duplicates.js  search-<k>.js
    data/<doc_id>/<piece>.js  page-<p>.png  figure-<id>

The search reads its files one after the other, so they are limited: the first MAX_SEARCH_CHARS of
each element, and MAX_SEARCH_TOTAL of all; what is left out is said on the page. Names of files are
made from checked ids alone. The page images take the space: about 50 kB a page.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from corpus.browser import listing, page
from corpus.browser.library import Shown
from corpus.browser.pieces import DOC_ID, ROW_ID, to_json
from corpus.browser.published import Published, with_places
from workspace import publish
from workspace.errors import CorruptWorkspaceError, UserError
from workspace.shards import Row

MARKER: Final = "corpus-browser.json"
MAX_DUPLICATES: Final = 5_000
DOCUMENTS_PER_FILE: Final = 2_000
MAX_SEARCH_CHARS: Final = 600
MAX_SEARCH_TOTAL: Final = 60_000_000
SEARCH_FILE_CHARS: Final = 1_000_000


class Written(NamedTuple):
    """What an export holds."""

    n_documents: int
    bytes: int


def export(corpus: Path, cache: Path, target: Path, include: Sequence[str] = ()) -> Written:
    """Write the folder `target`; `include` are patterns for names or paths (empty: all).

    Raises `UserError` when `target` holds something else, or when no document fits.
    """
    _refuse_foreign(target)
    shown = Shown(Published(corpus), cache)
    rows = _chosen(shown, include)
    with publish.atomic_directory(target) as folder:
        _Export(shown, folder, rows).write()
        (folder / MARKER).write_text(to_json({"key": shown.corpus.manifest.key}))
    files = (path.stat().st_size for path in target.rglob("*") if path.is_file())
    return Written(len(rows), sum(files))


def _refuse_foreign(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()) and not (target / MARKER).exists():
        raise UserError(f"--static: {target} holds other files; name an empty or a new folder")
    if target.exists() and not target.is_dir():
        raise UserError(f"--static: {target} is a file; name a folder")


def _chosen(shown: Shown, include: Sequence[str]) -> list[Row]:
    with shown.index() as index:
        found = [dict(row) for row in index.execute("SELECT * FROM documents ORDER BY name, uri")]
    rows = [
        {name: value for name, value in row.items() if name != "sought"}
        for row in found
        if not include
        or any(fnmatch.fnmatch(row[key], glob) for glob in include for key in ("name", "uri"))
    ]
    if include and not rows:
        raise UserError(f"--include: no document's name or path fits {', '.join(include)}")
    return rows


class _Export:
    """Writes one folder."""

    def __init__(self, shown: Shown, folder: Path, rows: list[Row]) -> None:
        self._shown = shown
        self._corpus = shown.corpus
        self._data = folder / "data"
        self._app = folder / "app"
        self._index = folder / "index.html"
        self._rows = rows
        self._ids = {row["doc_id"] for row in rows}

    def write(self) -> None:
        self._app.mkdir()
        self._data.mkdir()
        overview = self._shown.overview
        self._index.write_text(page.for_files(overview["name"]), encoding="utf-8")
        for name in page.ASSETS:
            (self._app / name).write_text(page.asset(name), encoding="utf-8")
        for row in self._rows:
            if row["kept"]:
                self._write_document(row["doc_id"])
        n_files = self._write_batches("documents", _batches(self._rows, DOCUMENTS_PER_FILE))
        with self._shown.index() as index:
            lost = [
                dict(row) for row in index.execute("SELECT * FROM quarantine ORDER BY uri, page")
            ]
        self._put("quarantine", [row for row in lost if row["doc_id"] in self._ids])
        self._put("duplicates", self._duplicates())
        search = _SearchText(self._corpus, self._ids)
        n_search = self._write_batches("search", search.batches())
        self._put(
            "corpus",
            {
                **overview,
                "facets": self._facets(),
                "n_documents": len(self._rows),
                "n_document_files": n_files,
                "n_search_files": n_search,
                "search_note": search.note,
            },
        )

    def _duplicates(self) -> list[dict[str, Any]]:
        """Groups among the documents of this folder."""
        with self._shown.index() as index:
            found = listing.list_duplicates(index, "", 1, MAX_DUPLICATES)
        return [
            group
            for group in found["rows"]
            if self._ids.issuperset(member["doc_id"] for member in group["members"])
        ]

    def _facets(self) -> dict[str, list[list[Any]]]:
        """As in the overview, of the documents in this folder."""
        facets = {}
        for name in self._shown.overview["facets"]:
            counts = Counter(row[name] for row in self._rows)
            facets[name] = [list(item) for item in counts.most_common(100)]
        return facets

    def _write_document(self, doc_id: str) -> None:
        if not DOC_ID.fullmatch(doc_id):
            raise CorruptWorkspaceError(f"document {doc_id!r} has no proper id")
        folder = self._data / doc_id
        folder.mkdir()
        pieces = self._shown.pieces
        for name in pieces.names(doc_id):
            self._put(f"{doc_id}/{name}", pieces.piece(doc_id, name))
        for row in self._corpus.rows("pages", doc_id, ["page", "image"]):
            if row["image"] and row["image"]["bytes"]:
                (folder / f"page-{row['page']}.png").write_bytes(row["image"]["bytes"])
        for row in self._corpus.rows("images", doc_id, ["image_id", "image"]):
            if not ROW_ID.fullmatch(row["image_id"]):
                raise CorruptWorkspaceError(f"image {row['image_id']!r} has no proper id")
            if row["image"] and row["image"]["bytes"]:
                (folder / f"figure-{row['image_id']}").write_bytes(row["image"]["bytes"])

    def _write_batches(self, name: str, batches: Iterable[list[Any]]) -> int:
        number = 0
        for number, batch in enumerate(batches, 1):
            self._put(f"{name}-{number - 1}", batch)
        return number

    def _put(self, path: str, value: Any) -> None:
        text = f"corpusPiece({to_json(path)}, {to_json(value)});\n"
        (self._data / f"{path}.js").write_text(text, encoding="ascii")


class _SearchText:
    """Texts of elements for the search in files, up to the limits; `note` says what is left out."""

    def __init__(self, corpus: Published, wanted: set[str]) -> None:
        self._corpus = corpus
        self._wanted = wanted
        self.note = ""

    def batches(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        size = total = n_cut = n_left_out = 0
        for line in self._lines():
            text = line[-1]
            if total + len(text) > MAX_SEARCH_TOTAL:
                n_left_out += 1
                continue
            n_cut += len(text) > MAX_SEARCH_CHARS
            line[-1] = text[:MAX_SEARCH_CHARS]
            batch.append(line)
            size += len(line[-1])
            total += len(line[-1])
            if size >= SEARCH_FILE_CHARS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch
        self.note = _search_note(n_cut, n_left_out)

    def _lines(self) -> Iterator[list[Any]]:
        """[doc_id, page, place on the page, category, text] of each element."""
        columns = ["doc_id", "page", "category", "text"]
        for row, place in with_places(self._corpus.all_rows("elements", columns)):
            if row["doc_id"] in self._wanted and row["text"].strip():
                yield [row["doc_id"], row["page"], place, row["category"], row["text"]]


def _search_note(n_cut: int, n_left_out: int) -> str:
    notes = []
    if n_cut:
        notes.append(f"of {n_cut:,} long elements the first {MAX_SEARCH_CHARS} characters")
    if n_left_out:
        notes.append(f"not {n_left_out:,} elements, which did not fit")
    return f"Searched in this folder: all text; {'; '.join(notes)}." if notes else ""


def _batches(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
