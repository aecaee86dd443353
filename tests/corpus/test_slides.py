"""PPTX documents."""

from __future__ import annotations

import io
from pathlib import Path

import pptx
from corpus_samples import picture
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from corpus.parsed import ParseOptions
from corpus.parsers.slides import parse_pptx

OPTIONS = ParseOptions()


def test_a_slide_is_a_page_with_its_table_picture_chart_and_notes(tmp_path: Path) -> None:
    data = picture()
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Status"
    first.placeholders[1].text = "Short point\nThe second point says a good deal more than that."
    first.notes_slide.notes_text_frame.text = "We should say why the date has moved."
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Figures"
    second.shapes.add_picture(io.BytesIO(data), Inches(1), Inches(2))
    table = second.shapes.add_table(3, 2, Inches(1), Inches(4), Inches(4), Inches(1)).table
    table.cell(0, 0).text = "Both"
    table.cell(0, 0).merge(table.cell(0, 1))
    for row in (1, 2):
        for col in (0, 1):
            table.cell(row, col).text = f"{row}{col}"
    chart = CategoryChartData()
    chart.categories = ["East", "West"]
    chart.add_series("2024", (1.5, 2.25))
    second.shapes.add_chart(
        XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(5), Inches(4), Inches(3), Inches(2), chart
    )
    path = tmp_path / "a.pptx"
    deck.save(path)

    parsed = parse_pptx(path, OPTIONS)
    assert [(e.page, e.category, e.metadata.get("role", "")) for e in parsed.elements] == [
        (1, "Title", ""),
        (1, "ListItem", ""),
        (1, "NarrativeText", ""),
        (1, "NarrativeText", "notes"),
        (2, "Title", ""),
        (2, "Image", ""),
        (2, "Table", ""),
        (2, "Table", "chart"),
    ]
    image, grid, values = (element.image or element.table for element in parsed.elements[5:])
    assert image is not None and image.data == data  # type: ignore[union-attr]
    spans = [(c.row, c.col, c.row_span, c.col_span) for c in grid.cells]  # type: ignore[union-attr]
    assert spans == [(0, 0, 1, 2), (1, 0, 1, 1), (1, 1, 1, 1), (2, 0, 1, 1), (2, 1, 1, 1)]
    texts = [cell.text for cell in values.cells]  # type: ignore[union-attr]
    assert texts == ["", "2024", "East", "1.5", "West", "2.25"]
    assert (parsed.pages[0].width_pt, parsed.pages[0].height_pt) == (720, 540)


def test_nested_groups_and_broken_text_of_real_files(shared_data: Path) -> None:
    folder = shared_data / "nasty" / "office_edge"
    nested = parse_pptx(folder / "unstructured__group-shapes-nested.pptx", OPTIONS)
    assert [element.text for element in nested.elements] == list("ABCDEFGHIJ")
    broken = parse_pptx(folder / "docling__powerpoint_bad_text.pptx", OPTIONS)
    assert broken.elements[0].text.startswith("X-Library")


def test_drawings_are_counted_not_lost(shared_data: Path) -> None:
    path = shared_data / "corpus" / "semiconductor" / "core-v-mcu__CORE_V_MCU-EVK.pptx"
    parsed = parse_pptx(path, OPTIONS)
    assert len(parsed.pages) == 10
    assert sum(element.image is not None for element in parsed.elements) == 8
    assert [fault.reason for fault in parsed.faults] == ["unsupported_image"] * 2
