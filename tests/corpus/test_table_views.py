"""Tables as HTML, Markdown and typed columns; readers of both forms are independent libraries."""

from __future__ import annotations

import json
import math

import lxml.html
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from corpus.measures import parse_number, split_header
from corpus.parsed import ParsedCell
from corpus.table_views import body_rows, columns_json, grid, html, markdown, shape, typed_columns

DATASHEET = (
    ParsedCell(0, 0, "Parameter", row_span=2, is_header=True),
    ParsedCell(0, 1, "Limit (V)", col_span=2, is_header=True),
    ParsedCell(1, 1, "Min", is_header=True),
    ParsedCell(1, 2, "Max", is_header=True),
    ParsedCell(2, 0, "VDD"),
    ParsedCell(2, 1, "3.0"),
    ParsedCell(2, 2, "3.6"),
    ParsedCell(3, 0, "VIO"),
    ParsedCell(3, 1, "500 mV", col_span=2),
    ParsedCell(4, 0, "See note 2", col_span=3),
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("3.3 V", 3.3, "V"),
        ("500mV", 500, "mV"),
        ("1,024", 1024, ""),
        ("12 %", 12, "%"),
        ("1.2e-3", 0.0012, ""),
        ("2 × 10^6", 2e6, ""),
        ("−40 °C", -40, "°C"),
        ("$1,024.50", 1024.5, "$"),
        ("5 V/µs", 5, "V/µs"),
        (".5", 0.5, ""),
    ],
)
def test_a_plain_number_is_read_with_its_unit(text: str, value: float, unit: str) -> None:
    quantity = parse_number(text)
    assert quantity is not None
    assert (float(quantity.value), quantity.unit) == (value, unit)


@pytest.mark.parametrize(
    "text",
    [
        *("0x300", "8'h00", "007", "00", "1.2.3", "1–5", "1-5", "1 to 5", "±5", "< 5", "2D", "32b"),
        *("1F", "1,02", "5*", "1e999", "12345678901234567", "", "-", "V"),
    ],
)
def test_codes_ranges_and_bounds_are_not_numbers(text: str) -> None:
    assert parse_number(text) is None


def test_header_unit_is_taken_only_when_known() -> None:
    assert split_header("Delay [ns]") == ("Delay", "ns")
    assert split_header("Supply current (µA)") == ("Supply current", "µA")
    assert split_header("Size (see note)") == ("Size (see note)", "")
    assert split_header("(ns)") == ("(ns)", "")


def test_spans_units_and_notes_of_a_datasheet_table() -> None:
    parameter, low, high = typed_columns(DATASHEET)
    assert parameter.values == ("VDD", "VIO", "See note 2")
    assert (low.name, low.kind, low.unit) == ("Limit / Min", "number", "V")
    assert low.values == (3.0, 0.5, None)
    assert high.values == (3.6, 0.5, None)
    assert body_rows(DATASHEET) == (2, 3, 4)
    assert shape(DATASHEET) == (5, 3)


def test_units_that_do_not_agree_make_the_column_text() -> None:
    cells = (ParsedCell(0, 0, "5 V"), ParsedCell(1, 0, "3 A"))
    assert typed_columns(cells)[0].kind == "text"
    bare = (ParsedCell(0, 0, "5 V"), ParsedCell(1, 0, "3"))
    assert typed_columns(bare)[0].kind == "text"
    zero = (ParsedCell(0, 0, "5 V"), ParsedCell(1, 0, "0"), ParsedCell(2, 0, "—"))
    assert typed_columns(zero)[0].values == (5.0, 0.0, None)


def test_sub_headings_in_the_body_are_no_values() -> None:
    cells = (
        ParsedCell(0, 0, "Name", is_header=True),
        ParsedCell(1, 0, "1"),
        ParsedCell(2, 0, "Name", is_header=True),
        ParsedCell(3, 0, "2"),
    )
    assert typed_columns(cells)[0].values == (1.0, 2.0)
    assert body_rows(cells) == (1, 3)


def test_an_empty_table_has_empty_views() -> None:
    assert typed_columns(()) == ()
    assert columns_json(()) == "[]"
    assert markdown(()) == ""
    assert html(()) == "<table><tbody></tbody></table>"


TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
    st.text("|\\*_`[](){}<>!&;~#+-.:0a ", max_size=14),
    st.sampled_from(["3.3 V", "[7:0]", "a_b_c", "<b>x</b>", "&lt;", "**x**", "_x_", "\\|", "`a`"]),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[ParsedCell, ...]:
    """A grid with random spans that never overlap, and a few header rows."""
    n_rows, n_cols = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    n_header = draw(st.integers(0, 2))
    taken: set[tuple[int, int]] = set()
    cells = []
    for row in range(n_rows):
        for col in range(n_cols):
            if (row, col) in taken:
                continue
            row_span = draw(st.integers(1, n_rows - row))
            col_span = draw(st.integers(1, n_cols - col))
            area = {(row + i, col + j) for i in range(row_span) for j in range(col_span)}
            if area & taken:
                row_span = col_span = 1
                area = {(row, col)}
            taken |= area
            cells.append(ParsedCell(row, col, draw(TEXTS), row_span, col_span, row < n_header))
    return tuple(cells)


@given(tables())
def test_html_read_back_by_lxml_has_the_same_cells(cells: tuple[ParsedCell, ...]) -> None:
    rows = lxml.html.fragment_fromstring(html(cells)).findall(".//tr")
    assert len(rows) == shape(cells).n_rows
    read = [
        (i, cell.tag == "th", int(cell.get("rowspan", 1)), int(cell.get("colspan", 1)), cell.text)
        for i, row in enumerate(rows)
        for cell in row
    ]
    assert read == [
        (cell.row, cell.is_header, cell.row_span, cell.col_span, cell.text.strip() or None)
        for cell in cells
    ]


@given(tables())
def test_markdown_rendered_by_another_library_shows_the_same_text(
    cells: tuple[ParsedCell, ...],
) -> None:
    page = lxml.html.fromstring(MarkdownIt("commonmark").enable("table").render(markdown(cells)))
    shown = [[cell.text_content() for cell in row] for row in page.iter("tr")]
    n_rows, n_cols = shape(cells)
    body = body_rows(cells)
    expected = [[""] * n_cols for _ in range(n_rows)]
    for cell in cells:
        expected[cell.row][cell.col] = " ".join(cell.text.split())
    first_body = body[0] if body else n_rows
    assert shown[1:] == expected[first_body:]


@given(tables())
def test_typed_columns_are_finite_and_aligned(cells: tuple[ParsedCell, ...]) -> None:
    columns = typed_columns(cells)
    body = body_rows(cells)
    positions = grid(cells)
    assert len(columns) == shape(cells).n_cols
    assert len(json.loads(columns_json(cells))) == len(columns)
    for index, column in enumerate(columns):
        assert len(column.values) == len(body)
        for row, value in zip(body, column.values, strict=True):
            cell = positions[row][index]
            if column.kind == "number":
                assert value is None or (isinstance(value, float) and math.isfinite(value))
            elif cell is not None and cell.col == index:
                assert value == cell.text.strip()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_is_read_back(value: float) -> None:
    quantity = parse_number(repr(value))
    assert quantity is None or float(quantity.value) == value
    assert quantity is not None or len(repr(value)) > 15 or value == 0
