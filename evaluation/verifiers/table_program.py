"""`table_program`: an SQL query that answers a question about a table, judged by running it.

Ground truth `{"columns": ["mode", "power"], "rows": [["idle", 1.2], ["run", 40]], "program":
"SELECT ...", "ordered": false}`: the table as `t`, and a query of ours. The answer is one SQLite
SELECT over `t`, in a code block or behind a marker.

Both queries are run, each in a sandbox of its own, over the table and over `VARIANTS` changed
copies of it (cells of a column exchanged, numbers redrawn, rows in another order). The answer is
right when it gives the same rows everywhere, in any order unless `ordered`, numbers within 1e-9: a
query that holds the result as a constant, or picks it by its place, fails. Names of result columns
do not count. Denied: everything but reading `t` and the functions of `table_runner`.

Not covered: other tables, dates, and questions whose answer such copies share, as the number of all
rows: a ground truth like that is refused.
"""

from __future__ import annotations

import functools
import json
import math
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers import sandbox, table_runner
from evaluation.verifiers.extraction import code_or_answer
from evaluation.verifiers.sandbox import Limits
from evaluation.verifiers.verdict import OUTPUT_CHARS, Verdict
from workspace.errors import UserError

KIND: Final = "table_program"
VARIANTS: Final = 8
MAX_CELLS: Final = 10_000
_LIMITS: Final = Limits(cpu_s=1, memory_bytes=512 << 20, output_bytes=4 << 20)

Cell: TypeAlias = float | int | str | None
Rows: TypeAlias = list[list[Cell]]


class Table(NamedTuple):
    """Names of columns, and rows of cells."""

    columns: tuple[str, ...]
    rows: Rows


class _NoVerdict(Exception):
    """The machine could not run our own query."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.outcome)
        self.verdict = verdict


class _Truth(NamedTuple):
    tables: list[Table]
    wanted: list[Rows]
    ordered: bool


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape, or when its
    query fails or gives the same result whatever the table holds.
    """
    try:
        truth = _read(ground_truth)
    except _NoVerdict as reason:
        return reason.verdict
    text = code_or_answer(answer)
    if isinstance(text, Verdict):
        return text
    # A blank or a comment is a statement without a result for SQLite.
    if not re.search(r"\bselect\b", text, re.IGNORECASE):
        return Verdict(0.0, "no_answer", "no SELECT")
    verdict = _judge(truth, run(truth.tables, text))
    return replace(verdict, detail=f"{verdict.detail} [{sandbox.level()}]".strip())


def _judge(truth: _Truth, found: list[Rows] | Verdict) -> Verdict:
    if isinstance(found, Verdict):
        return found
    for index, (want, have) in enumerate(zip(truth.wanted, found, strict=True)):
        if not _same(want, have, ordered=truth.ordered):
            where = "the table" if index == 0 else "a changed copy of the table"
            return Verdict(0.0, "mismatch", f"{len(have)} rows of {len(want)} over {where}")
    return Verdict(1.0, "pass")


def run(tables: Sequence[Table], program: str) -> list[Rows] | Verdict:
    """The rows that `program` gives over each table, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="dsm-table-") as name:
        folder = Path(name)
        job = {"program": program, "tables": [table._asdict() for table in tables]}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        # The sandbox sees neither this project nor its environment, only the interpreter's own.
        shutil.copyfile(table_runner.__file__, folder / "runner.py")
        python = str(Path(sys.executable).resolve())
        ended = sandbox.run(folder, [python, "-I", "-S", "-B", "runner.py"], _LIMITS)
    failed = _failure(ended)
    if failed is not None:
        return failed
    results = json.loads(ended.stdout)
    last = results[-1]
    if "error" in last:
        return Verdict(0.0, "rejected:sql" if last["denied"] else "runtime", last["error"][:200])
    return [result["rows"] for result in results]


def _failure(ended: sandbox.Finished) -> Verdict | None:
    if ended.limit == "wall":
        return Verdict(None, "infra:wall", "the machine did not get it done in time")
    if ended.stderr.startswith(sandbox.OWN_MESSAGES):
        return Verdict(None, "infra:sandbox", ended.stderr[:200])
    if ended.limit or "MemoryError" in ended.stderr:
        return Verdict(0.0, f"limit:{ended.limit or 'memory'}")
    if ended.code == 0:
        return None
    # The runner reports every fault of a query, so this is the interpreter's or the machine's.
    return Verdict(None, "infra:python", f"exit code {ended.code}", ended.stderr[-OUTPUT_CHARS:])


@functools.lru_cache(256)
def _read(ground_truth: str) -> _Truth:
    truth = truths.load("table_program", ground_truth)
    program = truths.text("table_program", truth, "program")
    tables = variants(_table(truth))
    wanted = run(tables, program)
    if isinstance(wanted, Verdict):
        if wanted.score is None:
            raise _NoVerdict(wanted)  # not kept by the cache, as a result would be
        truths.wrong("table_program", "program", "a query that runs", f"{program} ({wanted})")
    ordered = bool(truth.get("ordered"))
    if all(_same(wanted[0], rows, ordered=ordered) for rows in wanted):
        truths.wrong("table_program", "program", "one whose result depends on the cells", program)
    return _Truth(tables, wanted, ordered)


def _table(truth: dict[str, Any]) -> Table:
    columns = truths.texts("table_program", truth, "columns")
    rows = truth.get("rows")
    if not isinstance(rows, list) or not rows or len(rows) * len(columns) > MAX_CELLS:
        truths.wrong("table_program", "rows", f"a list of rows, at most {MAX_CELLS} cells", rows)
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            truths.wrong("table_program", "rows", f"rows of {len(columns)} cells", row)
        if not all(cell is None or type(cell) in (int, float, str) for cell in row):
            truths.wrong("table_program", "rows", "rows of numbers, texts and null", row)
    if len({column.casefold() for column in columns}) < len(columns):
        raise UserError(f"ground truth of a table_program row: columns alike: {columns}")
    return Table(tuple(columns), rows)


def variants(table: Table) -> list[Table]:
    """The table, and changed copies of it: the same ones for the same table.

    A right query may lean on what the table shows: keys that are all there and differ, where a
    cell is empty, that no two rows tie. So rows are neither added nor left out, empty cells stay
    with the key in their first column, and equal cells alone become equal ones.
    """
    rng = random.Random(json.dumps(table))
    found = [table]
    for index in range(VARIANTS):
        keys, *others = zip(*table.rows, strict=True)
        columns = [list(keys), *(_shuffled(column, rng) for column in others)]
        if index % 2:
            columns = [_redrawn(column, rng) for column in columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        found.append(Table(table.columns, rng.sample(rows, len(rows))))
    return found


def _shuffled(column: Sequence[Cell], rng: random.Random) -> list[Cell]:
    """Cells of the same type exchanged."""
    left: dict[type, list[Cell]] = {}
    for cell in rng.sample(column, len(column)):
        left.setdefault(type(cell), []).append(cell)
    return [left[type(cell)].pop() for cell in column]


def _redrawn(column: Sequence[Cell], rng: random.Random) -> list[Cell]:
    """Each distinct number another one, of the same sign and by up to a half more or less."""
    drawn: dict[Cell, Cell] = {}
    for cell in column:
        if isinstance(cell, str) or not cell or cell in drawn:
            continue
        new = cell * rng.uniform(0.5, 1.5)
        if isinstance(cell, int):
            step = 1 if cell > 0 else -1
            new = round(new) or step
            while new in drawn.values():
                new += step
        drawn[cell] = new
    return [drawn.get(cell, cell) for cell in column]


def _same(want: Rows, have: Rows, *, ordered: bool) -> bool:
    if len(want) != len(have):
        return False
    if not ordered:
        want, have = sorted(want, key=_order), sorted(have, key=_order)
    return all(
        len(one) == len(other) and all(map(_equal, one, other))
        for one, other in zip(want, have, strict=True)
    )


def _order(row: list[Cell]) -> list[tuple[int, float, str]]:
    """Numbers by nine digits, so that rounding does not change the order of equal rows."""
    return [
        (0, 0.0, "") if cell is None
        else (1, 0.0, cell) if isinstance(cell, str)
        else (2, float(f"{cell:.9g}"), "")
        for cell in row
    ]  # fmt: skip


def _equal(one: Cell, other: Cell) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other
