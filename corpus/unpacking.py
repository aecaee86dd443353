"""Listings of containers: made in killable children, remembered by content, remade on demand.

`list_all` answers what files hold; the answers stay in `records` when the corpus is published and
the unpacked bytes are gone, so an unchanged archive is not opened again. `materialise` brings back
the bytes of children that have to be parsed after all. `find_passwords` tries passwords, in the
same children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from corpus.children import ContainerLimits, Listing
from corpus.remote import Downloads, RemoteFile
from corpus.worker_pool import Outcome, Task, WorkerPool
from workspace.config import hash_json

MakePool = Callable[[], AbstractContextManager[WorkerPool]]

# A change of what `corpus.children` lists makes old records worthless.
RECORD_VERSION: Final = 1


class Candidate(NamedTuple):
    """A document that may hold others, or may need a password."""

    doc_id: str
    path: Path
    name: str
    bytes: int
    passwords: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The name decides about the listing, too: `x.v.gz` holds `x.v`."""
        return self.doc_id, self.name


@dataclass
class Unpacker:
    """Use as a context manager; `make_pool` is called when there is something to do."""

    files: Path
    records: Path
    limits: ContainerLimits
    make_pool: MakePool
    cpu_limit_s: float
    downloads: Downloads | None = None
    remote: dict[str, RemoteFile] = field(default_factory=dict)  # by doc_id
    used: set[str] = field(default_factory=set)  # names of the records in use
    _parents: dict[str, Candidate] = field(default_factory=dict)
    _pool: WorkerPool | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)  # an error ends the children, too

    def list_all(self, candidates: Sequence[Candidate]) -> dict[tuple[str, str], Listing]:
        """key -> what it holds. One that kills or hangs its child is listed as unreadable."""
        found: dict[tuple[str, str], Listing] = {}
        left = []
        for candidate in candidates:
            known = self._known(candidate)
            if known is None:
                left.append(candidate)
            else:
                found[candidate.key] = known
        found.update(self._list(left))
        for candidate in candidates:
            for child in found[candidate.key].children:
                self._parents.setdefault(child.doc_id, candidate)
        return found

    def materialise(self, wanted: Iterable[tuple[str, Path]]) -> None:
        """Have these files on disk (doc_id, path), by downloading or unpacking them anew."""
        missing = [doc_id for doc_id, path in wanted if not path.is_file()]
        if not missing:
            return
        fetched = [self.remote[doc_id] for doc_id in missing if doc_id in self.remote]
        if fetched:
            assert self.downloads is not None
            self.downloads.materialise(fetched)
        inside = (self._parents[d] for d in missing if d not in self.remote and d in self._parents)
        self._list(list({parent.key: parent for parent in inside}.values()))

    def find_passwords(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """doc_id -> the password that it needs, for those that one of theirs opens."""
        self.materialise((candidate.doc_id, candidate.path) for candidate in candidates)
        found = {}
        for candidate, outcome in self._run("unlock", candidates):
            number = (outcome.done or {}).get("password")
            if number is not None:
                found[candidate.doc_id] = candidate.passwords[number]
        return found

    def _list(self, candidates: Sequence[Candidate]) -> dict[tuple[str, str], Listing]:
        self.materialise((candidate.doc_id, candidate.path) for candidate in candidates)
        found: dict[tuple[str, str], Listing] = {}
        for candidate, outcome in self._run("list", candidates):
            if outcome.failure:
                listing = Listing("", reason=outcome.failure, detail=outcome.detail)
            elif outcome.unreadable is not None:
                reason, detail = outcome.unreadable["reason"], outcome.unreadable["detail"]
                listing = Listing("", reason=reason, detail=detail)
            else:
                listing = self._read(self._record(candidate))
            found[candidate.key] = listing
        return found

    def _run(
        self, kind: str, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Outcome]]:
        if not candidates:
            return
        if self._pool is None:
            self._pool = self._stack.enter_context(self.make_pool())
        ordered = sorted(candidates, key=lambda item: (-item.bytes, item.key))
        for number, candidate in enumerate(ordered):
            message = {"number": number, **self._message(kind, candidate)}
            self._pool.submit(Task(message, self.cpu_limit_s))
        for outcome in self._pool.outcomes():
            yield ordered[outcome.task.message["number"]], outcome

    def _message(self, kind: str, candidate: Candidate) -> dict[str, Any]:
        return {
            "kind": kind,
            "path": str(candidate.path),
            "name": candidate.name,
            "files": str(self.files),
            "record": str(self._record(candidate)),
            "limits": asdict(self.limits),
            "passwords": list(candidate.passwords),
        }

    def _known(self, candidate: Candidate) -> Listing | None:
        path = self._record(candidate)
        self.used.add(path.name)
        try:
            listing = self._read(path)
        except FileNotFoundError:
            return None
        # A tool may have come since, or a password.
        is_stale = listing.reason == "needs_tool" or (listing.is_locked and candidate.passwords)
        return None if is_stale else listing

    @staticmethod
    def _read(path: Path) -> Listing:
        return Listing.from_json(path.read_text(encoding="utf-8"))

    def _record(self, candidate: Candidate) -> Path:
        key = hash_json([RECORD_VERSION, candidate.name, asdict(self.limits)])
        return self.records / f"{candidate.doc_id[:40]}-{key}.json"
