"""50,000 small files through the flow, and what 50,000 real documents would take.

    python -m benchmarks.ingest.scale [--short]

Small files are one to two kB in six formats. The rate is for two cores: twice the documents per
CPU second, whole run included (hashing, parsing, publishing, Prefect). The projection takes the
costs of `corpus.forecast` for 50,000 documents of 24 pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ingest.samples import write_small_files
from benchmarks.measure import Report, cpu_seconds, parser
from corpus.forecast import COSTS, PAGE_BYTES
from workspace.manifest import Manifest, require_manifest

FILES, SHORT_FILES = 50_000, 3_000
DOCUMENTS, PAGES_EACH, PDF_BYTES = 50_000, 24, 600_000
# Of the pages of the projection: those that are scans.
SCANNED = 0.1
REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "scale", short=arguments.short)
    n_files = SHORT_FILES if arguments.short else FILES
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        write_small_files(place / "files", n_files)
        started = time.monotonic()
        with cpu_seconds() as spent:
            manifest = run_flow(place / "w", place / "files")
        wall_s = time.monotonic() - started
        if manifest.counts_out["documents"] != n_files:
            raise SystemExit(f"{n_files} files gave {manifest.counts_out['documents']} documents")
        started = time.monotonic()
        with cpu_seconds() as again:
            run_flow(place / "w", place / "files")
        written = sum(entry.bytes for entry in manifest.files)
    report.add("small documents", n_files, "files")
    report.add("rate on two cores", 2 * n_files / spent[0], "documents/s", target=">= 200")
    report.add("CPU a document", 1000 * spent[0] / n_files, "ms")
    report.add("rate by the clock of this run", n_files / wall_s, "documents/s")
    report.add(
        "second run of the first",
        100 * again[0] / spent[0],
        "%",
        target="<= 2" if not report.short else "",
    )
    report.add("written a document", written / n_files / 1000, "kB")
    project(report)
    return report.finish()


def run_flow(workspace: Path, folder: Path) -> Manifest:
    command = [sys.executable, "-m", "flows.ingest", str(folder), "--workspace", str(workspace)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return require_manifest(workspace / "corpus", made_by="ingest")


def project(report: Report) -> None:
    """Core-hours by step and disk for 50,000 documents, from the table of measured costs."""
    pages = DOCUMENTS * PAGES_EACH
    megabytes = DOCUMENTS * PDF_BYTES / 1e6
    total = 0.0
    for cost in COSTS["pdf"]:
        seconds = cost.document_s * DOCUMENTS + cost.page_s * pages + cost.mb_s * megabytes
        total += seconds
        report.add(f"50,000 real documents: {cost.step}", seconds / 3600, "core-h")
    (recognition,) = (cost for cost in COSTS["image"] if cost.step == "text recognition")
    seconds = recognition.page_s * pages * SCANNED
    report.add("50,000 real documents: text recognition of 10 %", seconds / 3600, "core-h")
    report.add(
        "50,000 real documents: all steps", (total + seconds) / 3600, "core-h", target="<= 330",
        peer="docling, 16 threads", peer_value=pages * 16 / 1.35 / 3600, published=True,
    )  # fmt: skip
    report.add("50,000 real documents: disk", pages * PAGE_BYTES / 1e9, "GB")


if __name__ == "__main__":
    sys.exit(main())
