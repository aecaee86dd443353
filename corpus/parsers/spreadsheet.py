"""XLSX through openpyxl's streaming reader, a sheet a page.

Cells show what a reader of the sheet sees: stored results of formulas, percentages, ISO dates.
Formulas that were never calculated have no value and are counted as a fault, like rows beyond the
caps. Pictures follow their sheet's cells. Charts repeat cells and are only counted (`charts` in
the metadata).
"""

from __future__ import annotations

import datetime
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParseOptions
from corpus.parsers import characters, containers, documents
from corpus.parsers.sheet_layout import MAX_CELLS, Limits, Merge, lay_out
from corpus.parsers.unstructured_setup import version

_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MERGE: Final = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+)(\d+):([A-Z]+)(\d+)"')
_NO_VALUE: Final = re.compile(rb"</(?:\w+:)?f>(?:<(?:\w+:)?v\s*/>|<v></v>)?</(?:\w+:)?c>")
_PERCENT: Final = re.compile(r"0(?:\.(0+))?%")
_CHUNK_BYTES: Final = 1 << 20
_OVERLAP_BYTES: Final = 256
_MAX_MERGES: Final = 100_000


class _SheetPart(NamedTuple):
    """What the stream reader does not tell about a sheet."""

    merges: list[Merge]
    uncalculated: int
    drawing: str  # the part with its pictures, "" when it has none


class _Sheet(NamedTuple):
    elements: list[ParsedElement]
    faults: list[Fault]
    cells: int
    charts: int


def parse_xlsx(path: Path, options: ParseOptions) -> ParsedDocument:
    """A workbook. Raises `Unreadable` when it is no sound, unencrypted XLSX."""
    import openpyxl

    containers.check(path)
    sheets: list[_Sheet] = []
    # As a stream: openpyxl refuses paths whose suffix it does not know.
    with path.open("rb") as stream, zipfile.ZipFile(path) as container:
        with containers.damage_as_corrupt("workbook"):
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        parts = _sheet_parts(container)
        for page, name in enumerate(book.sheetnames, 1):
            part = _read_part(container, parts.get(name, ""))
            limits = Limits(options.max_table_rows, MAX_CELLS - sum(s.cells for s in sheets))
            sheets.append(_read_sheet(book[name], part, limits, page))
            sheets.append(_drawing(container, part.drawing, options, page))
        metadata = containers.core_properties(container)
        book.close()
    charts = sum(sheet.charts for sheet in sheets)
    metadata["charts"] = str(charts) if charts else ""
    title = metadata.pop("title", "")
    return documents.build(
        "xlsx",
        version("openpyxl"),
        [element for sheet in sheets for element in sheet.elements],
        page_sizes=dict.fromkeys(range(1, len(book.sheetnames) + 1), (0.0, 0.0)),
        title=title,
        metadata=metadata,
        faults=[fault for sheet in sheets for fault in sheet.faults],
    )


def _read_sheet(sheet: Any, part: _SheetPart, limits: Limits, page: int) -> _Sheet:
    """A sheet's name and cells; a damaged sheet is a fault and leaves the others alone."""
    name = characters.clean(sheet.title)
    title = ParsedElement("Title", name, page=page, level=1)
    # A chart sheet has no rows.
    rows = _rows(sheet) if hasattr(sheet, "iter_rows") else iter(())
    try:
        elements, faults, used = lay_out(rows, part.merges, limits, page=page)
    except containers.DAMAGE as error:
        detail = f"sheet {name!r}: {type(error).__name__}: {error}"
        return _Sheet([title], [Fault(page, "parse", "corrupt", detail)], 0, 0)
    if part.uncalculated:
        detail = f"{part.uncalculated} formulas without a stored result on {name!r}"
        faults.append(Fault(page, "tables", "formula_without_value", detail))
    return _Sheet([title, *elements], faults, used, 0)


def _rows(sheet: Any) -> Iterator[tuple[int, dict[int, str]]]:
    # The stated dimensions are often wrong, and the reader would cut the rows to them.
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.iter_rows()):
        texts = {index: _text(cell) for index, cell in enumerate(row) if cell.value is not None}
        filled = {index: text for index, text in texts.items() if text}
        if filled:
            yield number, filled


def _text(cell: Any) -> str:
    value = cell.value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return _number(value, cell.number_format or "")
    if isinstance(value, datetime.datetime):
        is_date = not (value.hour or value.minute or value.second)
        return value.date().isoformat() if is_date else value.isoformat(" ", "seconds")
    return characters.clean(str(value)).strip()


def _number(value: float, shown_as: str) -> str:
    """15 significant digits, as Excel keeps them: 0.1 + 0.2 is 0.3."""
    percent = _PERCENT.fullmatch(shown_as.split(";")[0])
    if percent:
        return format(value * 100, f".{len(percent[1] or '')}f") + " %"
    return format(value, ".15g") if isinstance(value, float) else str(value)


def _sheet_parts(container: zipfile.ZipFile) -> dict[str, str]:
    """Sheet name -> its part."""
    root = containers.read_xml(container, "xl/workbook.xml")
    targets = containers.relations(container, "xl/workbook.xml")
    found = {}
    for sheet in root.iter("{*}sheet") if root is not None else ():
        relation = next((value for key, value in sheet.attrib.items() if key.endswith("}id")), "")
        found[sheet.get("name") or ""] = targets.get(relation, "")
    return found


def _read_part(container: zipfile.ZipFile, name: str) -> _SheetPart:
    """One pass over the sheet's XML, in pieces: it may be half a gigabyte."""
    merges: list[Merge] = []
    uncalculated = 0
    drawing = ""
    if name not in container.namelist():
        return _SheetPart([], 0, "")
    kept = b""
    with container.open(name) as stream:
        while piece := stream.read(_CHUNK_BYTES):
            window = kept + piece
            # Matches that end in the part seen before were counted with it.
            seen = len(kept)
            uncalculated += sum(match.end() > seen for match in _NO_VALUE.finditer(window))
            for match in _MERGE.finditer(window):
                if match.end() > seen and len(merges) < _MAX_MERGES:
                    merges.append(_merge(match))
            kept = window[-_OVERLAP_BYTES:]
    for target in containers.relations(container, name).values():
        if "/drawings/drawing" in f"/{target}":
            drawing = target
    return _SheetPart(merges, uncalculated, drawing)


def _merge(match: re.Match[bytes]) -> Merge:
    return Merge(int(match[2]) - 1, _column(match[1]), int(match[4]) - 1, _column(match[3]))


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _drawing(container: zipfile.ZipFile, name: str, options: ParseOptions, page: int) -> _Sheet:
    """Pictures of a sheet in the order of its drawing, and the number of charts."""
    root = containers.read_xml(container, name) if name else None
    if root is None:
        return _Sheet([], [], 0, 0)
    targets = containers.relations(container, name)
    charts = sum("/charts/" in f"/{target}" for target in targets.values())
    found: list[ParsedElement | Fault] = []
    for picture in root.iter("{*}pic"):
        blip = picture.find(".//{*}blip")
        target = targets.get(blip.get(f"{_R}embed") or "", "") if blip is not None else ""
        if not target or not options.extract_images:
            continue
        properties = picture.find(".//{*}cNvPr")
        caption = (properties.get("descr") or "") if properties is not None else ""
        data = containers.read_part(container, target)
        where = target.rsplit("/", 1)[-1]
        found.append(
            documents.picture_element(data, options, page=page, caption=caption, where=where)
        )
    elements, faults = documents.split_faults(found)
    return _Sheet(elements, faults, 0, charts)


FORMATS: Final = {"xlsx": parse_xlsx}
