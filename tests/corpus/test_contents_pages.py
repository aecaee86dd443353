"""Tables of contents are neither headings nor tables nor prose; tables that look like them are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymupdf
import pytest
from ingest_runs import rows, run_ingest

from corpus.parsed import CONTENTS, ParsedDocument, ParseOptions
from corpus.parsers import pdf
from corpus.rows import in_flow

ENTRIES = [(f"{n}.{m} Working with part {n}{m}", 3 + 4 * n + m) for n in (1, 2, 3) for m in (1, 2)]


def write_manual(path: Path, title: str, leader: str) -> Path:
    """A title page, a page of contents, and the chapters that it names."""
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 200), "Manual of the controller", fontsize=24)
        page = document.new_page()
        page.insert_text((72, 90), title, fontname="hebo", fontsize=18)
        for number, (name, at) in enumerate(ENTRIES):
            y = 130 + 20 * number
            page.insert_text((72, y), name, fontname="hebo", fontsize=11)
            page.insert_text((330, y), leader * 20, fontsize=11)
            page.insert_text((500, y), str(at), fontname="hebo", fontsize=11)
        for name, _ in ENTRIES:
            page = document.new_page()
            page.insert_text((72, 180), name, fontname="hebo", fontsize=16)
            text = f"The section about {name} tells how the controller keeps its state. " * 12
            page.insert_textbox(pymupdf.Rect(72, 210, 520, 600), text, fontsize=11)
        document.save(path)
    return path


def read(path: Path) -> ParsedDocument:
    return pdf.parse(path, ParseOptions(table_detection="full"))


@pytest.mark.parametrize(
    ("title", "leader"), [("Contents", ""), ("Table of Contents", " ."), ("What is where", " .")]
)
def test_entries_are_neither_headings_nor_tables(tmp_path: Path, title: str, leader: str) -> None:
    document = read(write_manual(tmp_path / "m.pdf", title, leader))
    entries = [e for e in document.elements if e.metadata.get("role") == CONTENTS]
    assert {e.page for e in entries} == {2}
    assert [page.page for page in document.pages if CONTENTS in page.flags] == [2]
    titles = [e.text for e in document.elements if e.category == "Title"]
    assert [t for t in titles if t[0].isdigit()] == [name for name, _ in ENTRIES]
    assert not [e for e in document.elements if e.table]


def test_entries_reach_no_chunk_and_no_summary(tmp_path: Path) -> None:
    run_ingest(tmp_path / "w", write_manual(tmp_path / "m.pdf", "Contents", " ."))
    out = {row["element_id"] for row in rows(tmp_path / "w", "elements") if not in_flow(row)}
    assert out
    used: set[Any] = set()
    for table, column in (("chunks", "element_ids"), ("summaries", "source_element_ids")):
        used |= {id for row in rows(tmp_path / "w", table) for id in row[column]}
    assert used and not used & out


def test_rows_of_rising_numbers_are_no_contents(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 90), "Load against time", fontname="hebo", fontsize=16)
        for n in range(12):
            page.insert_text((72, 130 + 20 * n), f"step {n}", fontsize=11)
            page.insert_text((300, 130 + 20 * n), str(10 * n), fontsize=11)
        document.save(tmp_path / "load.pdf")
    assert not [p for p in read(tmp_path / "load.pdf").pages if CONTENTS in p.flags]


# Looked up in each file: the pages with contents, or lists of figures and tables.
CONTENTS_PAGES = {
    "black-parrot__bedrock_protocol_specification.pdf": {1, 2, 3},
    "ethmac__eth_speci.pdf": {5, 6, 7, 8, 9},
    "pulpino__datasheet.pdf": {2, 3},
}


@pytest.mark.parametrize("name", CONTENTS_PAGES)
def test_contents_of_real_manuals(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "front.pdf"
    with pymupdf.open(shared_data / "corpus/semiconductor" / name) as document:
        document.select(range(min(12, len(document))))
        document.save(path)
    read_pages = pdf.parse(path, ParseOptions(table_detection="fast", page_dpi=36)).pages
    assert {p.page for p in read_pages if CONTENTS in p.flags} == CONTENTS_PAGES[name]


def test_a_title_over_the_contents_stays(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "front.pdf"
    name = "black-parrot__bedrock_protocol_specification.pdf"
    with pymupdf.open(shared_data / "corpus/semiconductor" / name) as document:
        document.select([0])
        document.save(path)
    found = pdf.parse(path, ParseOptions(table_detection="fast", page_dpi=36)).elements
    assert found[0].category == "Title" and "BedRock Cache Coherence" in found[0].text
