"""Which part of a corpus table a question shows: a key column, a few others, a window of rows.

    columns = askable(table)                       -> key and other columns, or a Reject
    choose_view(columns, rng, max_tokens)          -> ShownTable, or a Reject

A key column has short texts, no two of them alike; shown number columns have no empty cell, and
labels are words, not "col 3". Cells are rendered from the typed columns, units in the label.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import NamedTuple

from corpus.tokenizers import count_tokens
from training.data.documents import Column, Table
from training.data.generators.queries import Value, View
from training.data.legible import legible
from training.data.numbers import format_number
from training.data.rows import Reject

MAX_KEY_CHARS = 32
MAX_CELL_CHARS = 40
MAX_LABEL_CHARS = 32
MIN_ROWS = 3
MAX_ROWS = 8
MAX_COLUMNS = 4

# Numbers that name, place or encode something: they can be looked up, not compared or added.
_NOT_MEASURED = re.compile(
    r"#|\b(?:rev|revision|version|date|year|id|no|nr|number|index|page|section|chapter|bits?|"
    r"address|addr|offset|code|cause|opcode|encoding|hex|binary|pins?)\b",
    re.IGNORECASE,
)
_UNITS = re.compile(r"units?|uom", re.IGNORECASE)
_WORDY = re.compile(r"[^\W\d_]{2}|^[^\W\d_]$")


class ShownTable(NamedTuple):
    view: View
    units: dict[str, str]  # label -> unit, "" when none
    measured: tuple[str, ...]  # number columns that can be compared and added
    others: tuple[str, ...]  # the rest: only to be looked up
    markdown: str


class Askable(NamedTuple):
    """A table's key column and the columns that can be asked about, in table order."""

    key: Column
    others: tuple[Column, ...]
    units: Column | None  # a column that states each row's unit


def askable(table: Table) -> Askable | Reject:
    """The columns to choose from, or why nothing of the table can be asked."""
    named = [column for column in table.columns if _is_label(column.name)]
    if any(column.name in column.values for column in named):
        return Reject("header_is_data")  # a first row that was taken for the header
    if len({_label(column).casefold() for column in named}) != len(named):
        return Reject("duplicate_headers")
    key = next((column for column in named if _is_key(column)), None)
    if key is None:
        return Reject("no_key_column")
    others = tuple(
        column
        for column in named
        if column is not key and len(_complete_rows(key, [column])) >= MIN_ROWS
    )
    if not others:
        return Reject("no_value_column")
    units = next((c for c in named if _UNITS.fullmatch(_label(c)) and c.kind == "text"), None)
    return Askable(key, others, units)


def choose_view(columns: Askable, rng: random.Random, max_tokens: int) -> ShownTable | Reject:
    """A random part of the table within `max_tokens`, or why there is none."""
    key, others, units = columns
    first = rng.choice(others)
    chosen = [first]
    # Gaps of one column cost rows of all, so others join only while enough rows stay.
    for column in rng.sample(others, len(others)):
        fits = len(chosen) < MAX_COLUMNS - 1 and column is not first
        if fits and len(_complete_rows(key, [*chosen, column])) > MIN_ROWS:
            chosen.append(column)
    chosen.sort(key=others.index)
    indices = _complete_rows(key, chosen)
    if units is not None:
        indices = _same_unit(indices, units)
        if len(indices) < MIN_ROWS:
            return Reject("mixed_units")
    size = min(len(indices), rng.randint(MIN_ROWS + 1, MAX_ROWS))
    start = rng.randrange(len(indices) - size + 1)
    return _fit([key, *chosen], indices[start : start + size], max_tokens)


def _same_unit(indices: list[int], units: Column) -> list[int]:
    """The rows of the most frequent unit: microns are not compared with square microns."""
    counts = Counter(units.values[i] for i in indices)
    best = max(sorted(counts, key=str), key=lambda unit: counts[unit])
    return [i for i in indices if units.values[i] == best]


def _fit(columns: list[Column], indices: list[int], max_tokens: int) -> ShownTable | Reject:
    """Drop columns, then rows, until the Markdown fits."""
    while True:
        shown = _show(columns, indices)
        if count_tokens(shown.markdown) <= max_tokens:
            return shown
        if len(columns) > 2:
            columns = columns[:-1]
        elif len(indices) > MIN_ROWS:
            indices = indices[:-1]
        else:
            return Reject("table_too_long")


def _show(columns: list[Column], indices: list[int]) -> ShownTable:
    labels = tuple(_label(column) for column in columns)
    rows = tuple(tuple(_cell(column.values[i]) for column in columns) for i in indices)
    heads = [
        f"{label} ({column.unit})" if column.unit else label
        for label, column in zip(labels, columns, strict=True)
    ]
    lines = [heads, ["---"] * len(heads), *([_text(cell) for cell in row] for row in rows)]
    return ShownTable(
        view=View(labels, rows),
        units={label: column.unit for label, column in zip(labels, columns, strict=True)},
        measured=tuple(_label(c) for c in columns[1:] if _is_measured(c)),
        others=tuple(_label(c) for c in columns[1:] if not _is_measured(c)),
        markdown="\n".join("| " + " | ".join(line) + " |" for line in lines),
    )


def _is_key(column: Column) -> bool:
    texts = [value for value in column.values if isinstance(value, str) and value.strip()]
    if column.kind == "number" or len(texts) < MIN_ROWS:
        return False
    folded = [" ".join(text.split()).casefold() for text in texts]
    return len(set(folded)) == len(folded) and all(
        len(text) <= MAX_KEY_CHARS and _has_alnum(text) for text in texts
    )


def _is_measured(column: Column) -> bool:
    return column.kind == "number" and not _NOT_MEASURED.search(column.name)


def _is_label(name: str) -> bool:
    label = " ".join(name.split())
    return 0 < len(label) <= MAX_LABEL_CHARS and legible(label) and bool(_WORDY.search(label))


def _label(column: Column) -> str:
    return " ".join(column.name.split())


def _complete_rows(key: Column, columns: list[Column]) -> list[int]:
    return [
        i
        for i, cell in enumerate(key.values)
        if _usable(cell) and all(_usable(column.values[i]) for column in columns)
    ]


def _usable(cell: float | str | None) -> bool:
    if isinstance(cell, str):
        text = " ".join(cell.split())
        return 0 < len(text) <= MAX_CELL_CHARS and legible(text) and _has_alnum(text)
    return cell is not None


def _has_alnum(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _cell(value: float | str | None) -> Value:
    assert value is not None, "rows with empty cells are not shown"
    return " ".join(value.split()) if isinstance(value, str) else float(value)


def _text(value: Value) -> str:
    text = value if isinstance(value, str) else format_number(value)
    return text.replace("|", "\\|")
