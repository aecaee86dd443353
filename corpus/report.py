"""The corpus report: Markdown that accounts for every file, beside a contact sheet of pages.

In: the published shards listed in a manifest. Out: `report-<key>.md` and `report-<key>.png` beside
them, and `markdown(folder, manifest)` for whoever shows it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from corpus import timings
from corpus.contact_sheet import contact_sheet
from corpus.published import KEPT
from corpus.quarantine import Tries, describe
from corpus.report_duplicates import duplicate_lines
from corpus.sources import MEMBER
from workspace import publish
from workspace.manifest import Manifest
from workspace.shards import Row, iterate_files, manifest_files

_RETRIED: Final[Mapping[str, str]] = {
    "again": "by every run, up to max_tries",
    "limit": "when a limit is raised",
    "cure": "with --retry-quarantined",
    "keep": "with --retry-quarantined; the rest of the document is here",
}
# The report lists all files up to here; the tables hold the rest.
MAX_LISTED: Final = 2_000
MAX_SLOWEST: Final = 25
MAX_QUARANTINED: Final = 500


def write(folder: Path, manifest: Manifest, *, prefix: str) -> list[Path]:
    """Write both files under names that start with `prefix`; returns their paths."""
    text = folder / f"{prefix}.md"
    publish.write_text(text, markdown(folder, manifest))
    sheet = contact_sheet(folder, manifest)
    if sheet is None:
        return [text]
    image = folder / f"{prefix}.png"
    publish.write_bytes(image, sheet)
    return [text, image]


def remove_old(folder: Path, keep: Sequence[Path]) -> None:
    """Remove reports of earlier manifests."""
    for path in folder.glob("report-*"):
        if path not in keep:
            path.unlink()


def markdown(folder: Path, manifest: Manifest) -> str:
    """The report's text."""
    documents = list(_rows(folder, manifest, "documents"))
    quarantine = list(_rows(folder, manifest, "quarantine"))
    return "\n".join(
        [
            "# Corpus",
            "",
            *_totals(manifest),
            "",
            "## Documents",
            "",
            *_document_lines(documents),
            "",
            "## Quarantine",
            "",
            *_quarantine_lines(manifest, quarantine, Tries.read(folder)),
            "",
            "## Duplicates",
            "",
            *duplicate_lines(
                _rows(folder, manifest, "duplicates"),
                {row["doc_id"]: row["uri"] for row in documents},
                _code,
            ),
            "",
        ]
    )


def slowest_files(folder: Path, manifest: Manifest) -> list[Row]:
    """The MAX_SLOWEST documents that took the most CPU time, with their dearest step."""
    seconds = timings.read(folder, manifest)
    slowest = sorted(seconds, key=lambda doc_id: (-seconds[doc_id][timings.TOTAL], doc_id))
    wanted = slowest[:MAX_SLOWEST]
    facts = {
        row["doc_id"]: row
        for table, columns in (
            ("quarantine", ["doc_id", "uri", "bytes"]),
            ("documents", ["doc_id", "uri", "bytes", "format", "n_pages"]),
        )
        for row in _rows(folder, manifest, table, columns)
    }
    rows = []
    for doc_id in wanted:
        fact = facts[doc_id]
        steps = {name: spent for name, spent in seconds[doc_id].items() if name != timings.TOTAL}
        n_pages = fact.get("n_pages", 0)
        total = seconds[doc_id][timings.TOTAL]
        rows.append(
            {
                "file": fact["uri"],
                "format": fact.get("format", "quarantined"),
                "pages": n_pages,
                "kB": fact["bytes"] // 1000,
                "cpu_s": round(total, 2),
                "cpu_s_per_page": round(total / n_pages, 3) if n_pages else None,
                "dearest_step": max(steps, key=lambda name: (steps[name], name), default=""),
            }
        )
    return rows


def quarantined_files(folder: Path, manifest: Manifest) -> list[Row]:
    """The first MAX_QUARANTINED records of what could not be read."""
    records = sorted(
        _rows(folder, manifest, "quarantine"), key=lambda row: (row["uri"], row["page"])
    )
    return [
        {
            "file": row["uri"],
            "page": row["page"] or "all",
            "step": row["stage"],
            "reason": row["reason"],
            "detail": row["detail"][:300],
            "another_try": row["retry"],
        }
        for row in records[:MAX_QUARANTINED]
    ]


def _totals(manifest: Manifest) -> Iterator[str]:
    counts = manifest.counts_in
    children = counts.get("children", 0)
    inside = f" ({children} of them inside others)" if children else ""
    yield (
        f"{counts['files']} files{inside}, {counts['bytes'] / 1e6:.1f} MB: "
        f"{counts['documents']} different documents, {counts['duplicates']} exact copies."
    )
    yield ""
    yield "| table | rows |"
    yield "|---|---:|"
    for name, count in manifest.counts_out.items():
        if name != "quarantined":
            yield f"| {name} | {count} |"
    notes = manifest.notes
    yield ""
    yield (
        f"Passed over: {notes.get('hidden_left_out', 0)} hidden files or folders, "
        f"{notes.get('excluded', 0)} excluded by pattern."
    )
    kept = notes.get(KEPT)
    if kept:
        yield ""
        yield (
            f"{len(kept)} document(s) keep the rows of a run with other settings: their files are "
            "no longer there to be read again."
        )


def _document_lines(documents: Sequence[Row]) -> Iterator[str]:
    yield "| file | format | pages | elements | tables | images | modules | status |"
    yield "|---|---|---:|---:|---:|---:|---:|---|"
    for row in sorted(documents, key=lambda row: row["uri"])[:MAX_LISTED]:
        counts = [row[f"n_{name}"] for name in ("pages", "elements", "tables", "images", "modules")]
        cells = [_file(row["uri"]), row["format"], *map(str, counts), row["status"]]
        yield f"| {' | '.join(cells)} |"
        for copy in row["uris"][1:]:
            yield f"| {_file(copy)} | {row['format']} | | | | | | copy of the line above |"
    if len(documents) > MAX_LISTED:
        yield f"\n{len(documents) - MAX_LISTED} more are in the `documents` table."


def _quarantine_lines(manifest: Manifest, quarantine: Sequence[Row], tries: Tries) -> Iterator[str]:
    if not quarantine:
        yield "Nothing was left out."
        return
    reasons = ", ".join(f"{reason} {count}" for reason, count in manifest.rejects.items())
    yield f"By reason: {reasons}."
    yield ""
    yield "| file | page | stage | reason | tries | detail |"
    yield "|---|---:|---|---|---:|---|"
    for row in sorted(quarantine, key=lambda row: (row["uri"], row["page"]))[:MAX_LISTED]:
        page = str(row["page"]) if row["page"] else "all"
        detail = _code(row["detail"][:200])
        tried = str(tries.of(row["doc_id"]))
        cells = [_file(row["uri"]), page, row["stage"], row["reason"], tried, detail]
        yield f"| {' | '.join(cells)} |"
    if len(quarantine) > MAX_LISTED:
        yield f"\n{len(quarantine) - MAX_LISTED} more are in the `quarantine` table."
    yield ""
    yield "| reason | means | tried again | what to do |"
    yield "|---|---|---|---|"
    for reason in manifest.rejects:
        about = describe(reason)
        yield f"| {reason} | {about.meaning} | {_RETRIED[about.retry]} | {about.cure} |"


def _file(uri: str) -> str:
    """Sorted by uri, what is inside a document follows it; an arrow for each level."""
    depth = uri.count(MEMBER)
    return f"{'↳' * depth} {_code(uri)}" if depth else _code(uri)


def _code(text: str) -> str:
    """File names and messages come from outside: one line, no markup."""
    flat = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{flat}`" if flat else ""


def _rows(
    folder: Path, manifest: Manifest, table: str, columns: list[str] | None = None
) -> Iterator[Row]:
    return iterate_files(manifest_files(folder, manifest, table), columns, batch_rows=32)
