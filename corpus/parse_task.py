"""The tasks that a worker child performs on one document.

open    sniff the format; a paged format answers with its page count, any other is parsed, turned
        into rows and written as a unit there and then
pages   read a range of pages into the spool
join    make the document from its spooled pages and write its unit
batch   open many small documents and write one unit for all
list    unpack one level of an archive or a mail; the listing goes to a file
unlock  find the password that opens a document

The first three raise `Unreadable` for what belongs in quarantine; anything else is a fault of ours
or of a library, and the parent records it as `parser_error`.
"""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus import children, chunks, fingerprints, summaries
from corpus.language import guess_language
from corpus.licence import find_licence
from corpus.parsed import Fault, ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import pdf
from corpus.parsers.pdf_spool import PdfSpool
from corpus.parsers.registry import PAGED, find_parser
from corpus.passwords import ENCRYPTABLE, decrypt_office, find_password
from corpus.redaction import redact, redact_fault
from corpus.rows import build_rows
from corpus.sniff import sniff
from corpus.sources import uri_suffix
from corpus.step_clock import CLOCK
from corpus.units import (
    PageImage,
    UnitTables,
    parsed_tables,
    quarantine_row,
    quarantined_tables,
    write_batch,
    write_unit,
)
from workspace import publish
from workspace.shards import Row, estimate_bytes

# Enough for language and licence; a licence text stands near the front or the end.
SAMPLE_CHARS = 20_000
# A document with more than this in its rows gets a unit of its own.
MAX_BATCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class TaskContext:
    """Where a child works and with which settings."""

    units: Path
    spool: Path
    options: ParseOptions
    chunk_limits: chunks.ChunkLimits
    max_bytes: int
    redact: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The document that a task is about."""

    doc_id: str
    path: Path
    suffix: str
    bytes: int
    password: str = field(default="", repr=False)


def open_document(context: TaskContext, job: Job) -> dict[str, Any]:
    """Answer {"pages": n} for a paged format, {} for a finished document."""
    format_name = _sniff(context, job)
    if format_name in PAGED:
        spool = PdfSpool(context.spool / job.doc_id)
        outline = pdf.read_outline(job.path, spool, _options(context, job))
        return {"pages": outline.n_pages, "missing": spool.missing(outline.n_pages)}
    _write(context, _parse(context, job, format_name))
    return {}


def parse_batch(
    context: TaskContext, jobs: Sequence[Job], on_document: Callable[[int], None]
) -> dict[str, Any]:
    """Answer {"alone": ids, "cpu_s": CPU seconds by document and step}.

    Alone are those that are to be opened one by one: paged, large or faulty.
    """
    done: list[UnitTables] = []
    alone: list[str] = []
    cpu_s: dict[str, dict[str, float]] = {}
    for number, job in enumerate(jobs):
        CLOCK.restart()
        try:
            tables = _parse_small(context, job)
        except MemoryError:
            raise
        except Exception:  # recorded when it is tried alone
            traceback.print_exc()
            tables = None
        if tables is None:
            alone.append(job.doc_id)
        else:
            done.append(tables)
        cpu_s[job.doc_id] = CLOCK.read()
        on_document(number)
    CLOCK.restart()
    if done:
        write_batch(context.units, done)
        share = sum(CLOCK.read().values()) / len(done)
        for tables in done:
            cpu_s[tables.doc_id]["write"] = share
    return {"alone": alone, "cpu_s": cpu_s}


def _parse_small(context: TaskContext, job: Job) -> UnitTables | None:
    """The tables of a document, None when it does not belong in a batch."""
    try:
        format_name = _sniff(context, job)
        if format_name in PAGED:
            return None
        tables = _parse(context, job, format_name)
    except Unreadable as error:
        row = quarantine_row(
            job.doc_id, 0, error.stage, error.reason, error.detail,
            size=job.bytes,
        )  # fmt: skip
        return quarantined_tables(job.doc_id, job.suffix, row)
    held: dict[str, Iterable[Row]] = {name: list(rows) for name, rows in tables.tables.items()}
    size = estimate_bytes(held)
    return tables._replace(tables=held) if size <= MAX_BATCHED_BYTES else None


def _parse(context: TaskContext, job: Job, format_name: str) -> UnitTables:
    with CLOCK.measure("parse"):
        if format_name in ENCRYPTABLE:
            parsed = _parse_office(job, format_name, _options(context, job))
        else:
            parsed = find_parser(format_name)(job.path, _options(context, job))
    images = {page.page: page.image_png for page in parsed.pages}
    return _finish(context, job, parsed, images.get)


def _options(context: TaskContext, job: Job) -> ParseOptions:
    return replace(context.options, password=job.password)


def _sniff(context: TaskContext, job: Job) -> str:
    if job.bytes > context.max_bytes:
        limit = context.max_bytes >> 20
        raise Unreadable("too_large", f"larger than max_file_mb={limit}", stage="sniff")
    try:
        return sniff(job.path, job.suffix)
    except OSError as error:
        raise Unreadable("unreadable", str(error.strerror), stage="sniff") from error


def _parse_office(job: Job, format_name: str, options: ParseOptions) -> ParsedDocument:
    """An Office file that may be encrypted; an unencrypted one is parsed as it is."""
    try:
        plain = decrypt_office(job.path, job.password)
    except Unreadable as error:
        if "encrypted" in (format_name, error.reason):
            raise
        plain = None  # its own parser knows more kinds of old files
    if plain is None:
        return find_parser(format_name)(job.path, options)
    with tempfile.NamedTemporaryFile(suffix=job.suffix) as decrypted:
        decrypted.write(plain)
        decrypted.flush()
        path = Path(decrypted.name)
        return find_parser(sniff(path, job.suffix))(path, options)


def look_inside(task: dict[str, Any]) -> dict[str, Any]:
    """{} when the listing is written; {"password": its number in the list, or None}."""
    path, name = Path(task["path"]), task["name"]
    if task["kind"] == "list":
        limits = children.ContainerLimits(**task["limits"])
        listing = children.list_children(path, name, Path(task["files"]), limits, task["passwords"])
        publish.write_text(Path(task["record"]), listing.to_json())
        return {}
    found = find_password(path, sniff(path, uri_suffix(name)), task["passwords"])
    return {"password": task["passwords"].index(found) if found else None}


def read_pages(
    context: TaskContext, job: Job, first: int, last: int, on_page: Callable[[int], None]
) -> dict[str, Any]:
    spool = PdfSpool(context.spool / job.doc_id)
    options = _options(context, job)
    pdf.read_pages(job.path, range(first, last + 1), spool, options, on_page)
    return {}


def join_document(
    context: TaskContext, job: Job, lost: dict[int, tuple[str, str]]
) -> dict[str, Any]:
    """`lost` are pages that cost a child its life: page -> (reason, detail)."""
    folder = context.spool / job.doc_id
    spool = PdfSpool(folder)
    for page, (reason, detail) in sorted(lost.items()):
        spool.put_page(pdf.lost_page(page, reason, detail))
    with CLOCK.measure("structure"):
        parsed = pdf.join_pages(spool)
    _write(context, _finish(context, job, parsed, spool.get_page_png))
    shutil.rmtree(folder, ignore_errors=True)
    return {}


def _finish(
    context: TaskContext, job: Job, parsed: ParsedDocument, page_image: PageImage
) -> UnitTables:
    parsed = redact(_with_language_and_licence(parsed), context.redact)
    hidden = {page.page for page in parsed.pages if "redacted" in page.flags}

    def visible(page: int) -> bytes | None:
        return None if page in hidden else page_image(page)

    rows = build_rows(job.doc_id, parsed, size_bytes=job.bytes)
    faults = [redact_fault(fault, context.redact) for fault in parsed.faults]
    with CLOCK.measure("summaries"):
        rows.summaries = _derive(faults, "summarise", lambda: summaries.summarise(rows))
    with CLOCK.measure("chunks"):
        rows.chunks = _derive(faults, "chunk", lambda: chunks.chunk(rows, context.chunk_limits))
    with CLOCK.measure("fingerprints"):
        rows.fingerprints = _derive(
            faults, "fingerprint", lambda: fingerprints.fingerprint(rows, visible)
        )
    if faults:
        rows.document["status"] = "partial"
    quarantine: list[Row] = [
        quarantine_row(
            job.doc_id,
            fault.page,
            fault.stage,
            fault.reason,
            fault.detail,
            size=job.bytes,
        )
        for fault in faults
    ]
    return parsed_tables(rows, job.suffix, quarantine, visible)


def _write(context: TaskContext, tables: UnitTables) -> None:
    with CLOCK.measure("write"):
        write_unit(context.units, tables)


def _derive(faults: list[Fault], stage: str, derive: Callable[[], list[Row]]) -> list[Row]:
    """Rows made from the parsed ones; their failure must not cost the document."""
    try:
        return derive()
    except MemoryError:
        raise
    except Exception as error:
        traceback.print_exc()
        faults.append(Fault(0, stage, f"{stage}_error", describe_error(error)))
        return []


def describe_error(error: BaseException) -> str:
    """Kind, message, and the place in the code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _with_language_and_licence(parsed: ParsedDocument) -> ParsedDocument:
    text = "\n".join(page.text for page in parsed.pages if page.text)
    sample = text if len(text) < 2 * SAMPLE_CHARS else text[:SAMPLE_CHARS] + text[-SAMPLE_CHARS:]
    return replace(
        parsed,
        language=parsed.language or guess_language(sample),
        licence=parsed.licence or find_licence(sample),
    )
