"""XLSX, XLS and delimited text."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from pathlib import Path

import openpyxl
import pytest
from corpus_samples import picture
from openpyxl.drawing.image import Image
from openpyxl.styles.numbers import FORMAT_PERCENTAGE_00

from corpus.parsed import ParsedDocument, ParsedTable, ParseOptions
from corpus.parsers.delimited import FORMATS as DELIMITED
from corpus.parsers.legacy_office import parse_xls
from corpus.parsers.spreadsheet import parse_xlsx

OPTIONS = ParseOptions()


def tables(document: ParsedDocument) -> list[ParsedTable]:
    return [element.table for element in document.elements if element.table]


def places(table: ParsedTable) -> dict[tuple[int, int, int, int], str]:
    return {(c.row, c.col, c.row_span, c.col_span): "".join(c.text.split()) for c in table.cells}


def test_titles_tables_merges_values_and_pictures(tmp_path: Path) -> None:
    data = picture()
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Results"
    sheet.append(["Yield of the first lots"])
    sheet.append(["Lot", "Yield", None, "Day"])
    sheet.merge_cells("B2:C2")
    sheet.append(["L1", 0.9312, 0.1 + 0.2, datetime.datetime(2025, 3, 1)])
    sheet.append(["L2", 1, True, datetime.datetime(2025, 3, 1, 8, 30)])
    sheet["B3"].number_format = FORMAT_PERCENTAGE_00
    sheet["G2"], sheet["H2"], sheet["G3"], sheet["H3"] = "Pin", "Net", 1, "CLK"
    sheet.add_image(Image(io.BytesIO(data)), "J9")
    book.create_sheet("Empty")
    path = tmp_path / "a.xlsx"
    book.save(path)

    parsed = parse_xlsx(path, OPTIONS)
    assert [(e.page, e.category) for e in parsed.elements] == [
        (1, "Title"),
        (1, "Title"),
        (1, "Table"),
        (1, "Table"),
        (1, "Image"),
        (2, "Title"),
    ]
    left, right = tables(parsed)
    assert left.caption == "Yield of the first lots"
    assert places(left) == {
        (0, 0, 1, 1): "Lot",
        (0, 1, 1, 2): "Yield",
        (0, 3, 1, 1): "Day",
        (1, 0, 1, 1): "L1",
        (1, 1, 1, 1): "93.12%",
        (1, 2, 1, 1): "0.3",
        (1, 3, 1, 1): "2025-03-01",
        (2, 0, 1, 1): "L2",
        (2, 1, 1, 1): "1",
        (2, 2, 1, 1): "TRUE",
        (2, 3, 1, 1): "2025-03-0108:30:00",
    }
    assert [cell.text for cell in right.cells] == ["Pin", "Net", "1", "CLK"]
    assert parsed.pages[1].flags == ()


def test_rows_beyond_the_cap_and_uncalculated_formulas_are_faults(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in range(30):
        sheet.append([row, row * 2])
    sheet["D1"] = "=SUM(A1:A30)"
    path = tmp_path / "a.xlsx"
    book.save(path)
    parsed = parse_xlsx(path, ParseOptions(max_table_rows=10))
    assert {fault.reason: fault.detail.split()[0] for fault in parsed.faults} == {
        "rows_dropped": "20",
        "formula_without_value": "1",
    }
    assert len(tables(parsed)[0].cells) == 20


def test_a_sheet_that_claims_a_million_rows_costs_little(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["a", "b"])
    sheet.append([1, 2])
    sheet.cell(1_048_576, 16_384, "far")
    path = tmp_path / "a.xlsx"
    book.save(path)
    parsed = parse_xlsx(path, OPTIONS)
    assert [len(table.cells) for table in tables(parsed)] == [4]
    assert parsed.elements[-1].text == "far"


@pytest.mark.parametrize("name", ["xlsx_emf", "xlsx_04_inflated"])
def test_tables_agree_with_another_parser_on_real_workbooks(shared_data: Path, name: str) -> None:
    folder = shared_data / "tables" / "docling-office"
    truth = json.loads((folder / f"{name}.xlsx.docling.json").read_text(encoding="utf-8"))
    found = [places(table) for table in tables(parse_xlsx(folder / f"{name}.xlsx", OPTIONS))]
    expected = [
        {
            (c["start_row_offset_idx"], c["start_col_offset_idx"], c["row_span"], c["col_span"]):
            "".join(c["text"].split())
            for c in table["data"]["table_cells"]
        }
        for table in truth["tables"]
        if table["data"]["num_cols"] > 1  # a column of its own is text to us
    ]  # fmt: skip
    assert found == expected


def test_a_chart_sheet_is_a_page(shared_data: Path) -> None:
    path = shared_data / "nasty" / "office_edge" / "docling__xlsx_03_chartsheet.xlsx"
    parsed = parse_xlsx(path, OPTIONS)
    assert (len(parsed.pages), parsed.metadata["charts"]) == (2, "1")


def test_xls_is_read(shared_data: Path) -> None:
    path = shared_data / "nasty" / "office_edge" / "docling__legacy_sample.xls"
    (table,) = tables(parse_xls(path, OPTIONS))
    assert table.caption == "Number of freshwater ducks per year"
    assert [cell.text for cell in table.cells if cell.row == 1] == ["2019", "120"]


@pytest.mark.parametrize(
    ("text", "kind", "rows"),
    [
        ("a,b\n1,\"x, y\"\n", "csv", [["a", "b"], ["1", "x, y"]]),
        ("a;b\n1,5;2\n3,5;4\n", "csv", [["a", "b"], ["1,5", "2"], ["3,5", "4"]]),
        ("a\tb\n1\t2\n", "tsv", [["a", "b"], ["1", "2"]]),
        ("only\none\ncolumn\n", "csv", [["only"], ["one"], ["column"]]),
        ("a,b\n1\n1,2,3\n", "csv", [["a", "b", ""], ["1", "", ""], ["1", "2", "3"]]),
    ],
)  # fmt: skip
def test_delimited_text(tmp_path: Path, text: str, kind: str, rows: list[list[str]]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    (table,) = tables(DELIMITED[kind](path, OPTIONS))
    found = [[cell.text for cell in table.cells if cell.row == row] for row in range(len(rows))]
    assert found == rows


def test_a_damaged_sheet_leaves_the_others_alone(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    second = book.create_sheet("Second")
    second.append(["c", "d"])
    sound = io.BytesIO()
    book.save(sound)
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(sound) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content[:-30] if name.endswith("sheet1.xml") else content)
    parsed = parse_xlsx(path, OPTIONS)
    assert [(fault.page, fault.reason) for fault in parsed.faults] == [(1, "corrupt")]
    assert [cell.text for table in tables(parsed) for cell in table.cells][-2:] == ["c", "d"]
