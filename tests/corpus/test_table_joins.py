"""A table that goes on over a page break becomes one table; neighbours that are two stay two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import table_views
from corpus.chunks import ChunkLimits, chunk
from corpus.parsed import Box, ParsedCell, ParsedDocument, ParsedTable, ParseOptions
from corpus.parsers import pdf
from corpus.parsers.table_joins import TablePart, is_continuation, join_parts
from corpus.rows import build_rows

HEADER = ("Name", "Offset", "Meaning")


def part(
    page: int,
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
    caption: str = "",
    shift: float = 0.0,
    at_top: bool = True,
    at_bottom: bool = True,
) -> TablePart:
    """A ruled table that fills its page; the first of `rows` is its header if `header`."""
    step = 600.0 / len(rows)
    cells = tuple(
        ParsedCell(
            r,
            c,
            text,
            is_header=header and r == 0,
            bbox_pt=Box(
                72 + shift + 150 * c, 80 + step * r, 222 + shift + 150 * c, 80 + step * (r + 1)
            ),
        )
        for r, row in enumerate(rows)
        for c, text in enumerate(row)
    )
    width = max(len(row) for row in rows)
    return TablePart(
        page=page,
        height_pt=842.0,
        box=Box(72 + shift, 80, 72 + shift + 150 * width, 680),
        cells=cells,
        caption=caption,
        at_top=at_top,
        at_bottom=at_bottom,
        bold_rows=frozenset({0} if header else ()),
    )


def texts(cells: Sequence[ParsedCell]) -> list[list[str]]:
    return [[cell.text if cell else "" for cell in row] for row in table_views.grid(cells)]


words = st.text("abcdefgh", min_size=1, max_size=8).map(str.title)
body = st.lists(st.tuples(words, st.integers(0, 99).map(str), words), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(body, st.data(), st.booleans(), st.sampled_from([0.0, 25.0, -40.0]))
def test_a_table_cut_anywhere_is_whole_again(
    rows: list[tuple[str, str, str]], data: st.DataObject, repeats: bool, shift: float
) -> None:
    cut = data.draw(st.integers(1, len(rows) - 1))
    first = part(4, [HEADER, *rows[:cut]], caption="Table 3: Registers")
    rest = [HEADER, *rows[cut:]] if repeats else rows[cut:]
    second = part(5, rest, header=repeats, shift=shift)
    (table,) = join_parts([first, second])
    assert texts(table.cells) == [list(row) for row in (HEADER, *rows)]
    assert table.pages == (4, 5)
    assert table.caption == "Table 3: Registers"
    pages = [4] * (1 + cut) + [5] * (len(rows) - cut)
    assert [c.page for c in sorted(table.cells, key=lambda c: (c.row, c.col))] == [
        page for page in pages for _ in HEADER
    ]
    assert {cell.row for cell in table.cells if cell.is_header} == {0}


@settings(max_examples=60, deadline=None)
@given(st.lists(body, min_size=1, max_size=5), st.data())
def test_every_part_is_in_one_table_with_all_its_text(
    tables: list[list[tuple[str, str, str]]], data: st.DataObject
) -> None:
    parts = [
        part(
            page,
            [HEADER, *rows],
            caption=data.draw(st.sampled_from(["", "Table 1: A", "Table 2: B (continued)"])),
            at_top=data.draw(st.booleans()),
            at_bottom=data.draw(st.booleans()),
        )
        for page, rows in enumerate(tables, 1)
    ]
    joined = join_parts(parts)
    assert [n for table in joined for n in table.parts] == list(range(len(parts)))
    found = [text for table in joined for row in texts(table.cells)[1:] for text in row]
    assert found == [text for rows in tables for row in rows for text in row]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=2, max_size=5))
def test_columns_that_are_empty_on_some_page_cost_no_text(widths: list[list[int]]) -> None:
    """`widths`: how many leading columns each row of each page fills."""
    parts = [
        part(
            page,
            [[f"{page}.{row}.{col}" for col in range(n)] for row, n in enumerate(rows)],
            header=False,
            caption="Table 1: A" if page == 1 else "Table 1: A (continued)",
        )
        for page, rows in enumerate(widths, 1)
    ]
    joined = join_parts(parts)
    assert [n for table in joined for n in table.parts] == list(range(len(parts)))
    kept = sorted(cell.text for table in joined for cell in table.cells if cell.text)
    assert kept == sorted(cell.text for one in parts for cell in one.cells)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"caption": "Table 3: Registers"}, {"caption": "Table 4: Registers"}),
        ({"at_bottom": False}, {}),
        ({}, {"at_top": False}),
        ({}, {"caption": "Table 4: Registers"}),
    ],
)
def test_two_tables_stay_two(first: dict[str, object], second: dict[str, object]) -> None:
    rows = [HEADER, ("Ctrl", "0", "Control"), ("Stat", "4", "Status")]
    found = join_parts([part(1, rows, **first), part(2, rows, **second)])  # type: ignore[arg-type]
    assert [table.pages for table in found] == [(1,), (2,)]


def test_a_page_between_parts_them() -> None:
    rows = [HEADER, ("Ctrl", "0", "Control"), ("Stat", "4", "Status")]
    assert len(join_parts([part(1, rows), part(3, rows)])) == 2


def test_another_header_is_another_table() -> None:
    first = part(1, [HEADER, ("Ctrl", "0", "Control"), ("Stat", "4", "Status")])
    second = part(2, [("Pin", "Side", "Drive"), ("Rst", "2", "Weak")])
    assert len(join_parts([first, second])) == 2


@pytest.mark.parametrize("caption", ["Table 3 (continued)", "Table 3 – cont’d", "表 3（续）"])
def test_a_caption_says_that_the_table_goes_on(caption: str) -> None:
    assert is_continuation(caption)
    first = part(1, [HEADER, ("Ctrl", "0", "Control")], caption="Table 3: Registers")
    second = part(2, [HEADER, ("Stat", "4", "Status")], caption=caption)
    (table,) = join_parts([first, second])
    assert table.caption == "Table 3: Registers"


def test_a_row_cut_by_the_break_is_mended_only_in_mid_sentence() -> None:
    first = part(1, [HEADER, ("Ctrl", "0", "Starts the engine and")])
    second = part(2, [HEADER, ("", "", "clears its state."), ("Stat", "4", "Status")])
    (table,) = join_parts([first, second])
    assert texts(table.cells)[1][2] == "Starts the engine and clears its state."
    whole = part(1, [HEADER, ("Ctrl", "0", "Starts the engine.")])
    grouped = part(2, [HEADER, ("", "", "Reserved"), ("Stat", "4", "Status")])
    (kept,) = join_parts([whole, grouped])
    assert texts(kept.cells)[2] == ["", "", "Reserved"]


def parse_pages(source: Path, pages: Sequence[int], folder: Path) -> ParsedDocument:
    """The given pages as a document of their own."""
    with pymupdf.open(source) as document:
        document.select([page - 1 for page in pages])
        document.save(folder / "pages.pdf")
    return pdf.parse(folder / "pages.pdf", ParseOptions(page_dpi=36))


def tables_of(document: ParsedDocument) -> list[ParsedTable]:
    return [element.table for element in document.elements if element.table]


def test_registers_of_a_manual_that_go_on_overleaf(shared_data: Path, tmp_path: Path) -> None:
    manual = shared_data / "corpus/semiconductor/Cores-VeeR-EH1__RISC-V_VeeR_EH1_PRM.pdf"
    document = parse_pages(manual, [102, 103, 104, 105], tmp_path)
    over = [table for table in tables_of(document) if len(table.pages) > 1]
    assert [table.pages for table in over] == [(1, 2, 3), (3, 4)]
    table = over[0]
    names = [row[0] for row in texts(table.cells)]
    assert names.count("Field") == 1 and {"maskmax", "select", "sizelo", "execute", "load"} <= {
        name.split()[0] for name in names if name
    }
    on_page = {
        cell.text.split()[0]: cell.page for cell in table.cells if cell.text and cell.col == 0
    }
    assert (on_page["maskmax"], on_page["sizelo"], on_page["execute"]) == (1, 2, 3)
    rows = build_rows("d" * 64, document, size_bytes=1)
    row = next(row for row in rows.tables if row["pages"] == [1, 2, 3])
    assert {cell["page"] for cell in row["cells"]} == {1, 2, 3}
    assert row["page"] == 1
    pieces = [c for c in chunk(rows, ChunkLimits(400)) if row["element_id"] in c["element_ids"]]
    assert pieces and all(piece["pages"] == [1, 2, 3] for piece in pieces)


def test_tables_with_one_header_on_facing_pages_stay_apart(
    shared_data: Path, tmp_path: Path
) -> None:
    manual = shared_data / "corpus/energy/matpower__MATPOWER-manual.pdf"
    tables = tables_of(parse_pages(manual, [143, 144, 145], tmp_path))
    captions = [table.caption.split(":")[0] for table in tables]
    assert captions == ["Table B-1", "Table B-2", "Table B-3"]
    assert all(len(table.pages) == 1 for table in tables)
