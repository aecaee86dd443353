"""Documents through the worker pool: the order of tasks, retries, and what a failure costs.

A paged document is opened, its missing pages are read in ranges that run side by side, and it is
joined. When a child dies or hangs, the page that it was at is tried once more alone in a fresh
child, and then counted as lost; the rest of its range goes on. A document that keeps killing
children is given up whole. Small documents are sent in batches, as messages and units cost more
than parsing them; one that kills its batch is tried alone, and the others as batches again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus.sources import Source
from corpus.units import quarantine_row, quarantined_tables, write_unit
from corpus.worker_pool import Outcome, Task, WorkerPool

RANGE_PAGES: Final = 32
# After so many dead children a document is given up.
MAX_KILLS: Final = 10
# Opening and joining touch every page, but do little with each.
JOIN_FACTOR: Final = 10
# Larger documents, and those of a paged format, are sent one by one.
SMALL_BYTES: Final = 64 << 10
BATCH_BYTES: Final = 512 << 10
BATCH_DOCUMENTS: Final = 64
RETRIED: Final = frozenset({"crash", "out_of_memory"})


@dataclass(frozen=True)
class TimeLimits:
    """CPU seconds."""

    page_s: float
    document_s: float


@dataclass
class _Progress:
    """A document on its way."""

    source: Source
    n_pages: int = 0
    n_read: int = 0
    running: int = 0  # page tasks that have not ended
    lost: dict[int, tuple[str, str]] = field(default_factory=dict)
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter)
    kills: int = 0
    cpu_s: Counter[str] = field(default_factory=Counter)  # by step, all tasks


class DocumentScheduler:
    """Feeds one pool with the tasks of many documents.

    `on_document` is called at each one's end, with its CPU seconds by step; `on_pages` on the way
    there, with the share of its pages that are read.
    """

    def __init__(
        self,
        pool: WorkerPool,
        units: Path,
        limits: TimeLimits,
        on_document: Callable[[str, Mapping[str, float]], None],
        passwords: Mapping[str, str] | None = None,
        on_pages: Callable[[str, float], None] = lambda doc_id, share: None,
    ) -> None:
        self._pool = pool
        self._units = units
        self._limits = limits
        self._on_document = on_document
        self._on_pages = on_pages
        self._passwords = passwords or {}
        self._open: dict[str, _Progress] = {}

    def run(self, sources: Sequence[Source]) -> None:
        """Parse all; every source ends as a unit, parsed or quarantined."""
        # The largest first: a big document started last would run alone at the end.
        for source in sorted(sources, key=lambda source: (-source.bytes, source.doc_id)):
            self._open[source.doc_id] = _Progress(source)
            if not is_small(source):
                self._submit(source, "open", self._limits.document_s)
        small = sorted(filter(is_small, sources), key=lambda source: source.doc_id)
        for batch in batches(small, self._pool.workers):
            self._submit_batch(batch)
        for outcome in self._pool.outcomes():
            if outcome.task.message["kind"] == "batch":
                self._handle_batch(outcome)
                continue
            progress = self._open.get(outcome.task.message["doc_id"])
            if progress is not None:
                self._handle(progress, outcome)

    def _submit_batch(self, sources: Sequence[Source]) -> None:
        if not sources:
            return
        documents = [self._document_message(source) for source in sources]
        message = {"kind": "batch", "documents": documents}
        self._pool.submit(Task(message, self._limits.document_s))

    def _handle_batch(self, outcome: Outcome) -> None:
        ids = [document["doc_id"] for document in outcome.task.message["documents"]]
        sources = [self._open[doc_id].source for doc_id in ids]
        if outcome.done is not None:
            alone = set(outcome.done["alone"])
            for source in sources:
                progress = self._open[source.doc_id]
                progress.cpu_s.update(outcome.done["cpu_s"][source.doc_id])
                if source.doc_id in alone:
                    self._submit(source, "open", self._limits.document_s)
                else:
                    self._close(progress)
            return
        # Nothing of it was written. The one that it died at may be innocent, if another ate memory.
        at = len(outcome.parts_done)
        self._open[ids[min(at, len(ids) - 1)]].cpu_s.update(outcome.cpu_s)
        self._submit_batch(sources[:at] if at < len(sources) else ())
        self._submit_batch(sources[at + 1 :])
        # All parsed and then lost: the fault may lie in any of them.
        for source in sources[at : at + 1] or sources:
            self._submit(source, "open", self._limits.document_s)

    def _submit(self, source: Source, kind: str, cpu_limit_s: float, **more: Any) -> None:
        message = {"kind": kind, **self._document_message(source), **more}
        # Work on opened documents goes first, so that few spools are on disk at once.
        self._pool.submit(Task(message, cpu_limit_s, first=kind != "open"))

    def _document_message(self, source: Source) -> dict[str, Any]:
        return {
            "doc_id": source.doc_id,
            "path": str(source.path),
            "suffix": source.suffix,
            "bytes": source.bytes,
            "password": self._passwords.get(source.doc_id, ""),
        }

    def _handle(self, progress: _Progress, outcome: Outcome) -> None:
        kind = outcome.task.message["kind"]
        progress.cpu_s.update(outcome.cpu_s)
        if kind == "pages":
            progress.running -= 1
            progress.n_read += len(outcome.parts_done)
            self._on_pages(progress.source.doc_id, progress.n_read / progress.n_pages)
        if outcome.unreadable is not None:
            self._quarantine(progress, **outcome.unreadable)
        elif outcome.failure:
            self._handle_failure(progress, kind, outcome)
        elif kind == "open" and "pages" in (outcome.done or {}):
            self._start_pages(progress, outcome.done or {})
        elif kind == "pages":
            self._join_when_read(progress)
        else:
            self._close(progress)

    def _start_pages(self, progress: _Progress, answer: dict[str, Any]) -> None:
        progress.n_pages = answer["pages"]
        progress.n_read = answer["pages"] - len(answer["missing"])
        for first, last in page_ranges(answer["missing"]):
            self._submit_pages(progress, first, last)
        self._join_when_read(progress)

    def _submit_pages(self, progress: _Progress, first: int, last: int) -> None:
        progress.running += 1
        self._submit(progress.source, "pages", self._limits.page_s, first=first, last=last)

    def _join_when_read(self, progress: _Progress) -> None:
        if progress.running:
            return
        lost = [(page, *why) for page, why in sorted(progress.lost.items())]
        limit = self._limits.document_s + JOIN_FACTOR * self._limits.page_s
        self._submit(progress.source, "join", limit, lost=lost)

    def _handle_failure(self, progress: _Progress, kind: str, outcome: Outcome) -> None:
        progress.kills += 1
        if kind != "pages":
            self._retry_or_quarantine(progress, kind, outcome)
        elif progress.kills > MAX_KILLS:
            detail = f"{progress.kills} parser processes died on it, the last: {outcome.detail}"
            self._quarantine(progress, "parse", "too_many_failures", detail)
        else:
            self._skip_page(progress, outcome)

    def _retry_or_quarantine(self, progress: _Progress, kind: str, outcome: Outcome) -> None:
        progress.attempts[kind, 0] += 1
        if outcome.failure in RETRIED and progress.attempts[kind, 0] == 1:
            self._pool.submit(outcome.task)
            return
        self._quarantine(progress, "parse", outcome.failure, outcome.detail)

    def _skip_page(self, progress: _Progress, outcome: Outcome) -> None:
        """Blame the first page that was not done; try it alone once, and go on behind it."""
        first, last = outcome.task.message["first"], outcome.task.message["last"]
        page = first + len(outcome.parts_done)
        if page > last:  # died after its last page, before it could say so
            self._join_when_read(progress)
            return
        progress.attempts["page", page] += 1
        if outcome.failure in RETRIED and progress.attempts["page", page] == 1:
            self._submit_pages(progress, page, page)
        else:
            progress.lost[page] = (outcome.failure, outcome.detail)
        if page < last:
            self._submit_pages(progress, page + 1, last)
        self._join_when_read(progress)

    def _quarantine(self, progress: _Progress, stage: str, reason: str, detail: str) -> None:
        source = progress.source
        row = quarantine_row(source.doc_id, 0, stage, reason, detail, size=source.bytes)
        write_unit(self._units, quarantined_tables(source.doc_id, source.suffix, row))
        self._close(progress)

    def _close(self, progress: _Progress) -> None:
        del self._open[progress.source.doc_id]
        self._on_document(progress.source.doc_id, progress.cpu_s)


def is_small(source: Source) -> bool:
    """Whether a document goes into a batch."""
    return source.bytes <= SMALL_BYTES and source.suffix != ".pdf"


def batches(sources: Sequence[Source], workers: int) -> Iterator[Sequence[Source]]:
    """Consecutive runs of small documents, short enough to keep all workers busy to the end."""
    limit = max(1, min(BATCH_DOCUMENTS, len(sources) // (4 * workers)))
    start = size = 0
    for end, source in enumerate(sources):
        if end - start == limit or (size + source.bytes > BATCH_BYTES and end > start):
            yield sources[start:end]
            start, size = end, 0
        size += source.bytes
    if start < len(sources):
        yield sources[start:]


def page_ranges(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive pages, none longer than RANGE_PAGES."""
    runs = itertools.groupby(enumerate(sorted(pages)), key=lambda pair: pair[1] - pair[0])
    for _, run in runs:
        numbers = [page for _, page in run]
        for start in range(0, len(numbers), RANGE_PAGES):
            part = numbers[start : start + RANGE_PAGES]
            yield part[0], part[-1]
