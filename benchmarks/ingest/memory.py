"""Resident memory of parser processes and of their parent, over many and over huge documents.

    python -m benchmarks.ingest.memory [--short]

1,000 different documents in one worker: the peak of its children, and the growth from the first to
the last fifth of the run. A PDF of 4,500 pages and a sheet of 1,000,000 rows, made here: the peaks
of children and parent. `--short`: 100 documents, 450 pages, 100,000 rows.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.ingest.samples import corpus_files
from benchmarks.measure import Report, parser
from corpus import ingest
from corpus.ingest_config import IngestConfig
from workspace import stage

POLL_S = 0.2


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "memory", short=arguments.short)
    part = 10 if arguments.short else 1
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        add_many(report, place, 1000 // part)
        pdf = write_long_pdf(place / "long.pdf", 4500 // part)
        add_huge(report, place / "long", pdf, f"PDF of {4500 // part:,} pages")
        sheet = write_long_sheet(place / "long.xlsx", 1_000_000 // part)
        add_huge(report, place / "sheet", sheet, f"sheet of {1_000_000 // part:,} rows")
    return report.finish()


def add_many(report: Report, place: Path, count: int) -> None:
    write_documents(place / "many", count)
    watch = watch_ingest(place / "many-w", [place / "many"], workers=1)
    fifth = max(1, len(watch.children_mb) // 5)
    first, last = watch.children_mb[fifth : 2 * fifth], watch.children_mb[-fifth:]
    report.add(f"{count:,} documents: worker, peak", max(watch.children_mb), "MB", target="< 1000")
    report.add(
        f"{count:,} documents: last fifth over second fifth", _mean(last) / _mean(first), "x",
        target="<= 1.25",
    )  # fmt: skip
    report.add(f"{count:,} documents: parent, peak growth", watch.parent_growth_mb, "MB")


def add_huge(report: Report, workspace: Path, path: Path, name: str) -> None:
    watch = watch_ingest(workspace, [path], workers=2, table_detection="fast")
    report.add(f"{name}: worker, peak", max(watch.children_mb), "MB", target="< 1000")
    report.add(f"{name}: parent, peak growth", watch.parent_growth_mb, "MB", target="< 1000")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def watch_ingest(workspace: Path, sources: Sequence[Path], **settings: Any) -> _Watch:
    config = IngestConfig(sources=list(map(str, sources)), workspace=workspace, **settings)
    with _Watch() as watch:
        stage.run(config, ingest.plan, ingest.process, ingest.publish)
    return watch


class _Watch:
    """Samples the largest resident child, and this process, until the block ends."""

    def __init__(self) -> None:
        self.children_mb: list[float] = []
        self.parent_growth_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        own = Path("/proc/self")
        start = _resident_mb(own)
        while not self._stop.wait(POLL_S):
            self.parent_growth_mb = max(self.parent_growth_mb, _resident_mb(own) - start)
            found = [_resident_mb(child) for child in _parsers()]
            if found:
                self.children_mb.append(max(found))


def _parsers() -> list[Path]:
    listed = Path("/proc/self/task").glob("*/children")
    pids = [pid for path in listed for pid in path.read_text(encoding="ascii").split()]
    return [Path(f"/proc/{pid}") for pid in pids if _is_parser(Path(f"/proc/{pid}"))]


def _is_parser(process: Path) -> bool:
    try:
        return b"corpus.worker" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _resident_mb(process: Path) -> float:
    try:
        pages = int((process / "statm").read_text(encoding="ascii").split()[1])
    except OSError:  # it ended meanwhile
        return 0.0
    return pages * 4096 / 1e6


def write_documents(folder: Path, count: int) -> None:
    """Different documents: pages of the real PDFs one by one, and each other file with a mark."""
    import pymupdf

    folder.mkdir(parents=True)
    pdfs = [path for path in corpus_files() if path.suffix == ".pdf"]
    texts = [path for path in corpus_files() if path.suffix in (".rst", ".adoc", ".htm", ".html")]
    made = page = 0
    while made < count:
        for path in pdfs:
            with pymupdf.open(path) as document:
                if page >= len(document) or made >= count:
                    continue
                document.select([page])
                document.save(folder / f"{made:04d}.pdf", garbage=3, deflate=True)
                made += 1
        if page % 4 == 0 and made < count:
            text = texts[page // 4 % len(texts)]
            copy = folder / f"{made:04d}{text.suffix}"
            copy.write_bytes(text.read_bytes() + f"\n\nCopy {made}.\n".encode())
            made += 1
        page += 1


def write_long_pdf(path: Path, pages: int) -> Path:
    import pymupdf

    with pymupdf.open() as document:
        for number in range(pages):
            page = document.new_page()
            for line in range(40):
                words = f"Line {line} of page {number} tells of register {number * 40 + line}."
                page.insert_text((60, 60 + 17 * line), words, fontsize=10)
        document.save(path, deflate=True)
    return path


def write_long_sheet(path: Path, rows: int) -> Path:
    """An XLSX written by hand, since a million cells take other libraries minutes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as container:
        for name, text in _WORKBOOK.items():
            container.writestr(name, text)
        with container.open("xl/worksheets/sheet1.xml", "w") as stream:
            stream.write(_SHEET_HEAD)
            for row in range(1, rows + 1):
                stream.write(
                    f'<row r="{row}"><c r="A{row}"><v>{row}</v></c><c r="B{row}"><v>{row % 97}</v>'
                    f'</c><c r="C{row}" t="inlineStr"><is><t>pin {row}</t></is></c></row>'.encode()
                )
            stream.write(b"</sheetData></worksheet>")
    return path


_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_SHEET_HEAD = f'{_XML}<worksheet xmlns="{_MAIN}"><sheetData>'.encode()
_WORKBOOK = {
    "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
    f'Type="{_RELATION}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'{_XML}<workbook xmlns="{_MAIN}" xmlns:r="{_RELATION}"><sheets>'
    '<sheet name="Pins" sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{_RELATION}/worksheet" Target="worksheets/sheet1.xml"/>'
    "</Relationships>",
}

if __name__ == "__main__":
    sys.exit(main())
