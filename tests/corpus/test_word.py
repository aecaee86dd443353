"""DOCX documents: ours, and real ones whose cells say where they belong."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import docx
import pytest
from corpus_samples import picture
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.equations import linear_text
from corpus.parsers.word import parse_docx

OPTIONS = ParseOptions()
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
FRACTION = (
    f"<m:oMathPara {MATH}><m:oMath><m:r><m:t>x=</m:t></m:r><m:f><m:num><m:r><m:t>a+b</m:t></m:r>"
    "</m:num><m:den><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>"
    "</m:sSup></m:den></m:f></m:oMath></m:oMathPara>"
)


def parse(document: object, path: Path) -> ParsedDocument:
    document.save(path)  # type: ignore[attr-defined]
    return parse_docx(path, OPTIONS)


def test_order_levels_captions_and_pictures(tmp_path: Path) -> None:
    data = picture()
    document = docx.Document()
    document.core_properties.title = "The manual"
    document.add_heading("Overview", 1)
    document.add_paragraph("The controller drives a fan and measures its speed all the time.")
    document.add_heading("Details", 2)
    document.add_picture(io.BytesIO(data))
    document.add_paragraph("Figure 1: The blocks", "Caption")
    document.add_paragraph("Table 1: Limits", "Caption")
    table = document.add_table(3, 2)
    for cell, text in zip(
        table._cells, ["Name", "Max (V)", "VDD", "3.6", "VIO", "1.8"], strict=True
    ):
        cell.text = text
    table.cell(1, 0).paragraphs[0].add_run().add_picture(io.BytesIO(data))
    parsed = parse(document, tmp_path / "a.docx")
    assert parsed.title == "The manual"
    assert [(e.category, e.level) for e in parsed.elements] == [
        ("Title", 1),
        ("NarrativeText", 0),
        ("Title", 2),
        ("Image", 0),
        ("FigureCaption", 0),
        ("UncategorizedText", 0),
        ("Table", 0),
        ("Image", 0),
    ]
    figure, grid = parsed.elements[3].image, parsed.elements[6].table
    assert figure is not None and grid is not None
    assert (figure.data, figure.caption) == (data, "Figure 1: The blocks")
    assert grid.caption == "Table 1: Limits"
    assert [cell.is_header for cell in grid.cells] == [True, True, False, False, False, False]
    assert parsed.pages[0].width_pt == pytest.approx(612)


def test_what_unstructured_drops_is_there(tmp_path: Path) -> None:
    document = docx.Document()
    body = document.element.body
    inner = "<w:p><w:r><w:t>Inside a control.</w:t></w:r></w:p>"
    control = f"<w:sdt {nsdecls('w')}><w:sdtContent>{inner}</w:sdtContent></w:sdt>"
    body.insert(0, parse_xml(control))
    document.add_paragraph()._p.append(parse_xml(FRACTION))
    frame = document.add_table(1, 1)
    frame.cell(0, 0).text = "A framed remark that is no table."
    parsed = parse(document, tmp_path / "a.docx")
    assert [(e.category, e.text) for e in parsed.elements if e.category != "NarrativeText"] == [
        ("UncategorizedText", "Inside a control."),
        ("Formula", "x=(a+b)/(c^2)"),
    ]
    assert parsed.elements[-1].text == "A framed remark that is no table."


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<m:rad><m:deg/><m:e><m:r><m:t>x+1</m:t></m:r></m:e></m:rad>", "sqrt(x+1)"),
        (
            '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>'
            "<m:sub><m:r><m:t>i=1</m:t></m:r></m:sub><m:sup><m:r><m:t>n</m:t></m:r></m:sup><m:e><m:r><m:t>i</m:t></m:r></m:e></m:nary>",
            "sum_(i=1)^n i",
        ),
        (
            "<m:d><m:e><m:r><m:t>a</m:t></m:r></m:e><m:e><m:r><m:t>b</m:t></m:r></m:e></m:d>",
            "(a, b)",
        ),
    ],
)
def test_equations_on_one_line(inner: str, text: str) -> None:
    assert linear_text(parse_xml(f"<m:oMath {MATH}>{inner}</m:oMath>")) == text


def test_spans_of_a_real_file_whose_cells_name_their_places(shared_data: Path) -> None:
    path = shared_data / "nasty" / "office_edge" / "docling__word_tables.docx"
    parsed = parse_docx(path, OPTIONS)
    tables = [element.table for element in parsed.elements if element.table]
    assert len(tables) == 7
    named = merged = 0
    for table in tables:
        for cell in table.cells:
            places = [(int(a), int(b)) for a, b in re.findall(r"(\d)\.(\d)", cell.text)]
            if not places:
                continue
            last = places[-1]
            named += 1
            merged += len(places) - 1
            assert (cell.row, cell.col) == places[0]
            assert (cell.row + cell.row_span - 1, cell.col + cell.col_span - 1) == last
    assert (named, merged) == (60, 10)


@pytest.mark.parametrize(
    ("name", "images", "external"),
    [
        ("images_dups/docling__docx_grouped_images.docx", 6, ""),
        ("images_dups/docling__docx_vml_images.docx", 2, ""),
        ("office_edge/docling__docx_external_image.docx", 0, "1"),
    ],
)
def test_pictures_of_real_files(shared_data: Path, name: str, images: int, external: str) -> None:
    parsed = parse_docx(shared_data / "nasty" / name, OPTIONS)
    assert sum(element.image is not None for element in parsed.elements) == images
    assert parsed.metadata.get("external_images", "") == external


def test_the_strict_dialect_is_read(shared_data: Path) -> None:
    parsed = parse_docx(shared_data / "nasty" / "office_edge" / "docling__Strict.docx", OPTIONS)
    assert parsed.elements[0].text == "Some text"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted"),
        (b"PK\x03\x04" + b"broken" * 50, "corrupt"),
    ],
)
def test_broken_files_have_reasons(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(data)
    with pytest.raises(Unreadable) as caught:
        parse_docx(path, OPTIONS)
    assert caught.value.reason == reason


def test_a_zip_of_something_else_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("hello.txt", "hello")
    with pytest.raises(Unreadable) as caught:
        parse_docx(path, OPTIONS)
    assert caught.value.reason == "corrupt"


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr("word/document.xml", b"<" + b" " * (64 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(Unreadable) as caught:
        parse_docx(path, OPTIONS)
    assert caught.value.reason == "too_large"


def test_damaged_xml_inside_a_sound_zip_is_corrupt(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("text")
    sound = io.BytesIO()
    document.save(sound)
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(sound) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content[:-40] if name == "word/document.xml" else content)
    with pytest.raises(Unreadable) as caught:
        parse_docx(path, OPTIONS)
    assert caught.value.reason == "corrupt"


def test_entries_of_contents_are_no_headings_or_text(tmp_path: Path) -> None:
    document = docx.Document()
    for name in ("toc 1", "toc 2", "table of figures"):
        document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
    document.add_heading("Contents", 1)
    document.add_paragraph("1 Overview\t3", "toc 1")
    document.add_paragraph("1.1 Registers of the timer\t4", "toc 2")
    document.add_paragraph("Figure 1: The blocks of the controller\t5", "table of figures")
    document.add_heading("Overview", 1)
    document.add_paragraph("The controller drives a fan and measures its speed all the time.")
    parsed = parse(document, tmp_path / "a.docx")
    entries = [e for e in parsed.elements if e.metadata.get("role") == "contents"]
    assert [" ".join(e.text.split()) for e in entries] == [
        "1 Overview 3",
        "1.1 Registers of the timer 4",
        "Figure 1: The blocks of the controller 5",
    ]
    assert {e.category for e in entries} == {"UncategorizedText"}
    assert [e.text for e in parsed.elements if e.category == "Title"] == ["Contents", "Overview"]
