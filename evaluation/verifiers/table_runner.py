"""Runs inside the sandbox, alone: one SQL query over small tables, each in a database of its own.

Reads `job.json` ({"program": ..., "tables": [{"columns": [...], "rows": [[...]]}]}) in its working
folder, prints one JSON list: for each table {"rows": [[...]]}, or {"error": ..., "denied": bool}
and no more. The query reads table `t` and calls the functions below, and nothing else: `_may` is
asked for each thing that a statement wants to do.

No import from this project: the sandbox shows the interpreter's standard library only.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

MAX_ROWS = 1000
_MAX_VALUE_BYTES = 100_000
# No clock, no randomness, nothing that loads or makes big values: the result is the table's.
_FUNCTIONS = frozenset({
    "abs", "avg", "ceil", "ceiling", "coalesce", "count", "cume_dist", "dense_rank", "first_value",
    "floor", "glob", "group_concat", "ifnull", "iif", "instr", "lag", "last_value", "lead",
    "length", "like", "ln", "log", "log10", "log2", "lower", "ltrim", "max", "min", "mod",
    "nth_value", "ntile", "nullif", "percent_rank", "pow", "power", "rank", "replace", "round",
    "row_number", "rtrim", "sign", "sqrt", "substr", "substring", "sum", "total", "trim", "trunc",
    "typeof", "upper",
})  # fmt: skip


def main() -> None:
    """Print the results of the job."""
    job = json.loads(Path("job.json").read_text(encoding="utf-8"))
    found: list[dict[str, object]] = []
    for table in job["tables"]:
        found.append(run(job["program"], table["columns"], table["rows"]))
        if "error" in found[-1]:
            break
    json.dump(found, sys.stdout)


def run(program: str, columns: list[str], rows: list[list[object]]) -> dict[str, object]:
    """The rows that `program` gives over one table, or why it gives none."""
    denied: list[str] = []
    database = sqlite3.connect(":memory:")
    try:
        names = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
        database.execute(f"CREATE TABLE t ({names})")
        marks = ", ".join("?" for _ in columns)
        database.executemany(f"INSERT INTO t VALUES ({marks})", rows)  # noqa: S608 (marks alone)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)

        def authorise(action: int, first: str | None, second: str | None, *_: object) -> int:
            if _may(action, (first or "").lower(), (second or "").lower()):
                return sqlite3.SQLITE_OK
            denied.append(second or first or str(action))
            return sqlite3.SQLITE_DENY

        database.set_authorizer(authorise)
        return _fetch(database.execute(program))
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return {"error": f"{', '.join(denied[:1])} {error}".strip(), "denied": bool(denied)}
    finally:
        database.close()


def _may(action: int, first: str, second: str) -> bool:
    """Whether a query may do `action`; `first` is the table read, `second` the function called."""
    if action == sqlite3.SQLITE_READ:
        return not first.startswith("sqlite_")
    if action == sqlite3.SQLITE_FUNCTION:
        return second in _FUNCTIONS
    return action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)


def _fetch(cursor: sqlite3.Cursor) -> dict[str, object]:
    if cursor.description is None:
        return {"error": "not a query", "denied": False}
    rows = cursor.fetchmany(MAX_ROWS + 1)
    if len(rows) > MAX_ROWS:
        return {"error": f"more than {MAX_ROWS} rows", "denied": False}
    if any(isinstance(cell, bytes) for row in rows for cell in row):
        return {"error": "a cell of bytes", "denied": False}
    return {"rows": [list(row) for row in rows]}


if __name__ == "__main__":
    main()
