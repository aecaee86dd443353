"""Everything that `ingest.plan` finds out about its sources, and what is remembered of it.

    with SourcePlanner(config, make_pool) as planner:
        found = planner.find()                       files, downloads, members of containers
        passwords = planner.find_passwords(found, ...)   of documents that need one
        planner.materialise(fresh)                   the bytes of what is to be parsed

Bytes lie under `.work/files/` until the corpus is published; what is worth remembering (versions
of URLs, listings of archives, which documents a password opened, but never a password) stays in
`.sources/` beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from corpus.children import ContainerLimits
from corpus.discover import Discovered, find_sources
from corpus.given_files import GivenFiles, Patterns
from corpus.passwords import may_be_encrypted
from corpus.published import Published
from corpus.remote import Downloads
from corpus.sources import Source
from corpus.unpacking import Candidate, MakePool, Unpacker
from workspace import publish

RECORDS: Final = ".sources"


class Wanted(NamedTuple):
    """The settings that say what to read."""

    folder: Path
    workspace: Path
    sources: Collection[str]
    lists: Collection[Path]
    patterns: Patterns
    passwords: tuple[str, ...]
    limits: ContainerLimits
    cpu_limit_s: float


class SourcePlanner:
    """Use as a context manager: it may start worker processes."""

    def __init__(self, wanted: Wanted, make_pool: MakePool) -> None:
        self._wanted = wanted
        files = wanted.folder / ".work" / "files"
        self._records = wanted.folder / RECORDS
        self._downloads = Downloads(files, self._records / "downloads", wanted.limits.member_bytes)
        self._unpacker = Unpacker(
            files=files,
            records=self._records / "listings",
            limits=wanted.limits,
            make_pool=make_pool,
            cpu_limit_s=wanted.cpu_limit_s,
            downloads=self._downloads,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unpacker.__exit__(kind, error, trace)

    def find(self) -> Discovered:
        """Raises `UserError` naming a source that is missing or empty."""
        given = GivenFiles(self._wanted.patterns, self._downloads, self._wanted.workspace)
        for source in self._wanted.sources:
            given.add(source)
        for path in self._wanted.lists:
            given.add_list(path)
        return find_sources(given, self._unpacker, self._wanted.passwords)

    def find_passwords(
        self, found: Discovered, published: Published | None, generation: str
    ) -> dict[str, str]:
        """doc_id -> password, tried on what is new and on what waits for one since earlier runs."""
        held = published.documents if published is not None and published.intact else {}
        tried = []
        for source in found.sources.documents:
            known = held.get(source.doc_id)
            settled = known is not None and known.generation == generation
            is_locked = known is not None and "encrypted" in known.reasons
            if source.doc_id in found.passwords and (is_locked or not settled):
                tried.append(_candidate(source, found.passwords[source.doc_id]))
        self._unpacker.materialise((item.doc_id, item.path) for item in tried)
        return self._unpacker.find_passwords(
            [candidate for candidate in tried if may_be_encrypted(candidate.path)]
        )

    def materialise(self, sources: Iterable[Source]) -> None:
        """Have the bytes of these on disk."""
        self._unpacker.materialise((source.doc_id, source.path) for source in sources)

    def remember(
        self, found: Discovered, passwords: Collection[str], reused: Collection[str]
    ) -> frozenset[str]:
        """Ids of all documents that a password opened, now or in an earlier run.

        What an earlier run opened stays open as long as its rows are reused. Drops records that
        the sources do not need any more.
        """
        unlocked = frozenset(passwords) | (self._read_unlocked() & frozenset(reused))
        path = self._records / "unlocked.json"
        if unlocked:
            publish.write_json(path, sorted(unlocked))
        else:
            path.unlink(missing_ok=True)
        for folder, used in (
            ("downloads", self._downloads.used),
            ("listings", self._unpacker.used),
        ):
            for record in (self._records / folder).glob("*.json"):
                if record.name not in used:
                    record.unlink()
        return unlocked

    def _read_unlocked(self) -> set[str]:
        try:
            return set(json.loads((self._records / "unlocked.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return set()


def _candidate(source: Source, passwords: tuple[str, ...]) -> Candidate:
    return Candidate(source.doc_id, source.path, source.name, source.bytes, passwords)
