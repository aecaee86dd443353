"""Write the binary example documents: DOCX, PPTX, XLSX, PDF and a broken PDF.

    python examples/make_examples.py        (needs the extra `pymupdf`)

The texts among the examples are written by hand and lie beside the files made here. All of it is
about a made-up chip, the Aurora FC1, and agrees with itself: change a figure here and in the texts.
The files' bytes depend on the libraries' versions, and on nothing else.
"""

from __future__ import annotations

import io
import re
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

FOLDER: Final = Path(__file__).resolve().parent / "documents"
AUTHOR: Final = "dsm-pipeline authors"
DATE: Final = datetime(2025, 4, 7, 9, 0, 0)
_STAMP: Final = re.compile(rb"(<dcterms:modified[^>]*>)[^<]*")

ELECTRICAL: Final = (
    ("Parameter", "Symbol", "Min", "Typ", "Max", "Unit"),
    ("Supply voltage", "VDD", "2.7", "3.3", "3.6", "V"),
    ("Average supply current", "IDD", "", "45", "70", "µA"),
    ("Standby current", "ISB", "", "3", "8", "µA"),
    ("Input high level", "VIH", "2.1", "", "3.9", "V"),
    ("Input low level", "VIL", "-0.3", "", "0.8", "V"),
    ("PWM output current", "IOL", "", "", "8", "mA"),
)
ACCURACY: Final = (
    ("Range", "Typical error (°C)", "Maximum error (°C)"),
    ("0 to 85 °C", "0.25", "0.5"),
    ("-25 to 100 °C", "0.5", "0.75"),
    ("-40 to 125 °C", "0.5", "1.0"),
)
TIMING: Final = (
    ("Parameter", "Value"),
    ("Conversion time", "28 ms"),
    ("Conversion period after reset", "125 ms"),
    ("Power-on time", "12 ms"),
    ("Stall detection time", "2 s"),
)
PINS: Final = (
    ("Pin", "Name", "Type", "Description"),
    ("1", "SDA", "inout", "I2C data, open drain"),
    ("2", "SCL", "input", "I2C clock, up to 400 kHz"),
    ("3", "ALERT", "output", "Interrupt, open drain, active low"),
    ("4", "GND", "supply", "Ground"),
    ("5", "TACH", "input", "Tachometer signal of the fan"),
    ("6", "PWM", "output", "Fan drive, 25 kHz"),
    ("7", "ADDR", "input", "Selects the I2C address"),
    ("8", "VDD", "supply", "Supply, 2.7 V to 3.6 V"),
)
ADDRESSES: Final = (
    ("ADDR tied to", "I2C address"),
    ("GND", "0x48"),
    ("VDD", "0x49"),
    ("SDA", "0x4A"),
    ("SCL", "0x4B"),
)
# Address, name, access, reset, then the meaning of bits; the first four span the bits' rows.
REGISTERS: Final = (
    ("0x00", "TEMP_MSB", "RO", "0x00", (("7:0", "Temperature, bits 11 to 4"),)),
    ("0x01", "TEMP_LSB", "RO", "0x00", (("7:4", "Temperature, bits 3 to 0"), ("3:0", "Zero"))),
    ("0x02", "CONFIG", "RW", "0x04", (
        ("7", "SHUTDOWN: 1 stops conversions"),
        ("6:5", "RATE: 00 is 1 Hz, 01 is 4 Hz, 10 is 8 Hz, 11 is 16 Hz"),
        ("2", "FAN_ENABLE: 1 drives the PWM output"),
    )),
    ("0x03", "STATUS", "RO", "0x00", (
        ("2", "FAN_STALL: no edge on TACH for 2 s"),
        ("1", "OVER_TEMP: temperature above T_HIGH"),
        ("0", "DATA_READY: a new temperature is there"),
    )),
    ("0x04", "T_LOW", "RW", "0x28", (("7:0", "Lower end of the fan curve in °C"),)),
    ("0x05", "T_HIGH", "RW", "0x46", (("7:0", "Upper end of the fan curve in °C"),)),
    ("0x06", "DUTY_MIN", "RW", "0x4D", (("7:0", "Duty below T_LOW, 255 is 100 %"),)),
    ("0x07", "TACH_MSB", "RO", "0x00", (("7:0", "Fan edges per second, bits 15 to 8"),)),
    ("0x08", "TACH_LSB", "RO", "0x00", (("7:0", "Fan edges per second, bits 7 to 0"),)),
    ("0x0E", "REVISION", "RO", "0xA1", (("7:0", "Silicon revision"),)),
    ("0x0F", "DEVICE_ID", "RO", "0xF1", (("7:0", "Always 0xF1"),)),
)  # fmt: skip
CORNERS: Final = (
    ("Corner", "VDD (V)", "Temperature (°C)", "Error (°C)", "IDD (µA)", "PWM frequency (kHz)"),
    ("Typical", 3.3, 25, 0.0625, 45.0, 25.01),
    ("Slow, low supply", 2.7, 125, 0.8125, 61.4, 24.62),
    ("Slow, high supply", 3.6, 125, 0.875, 66.9, 24.71),
    ("Fast, low supply", 2.7, -40, -0.4375, 37.8, 25.33),
    ("Fast, high supply", 3.6, -40, -0.375, 42.5, 25.41),
)
YIELD: Final = (
    ("Lot", "Wafers", "Dies tested", "Dies good", "Yield"),
    ("L2501", 12, 10_380, 9_654, 0.930),
    ("L2502", 12, 10_380, 9_861, 0.950),
    ("L2503", 25, 21_625, 20_760, 0.960),
)
ACTIONS: Final = (
    ("Action", "Owner", "Due"),
    ("Tape out revision A1", "Mara Lindqvist", "2025-04-04"),
    ("Release firmware with the E1 workaround", "Tomas Berg", "2025-03-21"),
    ("Qualify Nordwind NW-4020", "Ines Duarte", "2025-05-16"),
)


def main() -> None:
    """Write all files into `examples/documents`."""
    diagram = _block_diagram()
    _write_package("datasheet.docx", _datasheet(diagram))
    _write_package("test-report.xlsx", _test_report())
    _write_package("design-review.pptx", _design_review(diagram))
    brief = _product_brief(diagram)
    (FOLDER / "product-brief.pdf").write_bytes(brief)
    # Cut off in the middle, as by an interrupted copy: the demo shows it in quarantine.
    (FOLDER / "application-note-truncated.pdf").write_bytes(brief[: len(brief) // 12])
    for path in sorted(FOLDER.rglob("*.*")):
        print(f"{path.stat().st_size:8d}  {path.relative_to(FOLDER)}")


def _block_diagram() -> bytes:
    """PNG of the chip's blocks."""
    picture = Image.new("RGB", (640, 240), "white")
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(16)
    boxes = {
        "Sensor": (20, 30, 140, 90),
        "12-bit ADC": (190, 30, 310, 90),
        "Fan curve": (360, 30, 480, 90),
        "PWM": (530, 30, 620, 90),
        "I2C registers": (190, 150, 310, 210),
        "Tachometer": (360, 150, 480, 210),
    }
    for name, box in boxes.items():
        draw.rectangle(box, outline="black", width=2, fill="#e8eef7")
        middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        draw.text(middle, name, fill="black", font=font, anchor="mm")
    for x in (140, 310, 480):
        draw.line((x, 60, x + 50, 60), fill="black", width=2)
    draw.line((250, 90, 250, 150), fill="black", width=2)
    draw.line((420, 90, 420, 150), fill="black", width=2)
    encoded = io.BytesIO()
    picture.quantize(16).save(encoded, "PNG", optimize=True)
    return encoded.getvalue()


def _write_package(name: str, data: bytes) -> None:
    """Repack a zip without its time stamps, so that the same content has the same bytes."""
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for part in source.namelist():
            entry = zipfile.ZipInfo(part, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            content = source.read(part)
            if part == "docProps/core.xml":  # openpyxl states the moment of saving
                content = _STAMP.sub(DATE.strftime(r"\g<1>%Y-%m-%dT%H:%M:%SZ").encode(), content)
            target.writestr(entry, content)


def _datasheet(diagram: bytes) -> bytes:
    import docx
    from docx.shared import Inches

    document = docx.Document()
    _set_properties(document.core_properties, "Aurora FC1 data sheet")
    document.add_heading("Aurora FC1 data sheet", 0)
    document.add_paragraph(
        "The Aurora FC1 is an I2C temperature sensor with a PWM fan controller in an 8-pin SOIC "
        "package. It measures its own temperature with a resolution of 0.0625 °C and drives a "
        "four-wire fan so that the board stays cool without any work for the host."
    )
    document.add_heading("Features", 1)
    for feature in (
        "Temperature range from -40 °C to 125 °C with a maximum error of 1.0 °C",
        "Average supply current of 45 µA and standby current of 3 µA",
        "PWM output at 25 kHz with 8-bit duty cycle",
        "Tachometer input that detects a stalled fan within 2 s",
        "Four I2C addresses, selected by one pin",
    ):
        document.add_paragraph(feature, "List Bullet")
    document.add_heading("Block diagram", 1)
    document.add_picture(io.BytesIO(diagram), width=Inches(5))
    document.add_paragraph("Figure 1: Blocks of the Aurora FC1", "Caption")
    document.add_paragraph(
        "As Figure 1 shows, the digital temperature goes to the registers and to the fan curve. "
        "The fan curve sets the duty of the PWM generator without help of the host."
    )
    document.add_heading("Pins", 1)
    document.add_paragraph("Table 1: Pins of the 8-pin SOIC package", "Caption")
    _add_table(document, PINS)
    document.add_heading("Electrical characteristics", 1)
    document.add_paragraph(
        "All values hold for a temperature from -40 °C to 125 °C and a supply voltage from 2.7 V "
        "to 3.6 V unless stated otherwise. Typical values are given at 25 °C and 3.3 V."
    )
    document.add_paragraph("Table 2: Electrical characteristics", "Caption")
    _add_table(document, ELECTRICAL)
    document.add_paragraph("Table 3: Accuracy of the temperature sensor", "Caption")
    _add_table(document, ACCURACY)
    document.add_heading("I2C interface", 1)
    document.add_paragraph(
        "The device is an I2C target with a bus clock of up to 400 kHz. The pin ADDR selects one "
        "of four addresses. A register is read by writing its address and then reading one byte."
    )
    document.add_paragraph("Table 4: I2C addresses", "Caption")
    _add_table(document, ADDRESSES)
    document.add_heading("Registers", 1)
    document.add_heading("Register map", 2)
    document.add_paragraph("Table 5: Register map", "Caption")
    _add_registers(document)
    document.add_heading("Fan curve", 2)
    document.add_paragraph(
        "Below T_LOW the duty is DUTY_MIN. From T_HIGH on the duty is 255, which is 100 %. Between "
        "the two the duty rises linearly with the temperature. After reset T_LOW is 40 °C, T_HIGH "
        "is 70 °C and DUTY_MIN is 77, which is 30 %."
    )
    document.add_heading("Fan speed", 2)
    document.add_paragraph(
        "The registers TACH_MSB and TACH_LSB hold the number of edges on TACH in the last second. "
        "With two pulses per revolution the speed in rpm is this number times 30."
    )
    return _saved(document)


def _add_table(document: Any, rows: tuple[tuple[str, ...], ...]) -> None:
    table = document.add_table(len(rows), len(rows[0]), "Table Grid")
    for line, row in zip(table.rows, rows, strict=True):
        for cell, text in zip(line.cells, row, strict=True):
            cell.text = text


def _add_registers(document: Any) -> None:
    n_rows = sum(len(bits) for *_, bits in REGISTERS)
    table = document.add_table(n_rows + 2, 6, "Table Grid")
    for col, name in enumerate(("Address", "Name", "Access", "Reset")):
        table.cell(0, col).merge(table.cell(1, col)).text = name
    table.cell(0, 4).merge(table.cell(0, 5)).text = "Content"
    table.cell(1, 4).text, table.cell(1, 5).text = "Bits", "Meaning"
    row = 2
    for *fixed, bits in REGISTERS:
        for col, text in enumerate(fixed):
            table.cell(row, col).merge(table.cell(row + len(bits) - 1, col)).text = text
        for place, meaning in bits:
            table.cell(row, 4).text, table.cell(row, 5).text = place, meaning
            row += 1


def _test_report() -> bytes:
    import openpyxl
    from openpyxl.styles import Font

    book = openpyxl.Workbook()
    book.properties.creator = AUTHOR
    book.properties.title = "Aurora FC1 test report"
    book.properties.created = book.properties.modified = DATE
    sheet = book.active
    sheet.title = "Corners"
    sheet.append(["Corner measurements of revision A0"])
    sheet["A1"].font = Font(bold=True)
    sheet.merge_cells("A1:F1")
    for row in CORNERS:
        sheet.append(row)
    sheet.append([])
    sheet.append(["The error is smallest at 25 °C because the sensor is trimmed there."])
    lots = book.create_sheet("Yield")
    for row in YIELD:
        lots.append(row)
    for cell in lots["E"][1:]:
        cell.number_format = "0.0%"
    encoded = io.BytesIO()
    book.save(encoded)
    return encoded.getvalue()


def _design_review(diagram: bytes) -> bytes:
    import pptx
    from pptx.util import Inches

    deck = pptx.Presentation()
    _set_properties(deck.core_properties, "Aurora FC1 design review")
    first = deck.slides.add_slide(deck.slide_layouts[0])
    first.shapes.title.text = "Aurora FC1 design review"
    first.placeholders[1].text = "Revision A1, 7 April 2025"
    points = deck.slides.add_slide(deck.slide_layouts[1])
    points.shapes.title.text = "What changes in revision A1"
    points.placeholders[1].text = (
        "The tachometer samples TACH on every clock cycle\n"
        "The device no longer stretches the clock at 400 kHz\n"
        "The register REVISION returns 0xA1\n"
        "The ALERT pulse after power-on stays as erratum E2"
    )
    points.notes_slide.notes_text_frame.text = (
        "The ALERT pulse needs a change of the analog part, which would delay A1 by ten weeks."
    )
    blocks = deck.slides.add_slide(deck.slide_layouts[5])
    blocks.shapes.title.text = "Block diagram"
    picture = blocks.shapes.add_picture(io.BytesIO(diagram), Inches(1), Inches(2), Inches(8))
    picture._element.nvPicPr.cNvPr.set("descr", "Blocks of the Aurora FC1")
    actions = deck.slides.add_slide(deck.slide_layouts[5])
    actions.shapes.title.text = "Actions"
    shape = actions.shapes.add_table(
        len(ACTIONS), len(ACTIONS[0]), Inches(0.5), Inches(2), Inches(9), Inches(2)
    )
    for row, texts in enumerate(ACTIONS):
        for col, text in enumerate(texts):
            shape.table.cell(row, col).text = text
    return _saved(deck)


def _product_brief(diagram: bytes) -> bytes:
    import pymupdf

    document = pymupdf.open()
    document.set_metadata(
        {"title": "Aurora FC1 product brief", "author": AUTHOR, "creationDate": "D:20250407090000Z"}
    )
    page = document.new_page(width=595, height=842)
    page.insert_text((50, 40), "Aurora FC1 product brief", fontsize=8)
    page.insert_text((50, 90), "Aurora FC1", fontsize=24)
    page.insert_text((50, 116), "Temperature sensor and fan controller", fontsize=13)
    _paragraph(
        page,
        140,
        (
            "The Aurora FC1 measures its temperature 8 times a second and sets the speed of a "
            "four-wire fan from it. The host programs two thresholds once and is woken by ALERT only "
            "when the fan stands still or the board becomes too hot."
        ),
    )
    page.insert_text((50, 210), "Timing", fontsize=14)
    page.insert_text((50, 232), "Table 1: Timing", fontsize=10)
    _draw_table(page, 240, TIMING, (260, 160))
    page.insert_text((50, 390), "Block diagram", fontsize=14)
    page.insert_image(pymupdf.Rect(50, 405, 530, 585), stream=diagram)
    page.insert_text((50, 602), "Figure 1: Blocks of the Aurora FC1", fontsize=10)
    _paragraph(
        page,
        625,
        (
            "The thermal resistance from the junction to the air is 121 K/W in the SOIC package. At a "
            "supply current of 45 µA the chip heats itself by less than 0.02 °C, so the error from "
            "self-heating can be neglected."
        ),
    )
    page.insert_text((290, 820), "1", fontsize=8)
    second = document.new_page(width=595, height=842)
    second.insert_text((50, 40), "Aurora FC1 product brief", fontsize=8)
    second.insert_text((50, 80), "Ordering", fontsize=14)
    second.insert_text((50, 102), "Table 2: Ordering codes", fontsize=10)
    _draw_table(
        second,
        110,
        (
            ("Code", "Package", "Temperature range", "Pieces per reel"),
            ("AFC1-S8-T", "SOIC-8", "-40 °C to 125 °C", "2,500"),
            ("AFC1-M8-T", "MSOP-8", "-40 °C to 125 °C", "4,000"),
            ("AFC1-D8-T", "DFN-8", "-40 °C to 105 °C", "3,000"),
        ),
        (110, 90, 150, 110),
    )
    _paragraph(
        second,
        240,
        (
            "The evaluation board EVB-2 carries an AFC1-S8-T and a connector for a fan of up to 1 A. "
            "Samples are shipped within 5 working days."
        ),
    )
    second.insert_text((290, 820), "2", fontsize=8)
    return bytes(document.tobytes(garbage=4, deflate=True, no_new_id=True))


def _paragraph(page: Any, top: float, text: str) -> None:
    import pymupdf

    page.insert_textbox(pymupdf.Rect(50, top, 545, top + 60), text, fontsize=11)


def _draw_table(
    page: Any, top: float, rows: tuple[tuple[str, ...], ...], widths: tuple[int, ...]
) -> None:
    height = 22
    for index, row in enumerate(rows):
        x, y = 50, top + index * height
        for text, width in zip(row, widths, strict=True):
            page.draw_rect((x, y, x + width, y + height), color=(0, 0, 0), width=0.7)
            font = "hebo" if index == 0 else "helv"
            page.insert_text((x + 5, y + 15), text, fontsize=10, fontname=font)
            x += width


def _set_properties(properties: Any, title: str) -> None:
    properties.title, properties.author = title, AUTHOR
    properties.created = properties.modified = DATE
    properties.last_modified_by = AUTHOR
    properties.revision = 1
    properties.comments = ""


def _saved(document: Any) -> bytes:
    encoded = io.BytesIO()
    document.save(encoded)
    return encoded.getvalue()


if __name__ == "__main__":
    main()
