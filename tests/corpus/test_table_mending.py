"""Spans, columns and wrapped rows that a detector missed: the table as its page shows it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import table_views
from corpus.parsed import Box, ParsedCell, ParseOptions
from corpus.parsers import pdf
from corpus.parsers.table_grid import Rule, Word
from corpus.parsers.table_mending import clean_text, mend

WIDTH, HEIGHT = 100.0, 20.0


def grid(rows: list[list[str]], n_header: int = 1) -> tuple[list[ParsedCell], list[Word]]:
    """Cells of 100 x 20 pt with their words centred in them, six points to the letter."""
    cells: list[ParsedCell] = []
    words: list[Word] = []
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            box = Box(WIDTH * c, HEIGHT * r, WIDTH * (c + 1), HEIGHT * (r + 1))
            cells.append(ParsedCell(r, c, text, is_header=r < n_header, bbox_pt=box))
            words += line(text, (box.x0 + box.x1) / 2, box.y0 + 5)
    return cells, words


def line(text: str, middle: float, y: float) -> list[Word]:
    x = middle - 3 * len(text)
    words = []
    for word in text.split():
        x0 = x + 6 * text.index(word)
        words.append(Word(word, Box(x0, y, x0 + 6 * len(word), y + 10)))
    return words


def spans(cells: tuple[ParsedCell, ...]) -> dict[str, tuple[int, int, int, int]]:
    return {c.text: (c.row, c.col, c.row_span, c.col_span) for c in cells if c.text}


def test_a_rule_below_a_name_says_which_columns_it_heads() -> None:
    cells, words = grid(
        [["", "Limits", "", ""], ["Pin", "Min", "Max", "Unit"], ["VDD", "1.7", "3.6", "V"]], 2
    )
    rules = [Rule(0, 400, 0), Rule(105, 295, 19), Rule(0, 400, 39), Rule(0, 400, 60)]
    found = spans(mend(cells, words, rules))
    assert found["Limits"] == (0, 1, 1, 2)
    assert found["Pin"] == (0, 0, 2, 1)
    assert found["Unit"] == (0, 3, 2, 1)


def test_a_rule_below_several_names_tells_nothing_of_one() -> None:
    rows = [["", "Male", "", "Female", ""], ["Age", "A", "B", "A", "B"], ["1", "2", "3", "4", "5"]]
    cells, words = grid(rows, 2)
    words = [word for word in words if word.text not in ("Male", "Female")]
    words += line("Male", 200, 5) + line("Female", 400, 5)
    cells[1] = ParsedCell(0, 1, "Male", is_header=True, bbox_pt=Box(100, 0, 215, 20))
    cells[3] = ParsedCell(0, 3, "Female", is_header=True, bbox_pt=Box(300, 0, 420, 20))
    cells[2] = ParsedCell(0, 2, "", is_header=True, bbox_pt=Box(215, 0, 300, 20))
    cells[4] = ParsedCell(0, 4, "", is_header=True, bbox_pt=Box(420, 0, 500, 20))
    found = spans(mend(cells, words, [Rule(0, 500, 0), Rule(110, 490, 19), Rule(0, 500, 39)]))
    assert found["Male"] == (0, 1, 1, 2)
    assert found["Female"] == (0, 3, 1, 2)


def test_a_name_in_the_middle_of_columns_heads_them_without_a_rule() -> None:
    rows = [["", "", "", ""], ["Pin", "Min", "Max", "Unit"], ["VDD", "1.7", "3.6", "V"]]
    cells, words = grid(rows, 2)
    words += line("Limits", 200, 5)
    cells[1] = ParsedCell(0, 1, "Limits", is_header=True, bbox_pt=Box(100, 0, 210, 20))
    cells[2] = ParsedCell(0, 2, "", is_header=True, bbox_pt=Box(210, 0, 300, 20))
    assert spans(mend(cells, words, []))["Limits"] == (0, 1, 1, 2)


def test_two_columns_of_numbers_read_as_one_are_told_apart() -> None:
    cells, words = grid(
        [["Age", "Men Women"]] + [[str(age), f"{age}1 {age}22"] for age in range(10, 16)]
    )
    found = table_views.grid(mend(cells, words, []))
    assert [cell.text if cell else "" for cell in found[3]] == ["12", "121", "1222"]


def test_a_value_with_its_share_in_brackets_stays_one() -> None:
    cells, words = grid(
        [["Age", "Men"]] + [[str(age), f"{age}1 ({age}%)"] for age in range(10, 16)]
    )
    assert table_views.shape(mend(cells, words, [])).n_cols == 2


def test_wrapped_lines_become_one_row() -> None:
    rows = [
        ["Name", "Meaning", "Use"],
        ["Mode", "selects the", "always"],
        ["", "clock source", ""],
        ["Gate", "opens the path", "rarely"],
    ]
    cells, words = grid(rows)
    words = [
        word._replace(box=word.box._replace(y0=word.box.y0 - 6, y1=word.box.y1 - 6))
        if word.text in ("clock", "source")
        else word
        for word in words
    ]
    found = mend(cells, words, [])
    assert table_views.shape(found).n_rows == 3
    assert "selects the clock source" in spans(found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.text("abcXYZ019 ", max_size=9).map(str.strip), min_size=3, max_size=3),
        min_size=2,
        max_size=8,
    ),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 160)), max_size=6),
)
def test_no_word_is_lost_and_no_place_is_taken_twice(
    rows: list[list[str]], drawn: list[tuple[int, int, int]]
) -> None:
    cells, words = grid(rows)
    found = mend(cells, words, [Rule(min(a, b), max(a, b), y) for a, b, y in drawn])
    assert sorted("".join(c.text for c in found)) == sorted("".join("".join(r) for r in rows))
    taken = [
        (row, col)
        for cell in found
        for row in range(cell.row, cell.row + cell.row_span)
        for col in range(cell.col, cell.col + cell.col_span)
    ]
    assert len(taken) == len(set(taken))


def test_leader_dots_and_ligatures_are_no_text() -> None:
    assert clean_text("0.99 . . . . . . .") == "0.99"
    assert clean_text("Paciﬁc ........") == "Pacific"
    assert clean_text("etc.") == "etc."


def squeeze(text: str) -> str:
    return "".join(text.split()).lower()


@pytest.mark.parametrize(("name", "least"), [("us-018", 22), ("us-017", 18), ("us-001", 11)])
def test_spans_of_the_icdar_competition(shared_data: Path, name: str, least: int) -> None:
    """The plain detector finds 4, 0 and 4 of the 25, 20 and 13 spanning cells."""
    folder = shared_data / "tables/icdar2013"
    truth = json.loads((folder / f"{name}.expected.json").read_text())
    wanted = [
        (squeeze(cell["text"]), cell["rowspan"], cell["colspan"])
        for table in truth["tables"]
        for region in table["regions"]
        for cell in region["cells"]
        if cell["rowspan"] > 1 or cell["colspan"] > 1
    ]
    for element in pdf.parse(folder / f"{name}.pdf", ParseOptions(page_dpi=36)).elements:
        for cell in element.table.cells if element.table else ():
            key = (squeeze(cell.text), cell.row_span, cell.col_span)
            if key in wanted:
                wanted.remove(key)
                least -= 1
    assert least <= 0


def test_a_list_of_names_and_prices_without_rules_is_found(shared_data: Path) -> None:
    """Two columns are little evidence; the layout model must run on the page all the same."""
    path = shared_data / "tables/camelot/detect_vertical_false.pdf"
    document = pdf.parse(path, ParseOptions(page_dpi=36))
    texts = {squeeze(c.text) for e in document.elements if e.table for c in e.table.cells}
    assert {"8€", "10€", "13€"} <= texts


def test_spanning_cells_of_tabula(shared_data: Path) -> None:
    folder = shared_data / "tables/tabula"
    with (folder / "spanning_cells.csv").open() as file:
        wanted = {squeeze(text) for row in csv.reader(file) for text in row if text.strip()}
    document = pdf.parse(folder / "spanning_cells.pdf", ParseOptions(page_dpi=36))
    found = {squeeze(cell.text) for e in document.elements if e.table for cell in e.table.cells}
    assert len(wanted & found) >= 0.9 * len(wanted)
