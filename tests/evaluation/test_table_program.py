"""Queries as answers: right ones pass however they are written, constants and attacks fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.verifiers import sandbox, table_program, verify
from workspace.errors import UserError

POWER = {
    "columns": ["mode", "power (mW)"],
    "rows": [["idle", 1.25], ["run", 40.0], ["sleep", 0.1], ["boot", 22.5], ["test", None]],
}
HIGHEST = {**POWER, "program": 'SELECT mode FROM t ORDER BY "power (mW)" DESC LIMIT 1'}
TOTAL = {**POWER, "program": "SELECT SUM(\"power (mW)\") FROM t WHERE mode IN ('idle', 'boot')"}
ABOVE = {**POWER, "program": 'SELECT mode FROM t WHERE "power (mW)" > 1 ORDER BY mode'}


def outcome(truth: object, answer: str) -> str:
    return verify("table_program", json.dumps(truth), answer).outcome


@pytest.mark.parametrize(
    ("truth", "answer"),
    [
        (HIGHEST, HIGHEST["program"]),
        (HIGHEST, 'SELECT mode FROM t WHERE "power (mW)" = (SELECT MAX("power (mW)") FROM t);'),
        (HIGHEST, "<think>min?</think>\n```sql\n"
                  "select t.mode from t order by 1 * [power (mW)] desc limit 1\n```"),
        (HIGHEST, "Answer: WITH a AS (SELECT mode m, RANK() OVER (ORDER BY [power (mW)] DESC) r "
                  "FROM t) SELECT m FROM a WHERE r = 1"),
        (TOTAL, 'SELECT (SELECT "power (mW)" FROM t WHERE mode = \'boot\') + '
                '(SELECT "power (mW)" FROM t WHERE mode = \'idle\')'),
        (ABOVE, 'SELECT mode FROM t WHERE NOT "power (mW)" <= 1 -- any order'),
    ],
)  # fmt: skip
def test_a_right_query_passes(truth: dict[str, object], answer: str) -> None:
    assert outcome(truth, answer) == "pass"


@pytest.mark.parametrize("answer", [HIGHEST["program"], "SELECT 'run'", "SELECT nothing FROM t"])
def test_a_verdict_says_at_which_sandbox_level_the_query_ran(answer: str) -> None:
    assert verify("table_program", json.dumps(HIGHEST), answer).detail.endswith(
        f"[{sandbox.level()}]"
    )


@pytest.mark.parametrize(
    ("truth", "answer", "expected"),
    [
        (HIGHEST, "SELECT 'run'", "mismatch"),  # the result as a constant
        (HIGHEST, "SELECT mode FROM t LIMIT 1 OFFSET 1", "mismatch"),  # by its place
        (HIGHEST, "SELECT mode FROM t WHERE mode = 'run'", "mismatch"),
        (HIGHEST, 'SELECT mode, "power (mW)" FROM t ORDER BY 2 DESC LIMIT 1', "mismatch"),
        (TOTAL, "SELECT 23.75 FROM t LIMIT 1", "mismatch"),
        ({**ABOVE, "ordered": True}, f"{ABOVE['program']} DESC", "mismatch"),
        (HIGHEST, "run", "no_answer"),
        (HIGHEST, "SELECT nothing FROM t", "runtime"),
        (HIGHEST, "SELECT 1; SELECT 2", "runtime"),
        (HIGHEST, "SELEC mode -- select", "runtime"),
        (HIGHEST, "SELECT \ud800", "runtime"),
        (HIGHEST, "-- select", "runtime"),
    ],
)
def test_a_wrong_query_fails(truth: object, answer: str, expected: str) -> None:
    assert outcome(truth, answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "ATTACH '/tmp/attached.db' AS x -- select",
        "PRAGMA writable_schema = 1 -- select",
        "CREATE TABLE u AS SELECT * FROM t",
        "INSERT INTO t SELECT * FROM t",
        "DROP TABLE t -- select",
        "VACUUM INTO '/tmp/vacuumed.db' -- select",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT writefile('/tmp/written', 'x')",
        "SELECT readfile('job.json')",
        "SELECT sql FROM sqlite_master",
        "SELECT * FROM pragma_database_list",
        "SELECT random() FROM t",
        "SELECT datetime('now')",
        "SELECT hex(zeroblob(100000000))",
    ],
)
def test_a_query_reads_the_table_and_nothing_else(answer: str) -> None:
    verdict = verify("table_program", json.dumps(HIGHEST), answer)
    assert verdict.score == 0.0
    assert verdict.outcome in ("rejected:sql", "runtime")
    assert not any(Path(f"/tmp/{n}").exists() for n in ("attached.db", "vacuumed.db", "written"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n",
         "limit:cpu"),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
         "runtime"),
        ("WITH RECURSIVE n(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM n) SELECT x FROM n",
         "runtime"),
    ],
)  # fmt: skip
def test_an_endless_query_ends(answer: str, expected: str) -> None:
    assert outcome(HIGHEST, answer) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"program": "SELECT COUNT(mode) * 0 FROM t"},  # whatever the table holds
        {"program": "SELECT nothing FROM t"},
        {"program": ""},
        {"rows": []},
        {"rows": [["idle"]]},
        {"rows": [["idle", [1]]]},
        {"columns": ["mode", "MODE"]},
    ],
)
def test_a_ground_truth_that_judges_nothing_is_the_users_error(change: object) -> None:
    with pytest.raises(UserError, match="table_program"):
        verify("table_program", json.dumps({**HIGHEST, **change}), "SELECT 1")  # type: ignore[dict-item]


def test_a_fault_of_the_machine_is_no_verdict_and_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = {**HIGHEST, "rows": [*POWER["rows"], ["fault", 3.0]]}
    monkeypatch.setattr(
        table_program.sandbox,
        "run",
        lambda *_, **__: sandbox.Finished(137, "wall", "", "", 0.0),
    )
    verdict = verify("table_program", json.dumps(truth), str(HIGHEST["program"]))
    assert (verdict.score, verdict.outcome) == (None, "infra:wall")
    monkeypatch.undo()
    assert outcome(truth, str(HIGHEST["program"])) == "pass"


def test_changed_copies_are_the_same_each_time() -> None:
    table = table_program.Table(("a", "b"), [["x", 1], ["y", 2.5], ["z", None]])
    first, again = table_program.variants(table), table_program.variants(table)
    assert first == again
    assert first[0] == table
    assert len({json.dumps(one) for one in first}) > table_program.VARIANTS / 2


CELLS = st.one_of(st.none(), st.integers(-50, 50), st.floats(-1e3, 1e3), st.text(max_size=3))


@given(rows=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=12))
def test_changed_copies_keep_what_a_right_query_may_lean_on(rows: list[list[Any]]) -> None:
    for copy in table_program.variants(table_program.Table(("a", "b"), rows)):
        for old, new in zip(zip(*rows, strict=True), zip(*copy.rows, strict=True), strict=True):
            assert sorted(map(str, map(type, old))) == sorted(map(str, map(type, new)))
            # Floats of a tiny size may fall together when they are scaled.
            whole = [{c for c in column if type(c) is int} for column in (old, new)]
            assert len(whole[0]) == len(whole[1])
            assert sorted(c for c in old if isinstance(c, str)) == sorted(
                c for c in new if isinstance(c, str)
            )
