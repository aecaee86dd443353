"""OCR of pages without usable text: the digital page that a scan was made from is the truth."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pymupdf
import pytest
from corpus_samples import picture, text_pdf
from ingest_runs import configure, rows, run_ingest
from PIL import Image, ImageOps
from processes import ends_soon
from rapidfuzz.distance import Levenshtein

from corpus.parsed import ParsedDocument, ParseOptions
from corpus.parsers import ocr_setup, pdf
from corpus.parsers.text_quality import is_garbled

needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None, reason="needs Debian's tesseract-ocr (make test installs it)"
)
TESSERACT = ParseOptions(ocr_engine="tesseract", table_detection="fast")


def scan(path: Path, source: Path, page: int, *, turn: float = 0, dpi: int = 150) -> Path:
    """One page of `source` as a picture, fed into the scanner turned clockwise by `turn`."""
    with pymupdf.open(source) as document, pymupdf.open() as scanned:
        shown = document[page - 1]
        matrix = pymupdf.Matrix(dpi / 72, dpi / 72).prerotate(turn)
        pixmap = shown.get_pixmap(matrix=matrix, colorspace=pymupdf.csGRAY)
        size = pixmap.width * 72 / dpi, pixmap.height * 72 / dpi
        scanned.new_page(width=size[0], height=size[1]).insert_image(
            (0, 0, *size), stream=pixmap.tobytes("png")
        )
        scanned.save(path)
    return path


def only_page(source: Path, page: int, path: Path) -> Path:
    with pymupdf.open(source) as document, pymupdf.open() as single:
        single.insert_pdf(document, from_page=page - 1, to_page=page - 1)
        single.save(path)
    return path


def letters(document: ParsedDocument) -> str:
    return "".join("".join(page.text.split()) for page in document.pages)


def character_error_rate(truth: ParsedDocument, read: ParsedDocument) -> float:
    return float(Levenshtein.distance(letters(truth), letters(read))) / len(letters(truth))


@needs_tesseract
@pytest.mark.parametrize(
    ("backend", "turn"),
    [("pymupdf", 0), ("pymupdf", 90), ("pymupdf", 180), ("pymupdf", 270), ("pypdfium2", 90)],
)
def test_a_scan_reads_as_its_digital_twin(
    shared_data: Path, tmp_path: Path, turn: int, backend: str
) -> None:
    source = shared_data / "corpus/energy/matpower__MATPOWER-manual.pdf"
    options = ParseOptions(ocr_engine="tesseract", table_detection="fast", pdf_backend=backend)
    twin = pdf.parse(only_page(source, 12, tmp_path / "twin.pdf"), options)
    read = pdf.parse(scan(tmp_path / "scan.pdf", source, 12, turn=turn), options)
    assert character_error_rate(twin, read) < 0.03
    page = read.pages[0]
    assert page.text_source == "ocr" and "ocr" in page.flags
    assert (f"rotated_scan_{360 - turn}" in page.flags) == bool(turn)
    assert "tesseract" in read.parser
    # Upright, picture and boxes alike: as high as the twin, and its first lines at the top.
    assert page.height_pt == pytest.approx(twin.pages[0].height_pt, abs=2)
    places = {element.text[:25]: element.bbox_pt for element in twin.elements}
    same = [element for element in read.elements if element.text[:25] in places]
    assert len(same) >= 3
    for element in same:
        known, found = places[element.text[:25]], element.bbox_pt
        # The backends may end a paragraph elsewhere, but it begins where it begins.
        assert known and found and max(abs(found.x0 - known.x0), abs(found.y0 - known.y0)) < 4


@needs_tesseract
@pytest.mark.parametrize(("turn", "backend"), [(2.0, "pymupdf"), (-3.5, "pypdfium2")])
def test_a_page_fed_in_askew_is_straightened(
    shared_data: Path, tmp_path: Path, turn: float, backend: str
) -> None:
    source = shared_data / "corpus/semiconductor/zipcpu__spec.pdf"
    options = ParseOptions(ocr_engine="tesseract", table_detection="fast", pdf_backend=backend)
    twin = pdf.parse(only_page(source, 9, tmp_path / "twin.pdf"), options)
    read = pdf.parse(scan(tmp_path / "scan.pdf", source, 9, turn=turn), options)
    assert character_error_rate(twin, read) < 0.15  # 0.36 to 0.57 as it lies
    (flag,) = [flag for flag in read.pages[0].flags if flag.startswith("straightened_")]
    assert float(flag.removeprefix("straightened_")) == pytest.approx(-turn, abs=0.2)


@needs_tesseract
@pytest.mark.parametrize("mode", ["1", "RGB", "RGBA", "P"])
def test_a_picture_askew_is_straightened_in_any_colour(tmp_path: Path, mode: str) -> None:
    lines = [f"The timer counts down from {n} to zero and stops." for n in range(20, 44)]
    with pymupdf.open(text_pdf(tmp_path / "a.pdf", ["\n".join(lines)])) as document:
        pixmap = document[0].get_pixmap(dpi=150)
    page = Image.frombytes("RGB", (pixmap.width, pixmap.height), bytes(pixmap.samples))
    askew = page.rotate(3, Image.Resampling.BICUBIC, fillcolor="white").convert(mode)
    askew.save(tmp_path / "scan.png", dpi=(150, 150))
    read = pdf.parse(tmp_path / "scan.png", TESSERACT)
    assert "straightened_3" in read.pages[0].flags
    assert letters(read).count("downfrom") >= len(lines) - 1


@needs_tesseract
def test_headings_of_a_scan_are_headings(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "corpus/energy/matpower__MATPOWER-manual.pdf"
    read = pdf.parse(scan(tmp_path / "scan.pdf", source, 12), TESSERACT)
    titles = [element.text for element in read.elements if element.category == "Title"]
    with pymupdf.open(source) as document:
        marked = {title for _, title, page in document.get_toc() if page == 12}
    assert marked and {title for title in marked if any(title in t for t in titles)} == marked


@needs_tesseract
def test_a_mixed_pdf_keeps_its_digital_page_and_reads_its_scanned_one(tmp_path: Path) -> None:
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V at 150 mA. " * 8])
    scanned = scan(tmp_path / "scan.pdf", digital, 1)
    with pymupdf.open(digital) as mixed, pymupdf.open(scanned) as second:
        mixed.insert_pdf(second)
        mixed.save(tmp_path / "mixed.pdf")
    run_ingest(tmp_path / "w", tmp_path / "mixed.pdf")
    pages = sorted(rows(tmp_path / "w", "pages"), key=lambda row: row["page"])
    assert [page["text_source"] for page in pages] == ["native", "ocr"]
    assert "ocr" not in pages[0]["flags"]
    assert all("3.3 V at 150 mA" in page["text"] for page in pages)
    (document,) = rows(tmp_path / "w", "documents")
    assert "pymupdf" in document["parser"] and "tesseract" in document["parser"]


@needs_tesseract
def test_a_stamp_on_a_scan_does_not_hide_the_scan(tmp_path: Path) -> None:
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V at 150 mA. " * 8])
    with pymupdf.open(scan(tmp_path / "scan.pdf", digital, 1)) as document:
        document[0].insert_text((72, 40), "Downloaded on 3 May", fontsize=8)
        document.save(tmp_path / "stamped.pdf")
    (page,) = pdf.parse(tmp_path / "stamped.pdf", TESSERACT).pages
    assert "Downloaded on 3 May" in page.text and "3.3 V at 150 mA" in page.text
    assert page.text.count("Downloaded") == 1


@needs_tesseract
@pytest.mark.parametrize("backend", ["pymupdf", "pypdfium2"])
def test_a_font_without_a_map_to_unicode_is_read_by_ocr(shared_data: Path, backend: str) -> None:
    path = shared_data / "nasty/fonts_text/opendataloader-pdf__cid-font-no-tounicode.pdf"
    options = ParseOptions(ocr_engine="tesseract", pdf_backend=backend)
    (page,) = pdf.parse(path, options).pages
    assert "The quick brown fox jumps over the lazy dog" in page.text
    assert {"ocr", "ocr_garbled"} <= set(page.flags)


@needs_tesseract
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rotated/docling__ocr_test_rotated_180.pdf", "bundles PDF document conversion to JSON"),
        ("rotated/docling__sample_with_rotation_mismatch.pdf", "THE SLEREXE COMPANY LIMITED"),
        ("rotated/olmocr__edgar_image.pdf", "king of all England on his brother's death"),
        ("scan_ocr_mixed/unstructured__loremipsum-flat.pdf", "consectetur adipiscing elit"),
    ],
)
def test_real_scans(shared_data: Path, name: str, words: str) -> None:
    page = pdf.parse(shared_data / "nasty" / name, TESSERACT).pages[0]
    assert words in " ".join(page.text.split()).replace("’", "'")
    assert page.text_source == "ocr"


@pytest.mark.parametrize(
    "name",
    [
        "corpus/semiconductor/yosys__APPNOTE_010_Verilog_to_BLIF.pdf",
        "corpus/semiconductor/core-v-mcu__Datasheet_of_transprecision.pdf",
        "corpus/semiconductor/caravel__openframe_pinout.pdf",
        "corpus/energy/matpower__TN2-OPF-Derivatives.pdf",
        "nasty/scan_ocr_mixed/kreuzberg__scanned.pdf",
        "nasty/fonts_text/unstructured__multi-column.pdf",
        "nasty/rotated/olmocr__edgar-rotated90.pdf",
    ],
)
def test_good_text_is_never_read_again(shared_data: Path, name: str) -> None:
    """With no engine in use, a page in need of one says so."""
    options = ParseOptions(ocr_engine="none", table_detection="fast")
    for page in pdf.parse(shared_data / name, options).pages:
        assert page.text_source == "native"
        assert not {"ocr_unavailable", "garbled_text"} & set(page.flags)


def test_without_an_engine_a_scan_says_what_is_missing(tmp_path: Path) -> None:
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V. " * 8])
    run_ingest(tmp_path / "w", scan(tmp_path / "scan.pdf", digital, 1, dpi=72), ocr_engine="none")
    (page,) = rows(tmp_path / "w", "pages")
    assert {"no_text", "ocr_unavailable"} <= set(page["flags"]) and page["text_source"] == "none"


@needs_tesseract
def test_nothing_is_made_up_from_blank_pages_and_pictures(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page()
        document.new_page().insert_image((100, 100, 400, 300), stream=picture(300, 200))
        document.save(tmp_path / "blank.pdf")
    blank, drawn = pdf.parse(tmp_path / "blank.pdf", TESSERACT).pages
    assert blank.flags == ("blank", "no_text") and blank.text_source == "none"
    assert "no_text" in drawn.flags and drawn.text == ""


def test_ocr_can_be_switched_off(tmp_path: Path) -> None:
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V. " * 8])
    path = scan(tmp_path / "scan.pdf", digital, 1, dpi=72)
    (page,) = pdf.parse(path, ParseOptions(ocr="off", ocr_engine="tesseract")).pages
    assert page.text_source == "none" and page.flags == ("scanned", "no_text")


@needs_tesseract
def test_a_language_that_is_not_installed_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tesseract lacks xyz.*apt-get install tesseract-ocr-xyz"):
        configure(tmp_path, tmp_path, ocr_languages=["eng", "xyz"])


def test_the_fingerprint_tells_the_engines_apart(tmp_path: Path) -> None:
    auto = configure(tmp_path, tmp_path)
    assert auto.ocr_engine in ("both", "tesseract", "rapidocr", "none")
    assert (
        auto.fingerprint()
        == configure(tmp_path, tmp_path, ocr_engine=auto.ocr_engine).fingerprint()
    )
    other = "none" if auto.ocr_engine != "none" else "auto"
    if other == "none":
        assert auto.fingerprint() != configure(tmp_path, tmp_path, ocr_engine=other).fingerprint()


@pytest.mark.parametrize("name", ["en", "pl", "fi", "de", "tr", "vi"])
def test_languages_are_no_garbage_and_their_ciphers_are(name: str) -> None:
    text = DECLARATION[name]
    shifted = "".join(chr(ord(char) - 29) if 64 < ord(char) < 127 else char for char in text)
    assert not is_garbled(text)
    assert is_garbled(shifted)


# Article 1 of the Universal Declaration of Human Rights.
DECLARATION = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with "
    "reason and conscience and should act towards one another in a spirit of brotherhood.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
    "obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on "
    "annettu järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft "
    "und Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana "
    "sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "vi": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền. Mọi con "
    "người đều được tạo hoá ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình "
    "bằng hữu.",
}


def _page_pictures(tmp_path: Path) -> tuple[ParsedDocument, list[Image.Image]]:
    digital = text_pdf(
        tmp_path / "digital.pdf",
        [f"Frame {n} of the test report. " + "The fan turns at 2400 rpm. " * 9 for n in (1, 2, 3)],
    )
    with pymupdf.open(digital) as document:
        shown = [page.get_pixmap(dpi=150, colorspace=pymupdf.csGRAY) for page in document]
    pictures = [Image.open(io.BytesIO(pixmap.tobytes("png"))) for pixmap in shown]
    return pdf.parse(digital, TESSERACT), pictures


@needs_tesseract
def test_every_frame_of_a_tiff_is_read(tmp_path: Path) -> None:
    twin, frames = _page_pictures(tmp_path)
    frames[1] = frames[1].rotate(180)
    first, *others = frames
    first.save(tmp_path / "fax.tiff", save_all=True, append_images=others, dpi=(150, 150))
    run_ingest(tmp_path / "w", tmp_path / "fax.tiff")
    pages = sorted(rows(tmp_path / "w", "pages"), key=lambda row: row["page"])
    assert [page["text_source"] for page in pages] == ["ocr"] * 3
    assert ["rotated_scan_180" in page["flags"] for page in pages] == [False, True, False]
    for page, known in zip(pages, twin.pages, strict=True):
        assert Levenshtein.normalized_distance(page["text"].split(), known.text.split()) < 0.05
        assert page["width_pt"] == pytest.approx(known.width_pt, abs=1)
    (document,) = rows(tmp_path / "w", "documents")
    assert document["format"] == "tiff" and document["n_images"] == 3


@needs_tesseract
@pytest.mark.parametrize("format_name", ["png", "jpeg", "gif", "bmp", "webp"])
def test_a_lone_picture_of_a_page_is_read(tmp_path: Path, format_name: str) -> None:
    twin, frames = _page_pictures(tmp_path)
    path = tmp_path / f"page.{format_name}"
    frames[0].save(path, dpi=(150, 150))
    read = pdf.parse(path, TESSERACT)
    assert read.format == format_name and read.pages[0].text_source == "ocr"
    words = twin.pages[0].text.split()
    assert Levenshtein.normalized_distance(read.pages[0].text.split(), words) < 0.05
    assert [element.category for element in read.elements] == ["Image", "NarrativeText"]
    assert read.elements[0].image is not None


@needs_tesseract
def test_letters_on_a_transparent_ground_are_read(tmp_path: Path) -> None:
    _, (page, *_) = _page_pictures(tmp_path)
    ink = Image.new("RGBA", page.size, (0, 0, 0, 255))
    ink.putalpha(ImageOps.invert(page))
    ink.save(tmp_path / "page.png", dpi=(150, 150))
    assert "2400 rpm" in pdf.parse(tmp_path / "page.png", TESSERACT).pages[0].text


def test_a_damaged_frame_costs_itself(tmp_path: Path) -> None:
    frames = [Image.effect_noise((200, 200), 90) for _ in range(3)]
    path = tmp_path / "fax.tiff"
    frames[0].save(path, save_all=True, append_images=frames[1:], compression="tiff_deflate")
    with Image.open(path) as image:
        image.seek(1)
        (offset, *_), (length, *_) = image.tag_v2[273], image.tag_v2[279]
    data = bytearray(path.read_bytes())
    data[offset : offset + length] = bytes(length)
    path.write_bytes(data)
    read = pdf.parse(path, ParseOptions(ocr="off"))
    assert ["lost" in page.flags for page in read.pages] == [False, True, False]
    assert [(fault.page, fault.reason) for fault in read.faults] == [(2, "page_error")]


SPINNING = """#!/bin/sh
case "$1" in
  --version) echo "tesseract 9.9" ;;
  --list-langs) printf 'List of available languages (1):\neng\n' ;;
  *) echo $$ > {pid}; while :; do :; done ;;
esac
"""


def test_an_engine_that_hangs_costs_its_page_and_dies_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "bin/tesseract"
    command.parent.mkdir()
    command.write_text(SPINNING.format(pid=tmp_path / "pid"))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V. " * 8])
    with pymupdf.open(digital) as mixed, pymupdf.open(scan(tmp_path / "s.pdf", digital, 1)) as one:
        mixed.insert_pdf(one)
        mixed.save(tmp_path / "mixed.pdf")
    ocr_setup.ask_tesseract.cache_clear()
    try:
        run_ingest(tmp_path / "w", tmp_path / "mixed.pdf", page_timeout_s=6, ocr_engine="tesseract")
    finally:
        ocr_setup.ask_tesseract.cache_clear()
    (lost,) = rows(tmp_path / "w", "quarantine")
    assert (lost["page"], lost["reason"]) == (2, "timeout")
    # The engine's own seconds count: the wall would have given it six times as long.
    assert float(re.findall(r"after (\d+) CPU", lost["detail"])[0]) >= 6
    assert ends_soon(int((tmp_path / "pid").read_text()))


def test_a_broken_engine_costs_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digital = text_pdf(tmp_path / "digital.pdf", ["The regulator holds 3.3 V. " * 8])
    path = scan(tmp_path / "scan.pdf", digital, 1, dpi=72)
    monkeypatch.setenv("PATH", str(tmp_path))
    ocr_setup.ask_tesseract.cache_clear()
    (tmp_path / "tesseract").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tesseract").chmod(0o755)
    try:
        read = pdf.parse(path, TESSERACT)
    finally:
        ocr_setup.ask_tesseract.cache_clear()
    assert [(f.page, f.stage, f.reason) for f in read.faults] == [(1, "ocr", "ocr_error")]
    assert {"scanned", "ocr_error", "no_text"} <= set(read.pages[0].flags)
    assert "lost" not in read.pages[0].flags and read.pages[0].image_png
