"""Small queries over a table: run in Python, written as SQL, and run again by SQLite.

    query = Query("argmax", column="power", key="mode")
    evaluate(query, view)   -> Answer
    to_sql(query, view)     -> SELECT "mode" FROM t ORDER BY "power" DESC LIMIT 1
    recompute(query, view)  -> the same answer by the second path

The SQL text is the row's rationale. It only ever runs in a database in memory that holds one table.
"""

# Names and texts are quoted by `_name` and `_text`; SQLite takes no parameters for names.
# ruff: noqa: S608

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = float | str
Answer: TypeAlias = float | str | tuple[str, ...]


@dataclass(frozen=True)
class View:
    """The rows shown in a prompt. `columns` are labels as shown, the first one is the key."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def key(self) -> str:
        return self.columns[0]

    def values(self, column: str) -> list[Value]:
        index = self.columns.index(column)
        return [row[index] for row in self.rows]

    def numbers(self, column: str) -> list[float]:
        return [value for value in self.values(column) if isinstance(value, float)]


@dataclass(frozen=True)
class Query:
    """`keys` are key cells, `bound` a number; which of them count depends on `operation`."""

    operation: str  # lookup | compare | argmax | argmin | count | sum | difference | filter
    column: str
    keys: tuple[str, ...] = ()
    bound: float = 0.0


def evaluate(query: Query, view: View) -> Answer:
    """The answer, computed in Python."""
    keys = [str(key) for key in view.values(view.key)]
    cells = dict(zip(keys, view.values(query.column), strict=True))
    return _OPERATIONS[query.operation](query, cells)


def _lookup(query: Query, cells: dict[str, Value]) -> Answer:
    return cells[query.keys[0]]


def _compare(query: Query, cells: dict[str, Value]) -> Answer:
    return max(query.keys, key=lambda key: _number(cells[key]))


def _argmax(query: Query, cells: dict[str, Value]) -> Answer:
    return max(cells, key=lambda key: _number(cells[key]))


def _argmin(query: Query, cells: dict[str, Value]) -> Answer:
    return min(cells, key=lambda key: _number(cells[key]))


def _count(query: Query, cells: dict[str, Value]) -> Answer:
    return float(sum(_number(value) > query.bound for value in cells.values()))


def _sum(query: Query, cells: dict[str, Value]) -> Answer:
    return math.fsum(_number(cells[key]) for key in query.keys)


def _difference(query: Query, cells: dict[str, Value]) -> Answer:
    left, right = query.keys
    return _number(cells[left]) - _number(cells[right])


def _filter(query: Query, cells: dict[str, Value]) -> Answer:
    return tuple(sorted(key for key, value in cells.items() if _number(value) > query.bound))


_OPERATIONS: Final[dict[str, Callable[[Query, dict[str, Value]], Answer]]] = {
    "lookup": _lookup, "compare": _compare, "argmax": _argmax, "argmin": _argmin,
    "count": _count, "sum": _sum, "difference": _difference, "filter": _filter,
}  # fmt: skip


def _number(value: Value) -> float:
    assert isinstance(value, float), "numeric operations are asked of number columns only"
    return value


def to_sql(query: Query, view: View) -> str:
    """The query as SQLite SQL over table `t`."""
    key, column = _name(view.key), _name(query.column)
    listed = ", ".join(_text(item) for item in query.keys)
    match query.operation:
        case "lookup":
            return f"SELECT {column} FROM t WHERE {key} = {listed}"
        case "compare":
            return f"SELECT {key} FROM t WHERE {key} IN ({listed}) ORDER BY {column} DESC LIMIT 1"
        case "argmax" | "argmin":
            order = "DESC" if query.operation == "argmax" else "ASC"
            return f"SELECT {key} FROM t ORDER BY {column} {order} LIMIT 1"
        case "count":
            return f"SELECT COUNT(*) FROM t WHERE {column} > {query.bound!r}"
        case "sum":
            return f"SELECT SUM({column}) FROM t WHERE {key} IN ({listed})"
        case "difference":
            left, right = (
                f"(SELECT {column} FROM t WHERE {key} = {_text(item)})" for item in query.keys
            )
            return f"SELECT {left} - {right}"
        case "filter":
            return f"SELECT {key} FROM t WHERE {column} > {query.bound!r} ORDER BY {key}"
    raise AssertionError(query.operation)


def recompute(query: Query, view: View) -> Answer:
    """The answer by SQLite."""
    database = sqlite3.connect(":memory:")
    try:
        names = ", ".join(_name(column) for column in view.columns)
        database.execute(f"CREATE TABLE t ({names})")
        marks = ", ".join("?" for _ in view.columns)
        database.executemany(f"INSERT INTO t VALUES ({marks})", view.rows)
        found = database.execute(to_sql(query, view)).fetchall()
    finally:
        database.close()
    if query.operation == "filter":
        return tuple(str(row[0]) for row in found)
    value = found[0][0]
    return float(value) if isinstance(value, (int, float)) else str(value)


def agree(left: Answer, right: Answer) -> bool:
    """Equal, numbers within rounding."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    return left == right


def _name(column: str) -> str:
    quoted = column.replace('"', '""')
    return f'"{quoted}"'


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
