"""CPU seconds per page of ingest by step, beside other tools.

    python -m benchmarks.ingest.speed [--short]

Over the real documents: the full ladder (defaults) and the fast mode, page images included in
both. `--short` takes six pages of each PDF and the smaller of the other files. Peers read the text
of the same PDF pages; none of them renders, finds tables or writes anything.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ingest.samples import corpus_files, cut_corpus
from benchmarks.measure import Report, cpu_seconds, parser
from corpus import ingest
from corpus.ingest_config import IngestConfig
from corpus.timings import TOTAL
from workspace import stage
from workspace.manifest import Manifest

SHORT_PAGES = 6
# docling's own figure (docs/usage/gpu.md): 1.2 to 1.5 pages a second with 16 threads.
DOCLING_THREAD_S = 16 / 1.35


class Run(NamedTuple):
    """One ingest of all files."""

    manifest: Manifest
    cpu_s: float

    @property
    def pages(self) -> int:
        return self.manifest.counts_out["pages"]


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "speed", short=arguments.short)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        files = cut_corpus(place / "cut", pages=SHORT_PAGES) if arguments.short else corpus_files()
        pdfs = [path for path in files if path.suffix == ".pdf"]
        peers = measure_peers(pdfs)
        fast = ingest_files(place / "fast", files, **FAST)
        add_fast(report, fast, peers)
        full = ingest_files(place / "full", files)
        add_full(report, full)
    report.notes.append(
        f"{len(files)} documents, {full.pages} pages; a page is a row of the table pages"
    )
    return report.finish()


FAST: dict[str, Any] = {"table_detection": "fast"}
if "ocr" in IngestConfig.model_fields:
    FAST["ocr"] = "off"


def ingest_files(workspace: Path, files: Sequence[Path], **settings: Any) -> Run:
    config = IngestConfig(sources=list(map(str, files)), workspace=workspace, **settings)
    with cpu_seconds() as spent:
        result = stage.run(config, ingest.plan, ingest.process, ingest.publish)
    return Run(result.manifest, spent[0])


def add_fast(report: Report, run: Run, peers: dict[str, float]) -> None:
    """The fast mode beside each peer."""
    value = run.cpu_s / run.pages
    target = "<= 0.07"
    for peer, peer_value in peers.items():
        report.add(
            f"fast mode, against {peer.partition(' ')[0]}", value, "CPU-s/page",
            target=target, peer=peer, peer_value=peer_value,
        )  # fmt: skip
        target = ""
    _add_steps(report, "fast", run)


def add_full(report: Report, run: Run) -> None:
    """The full ladder beside docling's published speed."""
    report.add(
        "full ladder", run.cpu_s / run.pages, "CPU-s/page", target="<= 0.6",
        peer="docling, 16 threads", peer_value=DOCLING_THREAD_S, published=True,
    )  # fmt: skip
    _add_steps(report, "full", run)


def _add_steps(report: Report, name: str, run: Run) -> None:
    steps = dict(run.manifest.notes["cpu_s"])
    parsing = steps.pop(TOTAL)
    for step, seconds in sorted(steps.items(), key=lambda item: -item[1]):
        report.add(f"{name}: {step}", seconds / run.pages, "CPU-s/page")
    rest = run.cpu_s - parsing
    report.add(f"{name}: all else (start, hashing, publishing)", rest / run.pages, "CPU-s/page")


def measure_peers(pdfs: Sequence[Path]) -> dict[str, float]:
    """CPU seconds a page of each peer that is installed."""
    found = {}
    for package, read in (
        ("unstructured", _unstructured_fast),
        ("pdfplumber", _pdfplumber_text),
        ("pypdfium2", _pypdfium2_text),
    ):
        try:
            found[_PEERS[package].format(version(package))] = _measure(read, pdfs)
        except ImportError as error:
            print(f"{package} is left out: {error}", file=sys.stderr)
    return found


_PEERS = {
    "unstructured": "unstructured {} fast",
    "pdfplumber": "pdfplumber {} text",
    "pypdfium2": "pypdfium2 {} text",
}


def _measure(read: Callable[[Path], bool], pdfs: Sequence[Path]) -> float:
    if not read(pdfs[0]):  # imports and models, and text that is surely there
        raise SystemExit(f"{read.__name__} read nothing of {pdfs[0].name}: is it installed?")
    with cpu_seconds() as spent:
        without_text = [path.name for path in pdfs if not read(path)]
    if without_text:
        print(f"{read.__name__} read no text of {', '.join(without_text)}", file=sys.stderr)
    return spent[0] / sum(_count(path) for path in pdfs)


def _unstructured_fast(path: Path) -> bool:
    from corpus.parsers import unstructured_setup

    unstructured_setup.prepare()
    from unstructured.partition.pdf import partition_pdf

    # It logs what is not installed, or what is too complex for it, and goes on without the text.
    return bool(partition_pdf(str(path), strategy="fast", languages=["eng"]))


def _pdfplumber_text(path: Path) -> bool:
    import pdfplumber

    texts = []
    with pdfplumber.open(path) as document:
        for page in document.pages:
            texts.append(page.extract_text())
            page.close()
    return any(texts)


def _pypdfium2_text(path: Path) -> bool:
    import pypdfium2

    with pypdfium2.PdfDocument(path) as document:
        return any("".join(page.get_textpage().get_text_bounded() for page in document))


def _count(path: Path) -> int:
    import pypdfium2

    with pypdfium2.PdfDocument(path) as document:
        return len(document)


if __name__ == "__main__":
    sys.exit(main())
