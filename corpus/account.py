"""Documents and pages in = out + quarantined: counted and checked while the corpus is merged.

Every document ends in `documents` or in `quarantine` as a whole; every page of a document stands in
`pages`, read or marked as lost with its own quarantine row. A page of a document that is in
quarantine as a whole is not counted: nobody knows how many there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from corpus.changes import Listed
from corpus.sources import SourceList
from workspace.config import hash_json
from workspace.errors import CorruptWorkspaceError
from workspace.shards import Row

LOST: Final = "lost"  # flag of a page that could not be read


class Account:
    """Watches rows go by, in any order of tables; `check` says whether they add up."""

    def __init__(self) -> None:
        self._stated: dict[str, int] = {}  # pages of a document by its own row
        self._read: Counter[str] = Counter()
        self._lost: defaultdict[str, set[int]] = defaultdict(set)
        self._quarantined: defaultdict[str, set[int]] = defaultdict(set)
        self._seen: set[str] = set()
        self._uris: defaultdict[str, set[str]] = defaultdict(set)
        self._made_from: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, table: str, row: Row) -> Row:
        """Count a row, and hand it on."""
        doc_id = row["doc_id"] if table in ("documents", "pages", "quarantine") else ""
        if table == "documents":
            self._stated[doc_id] = row["n_pages"]
            self._uris[doc_id].update(row["uris"])
            self._made_from[doc_id].append(hash_json(row))
        elif table == "pages" and LOST in row["flags"]:
            self._lost[doc_id].add(row["page"])
        elif table == "pages":
            self._read[doc_id] += 1
        elif table == "quarantine":
            self._seen.add(row["uri"])
            if doc_id:
                self._quarantined[doc_id].add(row["page"])
                self._uris[doc_id].add(row["uri"])
                failure = [row["uri"], row["page"], row["stage"], row["reason"]]
                self._made_from[doc_id].append(failure)
        return row

    def check(self, sources: SourceList) -> None:
        """Raises `CorruptWorkspaceError` naming the first file or page that nobody accounts for."""
        seen = self._seen | {uri for doc_id in self._stated for uri in self._uris[doc_id]}
        missing = sorted(sources.uris - seen)
        if missing:
            _refuse(len(missing), "file(s) in neither documents nor quarantine", missing[0])
        for doc_id, stated in self._stated.items():
            found = self._read[doc_id] + len(self._lost[doc_id])
            if found != stated:
                _refuse(abs(stated - found), f"page(s) of {stated} amiss in document", doc_id)
            unexplained = self._lost[doc_id] - self._quarantined[doc_id]
            if unexplained:
                _refuse(len(unexplained), "lost page(s) without a reason in document", doc_id)

    @property
    def pages_in(self) -> int:
        """Pages of the documents that could be opened."""
        return sum(self._stated.values())

    @property
    def failed(self) -> set[str]:
        """Documents with a quarantine row of their own or of a page."""
        return set(self._quarantined)

    def counts_out(self) -> dict[str, int]:
        """`documents` + `quarantined/documents` are the documents in, and so for pages."""
        return {
            "quarantined/documents": len(self._quarantined.keys() - self._stated.keys()),
            "pages/read": sum(self._read.values()),
            "quarantined/pages": sum(map(len, self._lost.values())),
        }

    def listed(self, generation: str, kept: Mapping[str, str]) -> dict[str, Listed]:
        """The documents with a digest of what their rows were made from (`corpus.changes`)."""
        return {
            doc_id: Listed(
                tuple(sorted(self._uris[doc_id])),
                hash_json([kept.get(doc_id, generation), made_from]),
            )
            for doc_id, made_from in self._made_from.items()
        }


def _refuse(count: int, what: str, example: str) -> None:
    raise CorruptWorkspaceError(f"{count} {what}, e.g. {example}; nothing was published")
