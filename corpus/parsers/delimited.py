"""CSV and TSV: one table, read in a stream; lines before it with a single field are its titles."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import characters, documents
from corpus.parsers.sheet_layout import Limits, lay_out

_MAX_FIELD_CHARS: Final = 1_000_000
_DELIMITERS: Final = ",;\t|"


def parse(path: Path, options: ParseOptions, *, kind: str) -> ParsedDocument:
    """A table of delimited text; the delimiter is told by the first lines. Raises `Unreadable`."""
    return read(characters.read_text(path), options, kind=kind)


def read(text: str, options: ParseOptions, *, kind: str) -> ParsedDocument:
    """The same from a text."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    delimiter = "\t" if kind == "tsv" else _delimiter(text)
    limits = Limits(options.max_table_rows, split_columns=False, always_table=True)
    try:
        elements, faults, _ = lay_out(_rows(text, delimiter), (), limits, page=1)
    except csv.Error as error:
        raise Unreadable("syntax", f"not delimited text: {error}", stage="parse") from error
    return documents.build(kind, "csv", elements, faults=faults)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, dict[int, str]]]:
    """Row number and filled fields; comment lines (`#`) at the top are a field of their own."""
    at_top = True
    for number, fields in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter)):
        if at_top and fields and fields[0].startswith("#"):
            yield number, {0: delimiter.join(fields).lstrip("# ").strip() or "#"}
            continue
        at_top = at_top and not fields
        filled = {index: field.strip() for index, field in enumerate(fields) if field.strip()}
        if filled:
            yield number, filled


def _delimiter(text: str) -> str:
    """The one that splits most of the first lines into the same number of fields, above one."""
    lines = [line for line in text[:65_536].split("\n")[:50] if line and not line.startswith("#")]
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        try:
            widths = [len(fields) for fields in csv.reader(lines, delimiter=delimiter) if fields]
        except csv.Error:
            continue
        common = max(set(widths), key=widths.count, default=1)
        score = widths.count(common) / max(len(widths), 1) * (common > 1) + 0.001 * common
        if common > 1 and score > best_score:
            best, best_score = delimiter, score
    return best


FORMATS: Final = {"csv": partial(parse, kind="csv"), "tsv": partial(parse, kind="tsv")}
