"""Office files from before 2007, and ODS and ODP. XLS is read by xlrd, the rest by LibreOffice.

Without `soffice` on PATH, the latter are `Unreadable("needs_libreoffice")`. The conversion runs
with a profile of its own in a temporary folder, and ends after a time limit.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParseOptions, Unreadable
from corpus.parsers import characters, containers, documents, slides, spreadsheet, word
from corpus.parsers.sheet_layout import MAX_CELLS, Limits, Merge, lay_out
from corpus.parsers.unstructured_setup import version

_TIMEOUT_S: Final = 180
_TARGETS: Final = {"doc": "docx", "ppt": "pptx", "ods": "xlsx", "odp": "pptx"}
_PARSERS: Final = {
    "docx": word.parse_docx,
    "pptx": slides.parse_pptx,
    "xlsx": spreadsheet.parse_xlsx,
}
# xlrd checks little: damaged records end in whatever they lead to.
_DAMAGE: Final = (
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)


def parse_xls(path: Path, options: ParseOptions) -> ParsedDocument:
    """An XLS workbook, a sheet a page. Pictures and charts are not read. Raises `Unreadable`."""
    import xlrd
    from xlrd.compdoc import CompDocError

    try:
        # Its warnings go to standard output otherwise.
        book = xlrd.open_workbook(path, formatting_info=True, logfile=io.StringIO())
    except (xlrd.XLRDError, CompDocError) as error:
        reason = "encrypted" if "encrypted" in str(error).lower() else "corrupt"
        raise Unreadable(reason, str(error)) from error
    except _DAMAGE as error:
        raise Unreadable("corrupt", f"{type(error).__name__}: {error}") from error
    elements: list[ParsedElement] = []
    faults: list[Fault] = []
    cells_left = MAX_CELLS
    for page, sheet in enumerate(book.sheets(), 1):
        elements.append(ParsedElement("Title", characters.clean(sheet.name), page=page, level=1))
        merges = [
            Merge(top, left, bottom - 1, right - 1)
            for top, bottom, left, right in sheet.merged_cells
        ]
        limits = Limits(options.max_table_rows, cells_left)
        own, lost, used = lay_out(_rows(sheet, book.datemode), merges, limits, page=page)
        cells_left -= used
        elements += own
        faults += lost
    sizes = dict.fromkeys(range(1, book.nsheets + 1), (0.0, 0.0))
    metadata = {"creator": characters.clean(book.user_name or "")}
    return documents.build(
        "xls", version("xlrd"), elements, page_sizes=sizes, metadata=metadata, faults=faults
    )


def parse_converted(path: Path, options: ParseOptions, *, kind: str) -> ParsedDocument:
    """A file by way of DOCX, PPTX or XLSX. Raises `Unreadable`."""
    target = _TARGETS[kind]
    if kind in ("ods", "odp"):
        containers.check(path)
    program = shutil.which("soffice")
    if program is None:
        raise Unreadable(
            "needs_libreoffice",
            f"{kind} is converted by LibreOffice, and soffice is not on PATH: "
            "apt install libreoffice-writer libreoffice-calc libreoffice-impress",
        )
    with tempfile.TemporaryDirectory(prefix="dsm-office-") as folder:
        converted = _convert(program, path, kind, target, Path(folder))
        document = _PARSERS[target](converted, options)
    return replace(document, format=kind, parser=f"LibreOffice, {document.parser}")


def _convert(program: str, path: Path, kind: str, target: str, folder: Path) -> Path:
    source = folder / f"source.{kind}"
    shutil.copyfile(path, source)
    command = [program, f"-env:UserInstallation=file://{folder}/profile", "--headless"]
    command += ["--convert-to", target, "--outdir", str(folder), str(source)]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            # soffice is a launcher: the program itself is its child.
            os.killpg(process.pid, signal.SIGKILL)
            detail = f"LibreOffice took longer than {_TIMEOUT_S} s"
            raise Unreadable("timeout", detail, stage="convert") from error
    converted = folder / f"source.{target}"
    if not converted.is_file():
        detail = errors.decode("utf-8", "replace").strip()[-300:] or "LibreOffice wrote no file"
        raise Unreadable("corrupt", detail, stage="convert")
    return converted


def _rows(sheet: Any, datemode: int) -> Iterator[tuple[int, dict[int, str]]]:
    for number in range(sheet.nrows):
        texts = {
            index: _text(cell, datemode)
            for index, cell in enumerate(sheet.row(number))
            if cell.ctype
        }
        filled = {index: text for index, text in texts.items() if text}
        if filled:
            yield number, filled


def _text(cell: Any, datemode: int) -> str:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_NUMBER:
        return format(cell.value, ".15g")
    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            moment = xlrd.xldate_as_datetime(cell.value, datemode)
        except (xlrd.XLDateError, OverflowError, ValueError):
            return format(cell.value, ".15g")
        is_date = cell.value == int(cell.value)
        return str(moment.date() if is_date else moment.replace(microsecond=0))
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return "TRUE" if cell.value else "FALSE"
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, "#ERR"))
    return characters.clean(str(cell.value)).strip()


FORMATS: Final = {
    "xls": parse_xls,
    **{kind: partial(parse_converted, kind=kind) for kind in _TARGETS},
}
