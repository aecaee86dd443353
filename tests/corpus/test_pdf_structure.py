"""A PDF becomes elements in reading order: what a reader of the page would say it holds."""

from __future__ import annotations

import io
from pathlib import Path

import pymupdf
import pytest
from corpus_samples import manual_pdf, text_pdf
from PIL import Image, ImageDraw

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import pdf
from corpus.rows import build_rows

FAST = ParseOptions(table_detection="fast")


@pytest.fixture(scope="module")
def parsed(manual: Path) -> ParsedDocument:
    return pdf.parse(manual, FAST)


def texts(document: ParsedDocument, category: str, page: int = 1) -> list[str]:
    return [e.text for e in document.elements if e.category == category and e.page == page]


def test_headings_take_their_level_from_the_bookmarks(parsed: ParsedDocument) -> None:
    found = [(e.level, e.text) for e in parsed.elements if e.category == "Title" and e.page == 3]
    assert found == [(1, "3 Chapter of part 3"), (2, "3.1 Overview")]


def test_columns_are_read_one_after_the_other(parsed: ParsedDocument) -> None:
    left, right = texts(parsed, "NarrativeText")
    assert left.startswith("Left column of page 1.")
    assert right.startswith("Right column of page 1.")
    assert left.endswith("when the frame has left.")


def test_running_header_and_page_number_stand_apart(parsed: ParsedDocument) -> None:
    assert texts(parsed, "Header", 2) == ["Example Core Manual"]
    assert texts(parsed, "PageNumber", 2) == ["2"]
    assert not any("Example Core" in text for text in texts(parsed, "NarrativeText", 2))


def test_captions_go_to_their_figure_and_table(parsed: ParsedDocument) -> None:
    image = next(e.image for e in parsed.elements if e.image and e.page == 2)
    table = next(e.table for e in parsed.elements if e.table and e.page == 2)
    assert image.caption == "Figure 2: State machine of unit 2"
    assert table.caption == "Table 2: Registers of unit 2"
    assert (
        Image.open(io.BytesIO(image.data)).size == (image.width_px, image.height_px) == (180, 122)
    )


def test_a_ruled_table_keeps_its_cells(parsed: ParsedDocument) -> None:
    table = next(e.table for e in parsed.elements if e.table and e.page == 1)
    grid = {(cell.row, cell.col): cell.text for cell in table.cells}
    assert [grid[0, c] for c in range(3)] == ["Name", "Offset", "Access"]
    assert [grid[3, c] for c in range(3)] == ["UNIT1", "0x08", "RW"]
    assert {cell.row for cell in table.cells if cell.is_header} == {0}
    assert not any("UNIT1" in e.text for e in parsed.elements if e.category != "Table")


def test_section_paths_follow_the_headings(parsed: ParsedDocument) -> None:
    rows = build_rows("d" * 64, parsed, size_bytes=1)
    table = next(row for row in rows.tables if row["page"] == 2)
    assert table["section_path"] == ["2 Chapter of part 2", "2.1 Overview"]
    by_id = {row["element_id"]: row for row in rows.elements}
    element = by_id[table["element_id"]]
    assert by_id[element["parent_id"]]["text"] == "2.1 Overview"
    assert [row["order"] for row in rows.elements] == list(range(len(rows.elements)))


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_boxes_lie_on_the_ink_of_the_page_as_shown(tmp_path: Path, rotation: int) -> None:
    """The rendered page is the witness: nothing but white may be left outside the boxes."""
    document = pdf.parse(manual_pdf(tmp_path / "m.pdf", 1, rotation), FAST)
    page = document.pages[0]
    assert page.rotation == rotation
    image = Image.open(io.BytesIO(page.image_png or b"")).convert("L")
    scale = image.width / page.width_pt
    painter = ImageDraw.Draw(image)
    for element in document.elements:
        assert element.bbox_pt is not None
        box = [value * scale for value in element.bbox_pt]
        crop = image.crop((int(box[0]), int(box[1]), int(box[2]) + 1, int(box[3]) + 1))
        assert crop.getextrema()[0] < 128, f"no ink under {element.category} {element.text!r}"
    for element in document.elements:
        assert element.bbox_pt is not None
        x0, y0, x1, y1 = (value * scale for value in element.bbox_pt)
        painter.rectangle((x0 - 2, y0 - 2, x1 + 2, y1 + 2), fill=255)
    dark = sum(count for shade, count in enumerate(image.histogram()) if shade < 128)
    assert dark == 0


@pytest.mark.parametrize("rotation", [90, 270])
def test_a_table_on_a_turned_page_has_the_same_cells(tmp_path: Path, rotation: int) -> None:
    """Shown turned by 90 degrees its rows run down the page, so that rows and columns swap."""
    straight = pdf.parse(manual_pdf(tmp_path / "a.pdf", 1), FAST)
    turned = pdf.parse(manual_pdf(tmp_path / "b.pdf", 1, rotation), FAST)
    words = [
        sorted(cell.text for e in d.elements if e.table for cell in e.table.cells)
        for d in (straight, turned)
    ]
    assert words[0] == words[1]


def test_code_keeps_its_lines_and_loses_the_margin_numbers(tmp_path: Path) -> None:
    code = ["always @(posedge clk)", "  if (rst)", "    count <= 0;", "  else", "    count <= 1;"]
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "The counter is written as follows in Verilog.", fontsize=11)
        for number, line in enumerate(code, 1):
            y = 130 + 12 * number
            page.insert_text((72, y), str(number), fontsize=8)
            indent = len(line) - len(line.lstrip())
            page.insert_text((90 + 4.8 * indent, y), line.strip(), fontname="cour", fontsize=8)
        document.save(tmp_path / "code.pdf")
    parsed = pdf.parse(tmp_path / "code.pdf", FAST)
    assert texts(parsed, "CodeSnippet") == ["\n".join(code)]
    assert parsed.metadata["line_numbers_left_out"] == "5"


def test_line_art_with_a_caption_becomes_a_figure(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for step in range(6):
            page.draw_circle((160 + 50 * step, 290), 22)
        for step in range(5):
            page.draw_line((182 + 50 * step, 290), (188 + 50 * step, 290))
        page.insert_text((150, 292), "busy", fontsize=8)
        page.insert_text((180, 360), "Figure 7: States of the arbiter", fontsize=10)
        document.save(tmp_path / "art.pdf")
    parsed = pdf.parse(tmp_path / "art.pdf", FAST)
    (figure,) = [e for e in parsed.elements if e.image]
    assert figure.image is not None and figure.image.caption == "Figure 7: States of the arbiter"
    assert "busy" in figure.text


def test_a_sentence_about_a_figure_is_no_caption(tmp_path: Path) -> None:
    path = text_pdf(
        tmp_path / "s.pdf", ["Figure 3 shows the state machine of the arbiter in full."]
    )
    assert texts(pdf.parse(path, FAST), "NarrativeText") == [
        "Figure 3 shows the state machine of the arbiter in full."
    ]


def test_a_huge_page_is_rendered_within_the_pixel_cap(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page(width=14_000, height=14_000).insert_text((100, 100), "far away")
        document.save(tmp_path / "huge.pdf")
    options = ParseOptions(table_detection="fast", max_page_pixels=1_000_000)
    page = pdf.parse(tmp_path / "huge.pdf", options).pages[0]
    width, height = Image.open(io.BytesIO(page.image_png or b"")).size
    assert 900_000 < width * height <= 1_010_000
    assert "low_resolution" in page.flags


def test_a_page_without_text_is_flagged(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page()
        document.save(tmp_path / "blank.pdf")
    page = pdf.parse(tmp_path / "blank.pdf", FAST).pages[0]
    assert page.flags == ("blank", "no_text")
    assert page.text_source == "none"


def test_a_password_is_a_reason(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page()
        document.save(
            tmp_path / "locked.pdf",
            encryption=pymupdf.PDF_ENCRYPT_AES_256,
            user_pw="secret",
            owner_pw="owner",
        )
    for backend in ("pymupdf", "pypdfium2"):
        with pytest.raises(Unreadable) as caught:
            pdf.parse(tmp_path / "locked.pdf", ParseOptions(pdf_backend=backend))
        assert caught.value.reason == "encrypted"


def test_the_permissive_backend_reads_the_same_text(manual: Path, parsed: ParsedDocument) -> None:
    other = pdf.parse(manual, ParseOptions(pdf_backend="pypdfium2"))
    assert other.parser.startswith("pypdfium2 ")
    for page in (1, 4):
        assert texts(other, "Title", page) == texts(parsed, "Title", page)
        assert texts(other, "NarrativeText", page) == texts(parsed, "NarrativeText", page)
    assert [p.image_dpi for p in other.pages] == [100] * 4
    assert sum(e.image is not None for e in other.elements) == 4
