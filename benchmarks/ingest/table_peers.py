"""Other tools that read tables from PDFs, each as `read(paths) -> tables by path`.

pdfplumber, camelot (hybrid), opendataloader-pdf (needs a Java runtime) and PyMuPDF's own search
with grid refinement, which ours builds on. `available` leaves out what is not installed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.ingest.table_scoring import Cell

Tables = dict[Path, list[list[Cell]]]
Reader = Callable[[Sequence[Path]], Tables]


def available(report_missing: Callable[[str], None]) -> dict[str, Reader]:
    """Readers by name and version."""
    found: dict[str, Reader] = {}
    for package, label, read in _READERS:
        try:
            number = version(package)
        except PackageNotFoundError:
            report_missing(f"{package} is not installed")
            continue
        if package == "opendataloader-pdf" and not shutil.which("java"):
            report_missing(f"{package} needs a Java runtime, and there is none")
            continue
        found[f"{label} {number}"] = read
    return found


def read_pdfplumber(paths: Sequence[Path]) -> Tables:
    import pdfplumber

    found: Tables = {}
    for path in paths:
        with pdfplumber.open(path) as document:
            grids = [table for page in document.pages for table in page.extract_tables()]
        found[path] = [_from_rows(rows) for rows in grids]
    return found


def read_camelot(paths: Sequence[Path]) -> Tables:
    import camelot

    found: Tables = {}
    for path in paths:
        tables = camelot.read_pdf(str(path), pages="all", flavor="hybrid", suppress_stdout=True)
        found[path] = [_from_rows(table.df.values.tolist()) for table in tables]
    return found


def read_opendataloader(paths: Sequence[Path]) -> Tables:
    import opendataloader_pdf

    found: Tables = {}
    with tempfile.TemporaryDirectory() as folder:
        opendataloader_pdf.convert(
            [str(path) for path in paths],
            output_dir=folder,
            format="json",
            quiet=True,
            image_output="off",
        )
        for path in paths:
            content = json.loads((Path(folder) / f"{path.stem}.json").read_text(encoding="utf-8"))
            found[path] = [_from_json(table) for table in _nodes(content, "table")]
    return found


def read_pymupdf(paths: Sequence[Path]) -> Tables:
    from corpus.parsers.pdf_pymupdf import load

    pymupdf = load()
    found: Tables = {}
    for path in paths:
        with pymupdf.open(path) as document:
            finders = [page.find_tables(union=True, refine=True) for page in document]
            found[path] = [
                _from_placements(table.placements)
                for finder in finders
                for table in (finder.tables if finder else ())
                if table.placements
            ]
    return found


def _from_rows(rows: Sequence[Sequence[str | None]]) -> list[Cell]:
    return [
        Cell(r, c, 1, 1, text or "") for r, row in enumerate(rows) for c, text in enumerate(row)
    ]


def _from_placements(rows: Sequence[Sequence[Any]]) -> list[Cell]:
    cells: list[Cell] = []
    taken: set[tuple[int, int]] = set()
    for row, placed in enumerate(rows):
        col = 0
        for cell in placed:
            while (row, col) in taken:
                col += 1
            cells.append(Cell(row, col, cell.rowspan, cell.colspan, cell.text))
            taken.update(
                (row + r, col + c) for r in range(cell.rowspan) for c in range(cell.colspan)
            )
    return cells


def _nodes(value: Any, kind: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == kind:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _nodes(item, kind)


def _from_json(table: dict[str, Any]) -> list[Cell]:
    return [
        Cell(
            cell["row number"] - 1,
            cell["column number"] - 1,
            cell["row span"],
            cell["column span"],
            " ".join(_texts(cell.get("kids", []))),
        )
        for row in table["rows"]
        for cell in row["cells"]
    ]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("content"), str):
            yield value["content"]
        value = [item for item in value.values() if isinstance(item, list)]
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)


_READERS: Final = (
    ("pdfplumber", "pdfplumber", read_pdfplumber),
    ("camelot-py", "camelot hybrid", read_camelot),
    ("opendataloader-pdf", "opendataloader-pdf", read_opendataloader),
    ("pymupdf", "PyMuPDF union+refine", read_pymupdf),
)
