"""The tasks that a worker child performs on one document.

open    sniff the format; a paged format answers with its page count, any other is parsed, turned
        into rows and written as a unit there and then
pages   read a range of pages into the spool
join    make the document from its spooled pages and write its unit
lose    quarantine the document

Each raises `Unreadable` for what belongs in quarantine; anything else is a fault of ours or of a
library, and the parent records it as `parser_error`.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus import chunks, summaries
from corpus.language import guess_language
from corpus.licence import find_licence
from corpus.parsed import Fault, ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import pdf
from corpus.parsers.pdf_spool import PdfSpool
from corpus.parsers.registry import PAGED, find_parser
from corpus.rows import build_rows
from corpus.sniff import sniff
from corpus.step_clock import CLOCK
from corpus.units import PageImage, quarantine_row, write_unit
from workspace.shards import Row

# Enough for language and licence; a licence text stands near the front or the end.
SAMPLE_CHARS = 20_000


@dataclass(frozen=True)
class TaskContext:
    """Where a child works and with which settings."""

    units: Path
    spool: Path
    options: ParseOptions
    chunk_tokens: int
    max_bytes: int


@dataclass(frozen=True)
class Job:
    """The document that a task is about."""

    doc_id: str
    path: Path
    suffix: str
    bytes: int


def open_document(context: TaskContext, job: Job) -> dict[str, Any]:
    """Answer {"pages": n} for a paged format, {"rows": counts} for a finished document."""
    if job.bytes > context.max_bytes:
        limit = context.max_bytes >> 20
        raise Unreadable("too_large", f"larger than max_file_mb={limit}", stage="sniff")
    try:
        format_name = sniff(job.path, job.suffix)
    except OSError as error:
        raise Unreadable("unreadable", str(error.strerror), stage="sniff") from error
    if format_name in PAGED:
        spool = PdfSpool(context.spool / job.doc_id)
        outline = pdf.read_outline(job.path, spool, context.options)
        return {"pages": outline.n_pages, "missing": spool.missing(outline.n_pages)}
    with CLOCK.measure("parse"):
        parsed = find_parser(format_name)(job.path, context.options)
    images = {page.page: page.image_png for page in parsed.pages}
    return {"rows": _finish(context, job, parsed, images.get)}


def read_pages(
    context: TaskContext, job: Job, first: int, last: int, on_page: Callable[[int], None]
) -> dict[str, Any]:
    spool = PdfSpool(context.spool / job.doc_id)
    pdf.read_pages(job.path, range(first, last + 1), spool, context.options, on_page)
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
    counts = _finish(context, job, parsed, spool.get_page_png)
    shutil.rmtree(folder, ignore_errors=True)
    return {"rows": counts}


def _finish(
    context: TaskContext, job: Job, parsed: ParsedDocument, page_image: PageImage
) -> dict[str, int]:
    parsed = _with_language_and_licence(parsed)
    rows = build_rows(job.doc_id, parsed, size_bytes=job.bytes)
    faults = list(parsed.faults)
    with CLOCK.measure("summaries"):
        rows.summaries = _derive(faults, "summarise", lambda: summaries.summarise(rows))
    with CLOCK.measure("chunks"):
        rows.chunks = _derive(faults, "chunk", lambda: chunks.chunk(rows, context.chunk_tokens))
    if faults:
        rows.document["status"] = "partial"
    quarantine: list[Row] = [
        quarantine_row(
            job.doc_id,
            fault.page,
            fault.stage,
            fault.reason,
            fault.detail,
            retry=fault.retry,
            size=job.bytes,
        )
        for fault in faults
    ]
    with CLOCK.measure("write"):
        return write_unit(context.units, rows, job.suffix, quarantine, page_image).rows


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
