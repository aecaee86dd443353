"""What the browser shows at this moment: the newest published corpus, its index and its pieces.

A run of ingest may publish anew while the browser is open. Each request asks `Library.current`,
which looks at the manifest and opens the new corpus when it has changed.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from corpus.browser import listing
from corpus.browser.index import connect, open_index
from corpus.browser.pieces import Pieces
from corpus.browser.published import Published
from workspace.errors import MissingInputError
from workspace.manifest import MANIFEST_NAME


class Shown:
    """One published corpus with its index."""

    def __init__(self, corpus: Published, cache: Path) -> None:
        self.corpus = corpus
        self.pieces = Pieces(corpus)
        self.index_path = open_index(corpus, cache)

    def index(self) -> closing[sqlite3.Connection]:
        """A connection for one request (they must not cross threads)."""
        return closing(connect(self.index_path))

    @cached_property
    def overview(self) -> dict[str, Any]:
        """What the first page needs to know."""
        manifest = self.corpus.manifest
        with self.index() as index:
            facets = listing.count_facets(index)
            (n_documents,) = index.execute("SELECT count(*) FROM documents").fetchone()
        return {
            "name": self.corpus.folder.resolve().parent.name,
            "created": manifest.created,
            "key": manifest.key,
            "code_version": manifest.code_version,
            "counts": manifest.counts_out,
            "cpu_s": manifest.notes.get("cpu_s", {}),
            "facets": facets,
            "n_documents": n_documents,
            "has_duplicates": self.corpus.has("duplicates"),
        }


class Library:
    """The newest corpus of a workspace. Raises `MissingInputError` when there is none."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self._folder = folder
        self._cache = cache
        self._lock = threading.Lock()
        self._state = self._manifest_state()
        self._shown = Shown(Published(folder), cache)

    def current(self) -> Shown:
        """The published corpus; opened anew when its manifest has changed."""
        with self._lock:
            state = self._manifest_state()
            if state != self._state:
                self._shown = Shown(Published(self._folder), self._cache)
                self._state = state
            return self._shown

    def _manifest_state(self) -> tuple[int, int, int]:
        try:
            found = (self._folder / MANIFEST_NAME).stat()
        except FileNotFoundError as error:
            raise MissingInputError(
                f"{self._folder} is not published yet: run `python -m flows.ingest`"
            ) from error
        return found.st_ino, found.st_mtime_ns, found.st_size
