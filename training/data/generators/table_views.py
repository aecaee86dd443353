"""Which part of a corpus table a question shows: a key column, a few others, a window of rows.

    choose_view(table, rng, limits) -> View, or a Reject

A key column has short texts, no two of them alike; shown number columns have no empty cell, and
labels are words, not "col 3". Cells are rendered from the typed columns, units in the label.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from training.data.documents import Column, Table
from training.data.generators.queries import Value, View
from training.data.numbers import format_number
from training.data.rows import Reject
from training.data.tokens import count_tokens

MAX_KEY_CHARS = 32
MAX_CELL_CHARS = 40
MAX_LABEL_CHARS = 32
MIN_ROWS = 3
MAX_ROWS = 8
MAX_COLUMNS = 4

_WORDY = re.compile(r"[^\W\d_]{2}|^[^\W\d_]$")


class ShownTable(NamedTuple):
    view: View
    units: dict[str, str]  # label -> unit, "" when none
    number_columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    markdown: str


def choose_view(table: Table, rng: random.Random, max_tokens: int) -> ShownTable | Reject:
    """A random part of the table within `max_tokens`, or why there is none."""
    named = [column for column in table.columns if _is_label(column.name)]
    if len({_label(column).casefold() for column in named}) != len(named):
        return Reject("duplicate_headers")
    keys = [column for column in named if _is_key(column)]
    if not keys:
        return Reject("no_key_column")
    key = keys[0]
    others = [column for column in named if column is not key]
    if not others:
        return Reject("no_value_column")
    chosen = sorted(
        rng.sample(others, min(len(others), MAX_COLUMNS - 1)),
        key=lambda column: table.columns.index(column),
    )
    indices = _complete_rows(key, chosen)
    if len(indices) < MIN_ROWS:
        # A column with gaps spoils the rows of the others: try the fullest one alone.
        chosen = [max(others, key=lambda column: len(_complete_rows(key, [column])))]
        indices = _complete_rows(key, chosen)
    if len(indices) < MIN_ROWS:
        return Reject("too_few_rows")
    size = min(len(indices), rng.randint(MIN_ROWS + 1, MAX_ROWS))
    start = rng.randrange(len(indices) - size + 1)
    return _fit([key, *chosen], indices[start : start + size], max_tokens)


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
        number_columns=tuple(_label(c) for c in columns[1:] if c.kind == "number"),
        text_columns=tuple(_label(c) for c in columns[1:] if c.kind != "number"),
        markdown="\n".join("| " + " | ".join(line) + " |" for line in lines),
    )


def _is_key(column: Column) -> bool:
    texts = [value for value in column.values if isinstance(value, str) and value.strip()]
    if column.kind == "number" or len(texts) < MIN_ROWS:
        return False
    folded = [" ".join(text.split()).casefold() for text in texts]
    return len(set(folded)) == len(folded) and all(
        len(text) <= MAX_KEY_CHARS and any(char.isalnum() for char in text) for text in texts
    )


def _is_label(name: str) -> bool:
    label = " ".join(name.split())
    return 0 < len(label) <= MAX_LABEL_CHARS and bool(_WORDY.search(label))


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
        return 0 < len(text) <= MAX_CELL_CHARS and any(char.isalnum() for char in text)
    return cell is not None


def _cell(value: float | str | None) -> Value:
    assert value is not None, "rows with empty cells are not shown"
    return " ".join(value.split()) if isinstance(value, str) else float(value)


def _text(value: Value) -> str:
    text = value if isinstance(value, str) else format_number(value)
    return text.replace("|", "\\|")
