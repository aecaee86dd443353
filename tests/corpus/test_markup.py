"""HTML and Markdown documents."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import lxml.html
import pytest
from corpus_samples import picture
from hypothesis import given
from hypothesis import strategies as st

from corpus import table_views
from corpus.parsed import ParsedCell, ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.html_tables import read_table
from corpus.parsers.markup import parse_html, parse_markdown

OPTIONS = ParseOptions()


def html(tmp_path: Path, body: str) -> ParsedDocument:
    path = tmp_path / "page.html"
    path.write_text(f"<html lang='en-GB'><title>T</title><body>{body}", encoding="utf-8")
    return parse_html(path, OPTIONS)


def cells_of(markup: str) -> tuple[ParsedCell, ...]:
    table = lxml.html.fragment_fromstring(markup)
    return read_table(table, max_rows=1000).cells


def test_reading_order_levels_and_spans(tmp_path: Path) -> None:
    document = html(
        tmp_path,
        "<h1>Manual</h1><p>The device has two ports and needs no clock.</p><h3>Ports</h3>"
        "<table><caption>Table 1: Ports</caption>"
        "<tr><th rowspan=2>Name<th colspan=2>Delay (ns)<tr><th>min<th>max"
        "<tr><td>A<td>1.5<td>2</table><ul><li>last point</ul><pre>x &lt;= y;\n  z</pre>",
    )
    assert [(e.category, e.level) for e in document.elements] == [
        ("Title", 1),
        ("NarrativeText", 0),
        ("Title", 3),
        ("Table", 0),
        ("ListItem", 0),
        ("CodeSnippet", 0),
    ]
    assert (document.title, document.language) == ("T", "en")
    assert document.elements[5].text == "x <= y;\n  z"
    table = document.elements[3].table
    assert table is not None
    assert table.caption == "Table 1: Ports"
    spans = {cell.text: (cell.row_span, cell.col_span) for cell in table.cells}
    assert spans["Name"] == (2, 1)
    assert spans["Delay (ns)"] == (1, 2)
    columns = table_views.typed_columns(table.cells)
    assert [(c.name, c.unit, c.values) for c in columns[1:]] == [
        ("Delay / min", "ns", (1.5,)),
        ("Delay / max", "ns", (2.0,)),
    ]


def test_embedded_pictures_stay_in_place_and_others_are_not_fetched(tmp_path: Path) -> None:
    data = picture()
    uri = "data:image/png;base64," + base64.b64encode(data).decode()
    document = html(
        tmp_path,
        f"<p>Before the figure there is some text to read.</p><figure><img src='{uri}'>"
        "<figcaption>Figure 1: A dot</figcaption></figure>"
        "<p>After the figure there is more text to read.</p><img src='http://x.example/a.png'>",
    )
    image = next(element for element in document.elements if element.image)
    assert image.image is not None
    assert (image.image.data, image.image.caption) == (data, "Figure 1: A dot")
    texts = [element.text for element in document.elements]
    assert texts.index("Figure 1: A dot") in (1, 2)
    assert texts[0].startswith("Before") and texts[-1].startswith("After")
    assert document.metadata["external_images"] == "1"


def test_layout_tables_are_read_as_text(tmp_path: Path) -> None:
    document = html(
        tmp_path,
        "<table><tr><td><p>The page is laid out with a table around all of its content.</p>"
        "<table><tr><th>a<th>b<tr><td>1<td>2</table></td></tr></table>",
    )
    assert [element.category for element in document.elements] == ["NarrativeText", "Table"]


def test_scripts_and_markup_do_not_become_text(tmp_path: Path) -> None:
    document = html(
        tmp_path,
        "<script>alert(1)</script><p>All that is &lt;b&gt;seen&lt;/b&gt; is kept here.</p>",
    )
    assert [element.text for element in document.elements] == [
        "All that is <b>seen</b> is kept here."
    ]


def test_a_page_without_text_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        html(tmp_path, "<script>document.write('x')</script>")
    assert caught.value.reason == "no_text"


def test_declared_charset_wins(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes("<meta charset=windows-1251><p>Привет, мир и все.</p>".encode("cp1251"))
    assert parse_html(path, OPTIONS).elements[0].text == "Привет, мир и все."


def test_markdown_tables_code_and_front_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(
        "---\nauthor: someone\n---\n# One\n\nThis file explains how the parts fit together.\n\n"
        "## Two\n\n| a | b_c |\n| - | --- |\n| 1 | `x\\|y` |\n\n```verilog\nmodule m;\n```\n",
        encoding="utf-8",
    )
    document = parse_markdown(path, OPTIONS)
    assert [(e.category, e.level) for e in document.elements] == [
        ("Title", 1),
        ("NarrativeText", 0),
        ("Title", 2),
        ("Table", 0),
        ("CodeSnippet", 0),
    ]
    assert document.metadata["front_matter"] == "author: someone"
    table = document.elements[3].table
    assert table is not None
    assert [cell.text for cell in table.cells] == ["a", "b_c", "1", "x|y"]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        # A span that reaches beyond the table ends with it.
        (
            "<table><tr><td rowspan=9>a<td>b<tr><td>c</table>",
            [(0, 0, 2, 1), (0, 1, 1, 1), (1, 1, 1, 1)],
        ),
        # Overlapping cells give way to the right, a span stops before a covered place.
        (
            "<table><tr><td>a<td rowspan=2>b<tr><td colspan=2>c<td>d</table>",
            [(0, 0, 1, 1), (0, 1, 2, 1), (1, 0, 1, 1), (1, 2, 1, 1)],
        ),
        # Nothing stands in the first row alone.
        (
            "<table><tr><td rowspan=2>a<tr><td>b<tr><td>c<td>d</table>",
            [(0, 0, 1, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)],
        ),
        ("<table><tr><td colspan=x rowspan=-1>a</table>", [(0, 0, 1, 1)]),
    ],
)
def test_span_rules(markup: str, expected: list[tuple[int, int, int, int]]) -> None:
    found = [(cell.row, cell.col, cell.row_span, cell.col_span) for cell in cells_of(markup)]
    assert found == expected


@st.composite
def markup_tables(draw: st.DrawFn) -> str:
    spans = st.sampled_from(
        ["", " rowspan=2", " rowspan=0", " colspan=3", " rowspan=70000 colspan=700"]
    )
    rows = draw(st.lists(st.lists(spans, max_size=4), max_size=5))
    body = "".join("<tr>" + "".join(f"<td{span}>x" for span in row) for row in rows)
    return f"<table>{body}</table>"


@given(markup_tables())
def test_cells_never_overlap_or_leave_the_table(markup: str) -> None:
    cells = cells_of(markup)
    n_rows = markup.count("<tr>")
    seen: set[tuple[int, int]] = set()
    for cell in cells:
        area = {
            (row, col)
            for row in range(cell.row, cell.row + cell.row_span)
            for col in range(cell.col, cell.col + cell.col_span)
        }
        assert not area & seen
        assert cell.row + cell.row_span <= n_rows
        seen |= area
    assert len(cells) == markup.count("<td") or "700" in markup


@given(markup_tables())
def test_our_own_html_is_read_back_as_the_same_cells(markup: str) -> None:
    cells = cells_of(markup)
    if cells:
        read = cells_of(table_views.html(cells))
        # Positions that no cell covered have an empty one now.
        assert {cell for cell in read if cell.text} == set(cells)


@pytest.mark.parametrize(
    "name", ["example_03", "example_05", "table_01", "table_02", "table_03", "table_04"]
)
def test_cells_agree_with_another_parser_on_real_pages(shared_data: Path, name: str) -> None:
    folder = shared_data / "tables" / "docling-office"
    truth = json.loads((folder / f"{name}.html.docling.json").read_text(encoding="utf-8"))
    document = parse_html(folder / f"{name}.html", OPTIONS)
    tables = [element.table for element in document.elements if element.table]
    expected = [
        {
            (c["start_row_offset_idx"], c["start_col_offset_idx"], c["row_span"], c["col_span"]):
            "".join(c["text"].split())
            for c in table["data"]["table_cells"]
        }
        for table in truth["tables"]
    ]  # fmt: skip
    found = [
        {(c.row, c.col, c.row_span, c.col_span): "".join(c.text.split()) for c in table.cells}
        for table in tables
    ]
    assert found == expected
