"""Ingestion of real documents with known answers: broken files, and tables of ICDAR-2013."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from ingest_runs import reasons, rows, run_ingest

from corpus.parsed import ParseOptions
from corpus.parsers import pdf
from corpus.parsers.registry import WHOLE

Cell = tuple[int, int, int, int, str]


@pytest.mark.parametrize("format_name", sorted(WHOLE))
def test_the_registry_names_parsers_that_exist(format_name: str) -> None:
    module = importlib.import_module(f"corpus.parsers.{WHOLE[format_name]}")
    assert callable(module.FORMATS[format_name])


def test_broken_and_hostile_pdfs_all_end_in_a_record(shared_data: Path, tmp_path: Path) -> None:
    folders = [shared_data / "nasty" / name for name in ("corrupt", "encrypted", "bombs_huge")]
    manifest = run_ingest(tmp_path, *folders, exclude=["*.docx", "*.xlsx"], page_timeout_s=30)
    given = {
        str(path)
        for folder in folders
        for path in folder.iterdir()
        if path.suffix not in (".docx", ".xlsx")
    }
    kept = {uri for row in rows(tmp_path, "documents") for uri in row["uris"]}
    whole = {row["uri"] for row in rows(tmp_path, "quarantine") if row["page"] == 0}
    assert kept | whole == given and not kept & whole
    assert manifest.counts_in["files"] == len(given)
    found = reasons(tmp_path)
    locked = {Path(uri).name for uri in given if "user-password" in uri}
    assert {found[name] for name in locked} == {"encrypted"}
    # An owner's password forbids printing, not reading.
    assert "pypdf__r4-owner-password.pdf" not in found
    assert found["opendataloader-pdf__empty.pdf"] == "empty"
    assert found["opendataloader-pdf__note.png"] == "corrupt"


def relations(cells: Iterable[Cell]) -> Counter[tuple[str, str, str]]:
    """Neighbours in a table: each filled cell with the next one to the right and below.

    The measure of the ICDAR-2013 competition; empty cells are looked through.
    """
    grid: dict[tuple[int, int], Cell] = {}
    for cell in cells:
        for row in range(cell[0], cell[0] + cell[2]):
            for col in range(cell[1], cell[1] + cell[3]):
                grid[row, col] = cell
    height = max((row for row, _ in grid), default=-1) + 1
    width = max((col for _, col in grid), default=-1) + 1
    pairs = {
        (cell, other, direction)
        for (row, col), cell in grid.items()
        for direction, path in (
            ("right", [(row, c) for c in range(col + 1, width)]),
            ("below", [(r, col) for r in range(row + 1, height)]),
        )
        if squeeze(cell[4])
        for other in [next((grid[p] for p in path if filled(grid, p, cell)), None)]
        if other is not None
    }
    return Counter((squeeze(a[4]), squeeze(b[4]), direction) for a, b, direction in pairs)


def filled(grid: dict[tuple[int, int], Cell], place: tuple[int, int], cell: Cell) -> bool:
    return place in grid and grid[place] != cell and bool(squeeze(grid[place][4]))


def squeeze(text: str) -> str:
    return "".join(text.split()).lower()


@pytest.mark.parametrize("name", ["eu-001", "eu-002", "eu-009a", "eu-017", "us-026"])
def test_tables_of_the_icdar_competition(shared_data: Path, name: str) -> None:
    folder = shared_data / "tables/icdar2013"
    expected = json.loads((folder / f"{name}.expected.json").read_text())
    wanted: Counter[tuple[str, str, str]] = Counter()
    for table in expected["tables"]:
        for region in table["regions"]:
            wanted += relations(
                (c["row"], c["col"], c["rowspan"], c["colspan"], c["text"]) for c in region["cells"]
            )
    found: Counter[tuple[str, str, str]] = Counter()
    for element in pdf.parse(folder / f"{name}.pdf", ParseOptions()).elements:
        if element.table:
            found += relations(
                (c.row, c.col, c.row_span, c.col_span, c.text) for c in element.table.cells
            )
    hits = (wanted & found).total()
    f1 = 2 * hits / (wanted.total() + found.total())
    assert f1 >= 0.97
