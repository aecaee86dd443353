"""What an ingest run would cost: `--dry-run` of `flows.ingest`.

In: the configuration and its plan. Out: a `Forecast`: files, MB and pages by format, core-hours by
step, wall time, disk. Nothing is parsed: kinds are told by suffix, pages of PDFs are counted (of a
sample when there are very many), and costs come from `COSTS`, scaled by what this machine took in
the run that the workspace holds, if there is one. A forecast is good to about a factor of two;
scans, whose text must be recognised, are what it knows least about.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from corpus.ingest import make_shards
from corpus.ingest_config import IngestConfig
from corpus.page_counts import count_pages
from corpus.sources import Source
from corpus.survey import Survey, unfinished
from corpus.timings import TOTAL
from workspace.manifest import Manifest, read_manifest
from workspace.shards import iterate_rows

MAX_COUNTED: Final = 2000  # PDFs, about 3 ms each


class Cost(NamedTuple):
    """CPU seconds of one step for a document: fixed, per page, per MB of file."""

    step: str
    document_s: float = 0.0
    page_s: float = 0.0
    mb_s: float = 0.0


# Measured over the documents of benchmarks/ingest/speed.py on a busy Xeon core.
COSTS: Final[Mapping[str, tuple[Cost, ...]]] = {
    "pdf": (
        Cost("text", 0.02, 0.012),  # and spooling
        Cost("render", 0.0, 0.008),
        Cost("images", 0.0, 0.004),
        Cost("tables", 0.0, 0.3),
        Cost("structure", 0.0, 0.004),
        Cost("summaries and chunks", 0.05, 0.006),
        Cost("fingerprints", 0.0, 0.002),
        Cost("write and publish", 0.02, 0.005),
    ),
    "image": (Cost("text recognition", 0.0, 1.6), Cost("write and publish", 0.02, 0.02)),
    "office": (
        Cost("parse", 0.1, 0.0, 3.0),
        Cost("summaries and chunks", 0.02, 0.0, 0.9),
        Cost("fingerprints", 0.0, 0.0, 0.4),
        Cost("write and publish", 0.02, 0.0, 0.3),
    ),
    "html": (
        Cost("parse", 0.015, 0.0, 1.0),
        Cost("summaries and chunks", 0.008, 0.0, 0.1),
        Cost("fingerprints", 0.0, 0.0, 0.15),
        Cost("write and publish", 0.004, 0.0, 0.1),
    ),
    "markup": (
        Cost("parse", 0.02, 0.0, 26.0),
        Cost("summaries and chunks", 0.01, 0.0, 1.3),
        Cost("fingerprints", 0.0, 0.0, 0.8),
        Cost("write and publish", 0.004, 0.0, 0.3),
    ),
    "text": (
        Cost("parse", 0.003, 0.0, 3.0),
        Cost("summaries and chunks", 0.006, 0.0, 3.0),
        Cost("write and publish", 0.004, 0.0, 0.3),
    ),
}
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "pdf": frozenset({".pdf"}),
    "image": frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".bmp", ".webp"}),
    "office": frozenset({
        ".docx", ".doc", ".pptx", ".ppt", ".xlsx", ".xls", ".odt", ".ods", ".odp", ".rtf", ".epub",
        ".msg",
    }),
    "html": frozenset({".html", ".htm", ".xhtml"}),
    "markup": frozenset({".md", ".rst", ".adoc", ".asciidoc", ".org"}),
}  # fmt: skip
# The table model on all pages, and no model at all, against `routed`.
_TABLES_FACTOR: Final[Mapping[str, float]] = {"fast": 0.1, "routed": 1.0, "full": 1.6}
# Bytes written per page with its image at 100 dpi, and per byte of a file without page images.
PAGE_BYTES: Final = 75_000
BYTES_PER_BYTE: Final = 1.0
# Starting a parser process, and the share of the time in which all of them are busy.
START_S: Final = 4.0
BUSY: Final = 0.85
DEFAULT_PAGES_PER_MB: Final = 60.0
# A run over fewer pages says nothing of a machine.
MIN_RECORD_PAGES: Final = 100


class FormatLine(NamedTuple):
    """The files of one kind that have to be parsed."""

    name: str
    files: int
    bytes: int
    pages: int  # 0 where a format has none before it is parsed


@dataclass(frozen=True)
class Forecast:
    """What a run would do, and what it would take. Times are of CPUs like the measured one."""

    formats: tuple[FormatLine, ...]
    files: int
    duplicates: int
    done: int  # documents whose rows are published or were made by a run that did not end
    counted_pdfs: int
    pdfs: int
    core_s: Mapping[str, float]
    scale: float  # of this machine's own record against the table of costs; 1 without one
    cores: int
    shards: int
    disk_bytes: int
    disk_free: int

    @property
    def total_core_s(self) -> float:
        return sum(self.core_s.values())

    @property
    def wall_s(self) -> float:
        if not self.total_core_s:
            return 0.0
        return START_S + self.total_core_s / (self.cores * BUSY)

    @property
    def pages(self) -> int:
        return sum(line.pages for line in self.formats)


class Pages(NamedTuple):
    """Pages by document, and of how many PDFs they were counted and not estimated."""

    by_document: Mapping[str, float]
    counted: int
    pdfs: int


def make_forecast(config: IngestConfig, seen: Survey, *, cores: int) -> Forecast:
    """What a run on `cores` would do with what `corpus.survey.survey` saw."""
    todo = unfinished(config, seen.fresh)
    documents = seen.found.documents
    pages = _pages(todo)
    core_s = _core_seconds(
        config,
        (
            _Document(kind_of(one.suffix), one.bytes, pages.by_document.get(one.doc_id, 0.0))
            for one in todo
        ),
    )
    scale = _scale(config, read_manifest(config.folder))
    return Forecast(
        formats=tuple(_by_format(todo, pages)),
        files=sum(len(source.uris) for source in documents),
        duplicates=sum(len(source.uris) - 1 for source in documents),
        done=len(documents) - len(todo),
        counted_pdfs=pages.counted,
        pdfs=pages.pdfs,
        core_s={step: seconds * scale for step, seconds in core_s.items()},
        scale=scale,
        cores=cores,
        shards=len(make_shards(seen.fresh)) if todo else 0,
        disk_bytes=_disk_bytes(config, todo, pages),
        disk_free=shutil.disk_usage(_existing(config.workspace)).free,
    )


def kind_of(suffix: str) -> str:
    """The row of `COSTS` for a suffix."""
    return next((kind for kind, suffixes in _KINDS.items() if suffix in suffixes), "text")


def _pages(todo: Sequence[Source]) -> Pages:
    pdfs = [source for source in todo if kind_of(source.suffix) == "pdf"]
    # Sorted by content hash, so every n-th is a random sample.
    sample = pdfs[:: max(1, -(-len(pdfs) // MAX_COUNTED))]
    found = count_pages([source.path for source in sample])
    counted: dict[str, float] = {
        source.doc_id: found[source.path] for source in sample if source.path in found
    }
    megabytes = sum(source.bytes for source in sample if source.doc_id in counted) / 1e6
    per_mb = sum(counted.values()) / megabytes if megabytes else DEFAULT_PAGES_PER_MB
    pages: dict[str, float] = {
        source.doc_id: counted.get(source.doc_id, max(1.0, per_mb * source.bytes / 1e6))
        for source in pdfs
    }
    pages |= {source.doc_id: 1.0 for source in todo if kind_of(source.suffix) == "image"}
    return Pages(pages, len(counted), len(pdfs))


class _Document(NamedTuple):
    """What costs depend on."""

    kind: str
    bytes: int
    pages: float


def _core_seconds(config: IngestConfig, documents: Iterable[_Document]) -> dict[str, float]:
    spent: defaultdict[str, float] = defaultdict(float)
    for document in documents:
        for cost in COSTS[document.kind]:
            seconds = cost.page_s * document.pages + cost.mb_s * document.bytes / 1e6
            spent[cost.step] += (seconds + cost.document_s) * _factor(config, cost.step)
    return dict(spent)


def _factor(config: IngestConfig, step: str) -> float:
    if step == "tables":
        return _TABLES_FACTOR[config.table_detection]
    return (config.page_dpi / 100) ** 2 if step == "render" else 1.0


def _scale(config: IngestConfig, earlier: Manifest | None) -> float:
    """What this machine took for the published corpus against the table, within 0.2 to 5."""
    if earlier is None or earlier.counts_out.get("pages", 0) < MIN_RECORD_PAGES:
        return 1.0
    spent: Mapping[str, float] = earlier.notes.get("cpu_s", {})
    ways = ("table_detection", "page_dpi")
    same = all(earlier.settings.get(name) == getattr(config, name) for name in ways)
    if not same or not spent or earlier.notes["reused_documents"]:
        return 1.0
    rows = iterate_rows(config.folder, "documents", ["format", "bytes", "n_pages"])
    documents = (
        _Document(kind_of(f".{row['format']}"), row["bytes"], row["n_pages"]) for row in rows
    )
    expected = sum(_core_seconds(config, documents).values())
    return min(5.0, max(0.2, spent[TOTAL] / expected))


def _by_format(todo: Iterable[Source], pages: Pages) -> list[FormatLine]:
    groups: dict[str, list[Source]] = {}
    for source in todo:
        groups.setdefault(source.suffix.lstrip(".") or "(no suffix)", []).append(source)
    lines = [
        FormatLine(
            name,
            len(sources),
            sum(source.bytes for source in sources),
            round(sum(pages.by_document.get(source.doc_id, 0.0) for source in sources)),
        )
        for name, sources in groups.items()
    ]
    return sorted(lines, key=lambda line: (-line.bytes, line.name))


def _disk_bytes(config: IngestConfig, todo: Iterable[Source], pages: Pages) -> int:
    per_page = PAGE_BYTES * (config.page_dpi / 100) ** 2
    written = sum(
        pages.by_document[source.doc_id] * per_page
        if source.doc_id in pages.by_document
        else BYTES_PER_BYTE * source.bytes
        for source in todo
    )
    # Units of documents and the shards made of them are there side by side until the end.
    return round(2 * written)


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.absolute().parent
    return folder
