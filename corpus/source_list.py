"""A list of sources with what is known about each: CSV, TSV or JSON lines.

Columns: `uri` or `path` (a file or URL; relative paths are relative to the list), and if wanted
`title`, `licence` (or `license`), `tags` (separated by `;`, or a JSON list), `password`. Any other
column is kept as metadata of the document under `list.<column>`. Errors name file and line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus.sources import Given
from workspace.errors import UserError

_PLACES: Final = ("uri", "path")
_KNOWN: Final = frozenset({*_PLACES, "title", "licence", "license", "tags", "password"})
_MAX_BYTES: Final = 512 << 20
_MAX_FIELD_CHARS: Final = 1 << 20


@dataclass(frozen=True)
class ListedSource:
    """One line of a list."""

    place: str
    given: Given
    origin: str  # file and line, for error texts
    password: str = field(default="", repr=False)


def read_source_list(path: Path) -> list[ListedSource]:
    """Raises `UserError` naming file, line and column."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"source list {path}: larger than {_MAX_BYTES >> 20} MB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"source list {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"source list {path}: not UTF-8 ({error}); save it as UTF-8") from error
    kind = path.suffix.lower()
    if kind == ".jsonl":
        rows = _json_rows(path, text)
    elif kind in (".csv", ".tsv"):
        rows = _delimited_rows(path, text, "," if kind == ".csv" else "\t")
    else:
        raise UserError(f"source list {path}: name it .csv, .tsv or .jsonl")
    listed = [_listed(path, origin, row) for origin, row in rows]
    if not listed:
        raise UserError(f"source list {path} has no entries")
    return listed


def _delimited_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        doubled = sorted({name for name in header if header.count(name) > 1})
        if doubled:
            raise UserError(f"source list {path}: column {doubled[0]!r} is there twice")
        _check_columns(f"{path}", header)
        for values in reader:
            origin = f"{path}, line {reader.line_num}"
            if not any(value.strip() for value in values):
                continue
            if len(values) != len(header):
                raise UserError(
                    f"source list {origin}: {len(values)} fields under {len(header)} columns"
                )
            yield origin, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise UserError(f"source list {path}, line {reader.line_num}: {error}") from error


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        origin = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"source list {origin}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f"source list {origin}: one JSON object a line is needed")
        named = {str(name).strip().lower(): value for name, value in row.items()}
        _check_columns(origin, list(named))
        yield origin, named


def _check_columns(origin: str, names: list[str]) -> None:
    if sum(name in _PLACES for name in names) != 1:
        raise UserError(f"source list {origin}: exactly one column must be called uri or path")
    if "" in names:
        raise UserError(f"source list {origin}: a column has no name")


def _listed(path: Path, origin: str, row: Mapping[str, Any]) -> ListedSource:
    place = _text(origin, row, "uri") or _text(origin, row, "path")
    if not place:
        raise UserError(f"source list {origin}: no uri")
    if "://" not in place and not Path(place).expanduser().is_absolute():
        place = str(path.absolute().parent / place)
    metadata = {
        f"list.{name}": value
        for name in row
        if name not in _KNOWN and (value := _text(origin, row, name))
    }
    given = Given(
        title=_text(origin, row, "title"),
        licence=_text(origin, row, "licence") or _text(origin, row, "license"),
        tags=_tags(origin, row.get("tags")),
        metadata=tuple(sorted(metadata.items())),
    )
    return ListedSource(place, given, origin, _password(origin, row))


def _password(origin: str, row: Mapping[str, Any]) -> str:
    value = row.get("password")
    if value is not None and not isinstance(value, str):
        raise UserError(f"source list {origin}: column 'password' must hold a text")
    return value or ""  # spaces may belong to it


def _text(origin: str, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise UserError(f"source list {origin}: column {name!r} must hold one value")
    return " ".join(str(value).split())


def _tags(origin: str, value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else str(value or "").split(";")
    if not all(isinstance(item, str) for item in items):
        raise UserError(f"source list {origin}: column 'tags' must hold texts")
    return tuple(sorted({" ".join(item.split()) for item in items} - {""}))
