"""A table in a sentence or two: caption, size, columns, and the extremes of its numbers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

from workspace.shards import Row

_MAX_NAMES: Final = 10
_MAX_EXTREMES: Final = 3
_MAX_LABEL_CHARS: Final = 60


def describe_table(table: Row) -> str:
    """Text made from a row of the `tables` table alone."""
    columns: list[dict[str, Any]] = json.loads(table["columns_json"])
    n_body = len(columns[0]["values"]) if columns else 0
    caption = " ".join(str(table["caption"]).split()).rstrip(".:")
    lead = caption or (
        f"Table in {table['section_path'][-1]}" if table["section_path"] else "Table"
    )
    names = [_named(column) for column in columns if column["name"]]
    text = f"{lead}: {plural(n_body, 'row')} by {plural(len(columns), 'column')}"
    if names:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        text += f" ({', '.join(names[:_MAX_NAMES])}{more})"
    return ". ".join([text, *_extremes(columns)]) + "."


def _extremes(columns: list[dict[str, Any]]) -> list[str]:
    labels = next((column["values"] for column in columns if column["kind"] == "text"), None)
    found = []
    has_unit_column = any(column["name"].strip().lower() in ("unit", "units") for column in columns)
    for column in columns:
        if has_unit_column and not column["unit"]:
            continue  # each row has a unit of its own, so the rows do not compare
        values = [(v, i) for i, v in enumerate(column["values"]) if v is not None]
        if column["kind"] != "number" or len(values) < 2 or not column["name"]:
            continue
        # The first row wins a tie.
        low, high = min(values), max(values, key=lambda pair: (pair[0], -pair[1]))
        if low[0] == high[0] or _counts_up([value for value, _ in values]):
            continue
        unit = f" {column['unit']}" if column["unit"] else ""
        found.append(
            f"{column['name']} ranges from {low[0]:.12g}{unit}{_label(labels, low[1])} "
            f"to {high[0]:.12g}{unit}{_label(labels, high[1])}"
        )
    return found[:_MAX_EXTREMES]


def _counts_up(values: list[float]) -> bool:
    """Row numbers: whole steps of one tell nothing."""
    return all(b - a == 1 for a, b in pairwise(values))


def _label(labels: list[str] | None, row: int) -> str:
    text = " ".join(labels[row].split()) if labels else ""
    return f" ({text})" if text and len(text) <= _MAX_LABEL_CHARS else ""


def _named(column: dict[str, Any]) -> str:
    name = " ".join(column["name"].split())
    return f"{name} [{column['unit']}]" if column["unit"] else name


def plural(count: int, noun: str) -> str:
    """Count and noun: 1 row, 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
