"""Files that the grading command reads and writes: what is wrong with them, and who may write."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from grade_runs import V2, Run, answers
from scoring_inputs import STEP, STEP_SET, Declare, write_step_benchmark
from scoring_inputs import STEP_RIGHT as RIGHT
from scoring_inputs import STEP_WRONG as WRONG

from evaluation.benchmarks.verilog.answers import MAX_LINE_BYTES, Verdicts, read_answers
from evaluation.benchmarks.verilog.problems import read_benchmark
from workspace.errors import UserError, WorkspaceBusyError

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return write_step_benchmark(tmp_path / "dataset")


@pytest.fixture
def run(tmp_path: Path, benchmark: Path) -> Run:
    return Run(tmp_path, benchmark)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no answers"),
        ('{"task_id": "Prob001_step", "sample": 0}\n', "line 1: 'answer'"),
        ('\n{"task_id": "Prob001_step", "sample": true, "answer": ""}\n', "line 2: 'sample'"),
        ('{"task_id": "Prob9", "sample": 0, "answer": ""}\n', "no problem 'Prob9'"),
        ('{"task_id": "Prob001_step", "sample": 0, "answer": ""}\n' * 2, "line 2: sample 0"),
        ("[1]\n", "JSON object"),
        ("\x00\n", "no JSON"),
    ],
)
def test_bad_answers_are_named_with_their_line(
    run: Run, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert run(text) == 2
    assert said in capsys.readouterr().err
    assert not (run.folder / "verdicts.jsonl").exists()


@pytest.mark.parametrize("kind", ["prompt.txt", "ref.sv", "test.sv", "ifc.txt"])
def test_a_missing_file_is_named(run: Run, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (run.benchmark / f"{STEP}_{kind}").unlink()
    assert run(answers(RIGHT)) == 2
    assert f"{STEP}_{kind} is missing" in capsys.readouterr().err


def test_wrong_usage_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.name = "verilog_eval_v9"
    assert run(answers(RIGHT)) == 2
    assert "unknown benchmark" in capsys.readouterr().err
    run.name = STEP_SET
    assert run(answers(RIGHT), "--workers", "0") == 2
    assert run(answers(RIGHT, WRONG), "--samples", "1") == 2
    (run.folder / "verdicts.jsonl").write_text("notes\n")
    assert run(answers(RIGHT)) == 2
    assert "no verdict of this program" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"task_id": "Prob001_step", "sample": 0, "answer": "a", "answer": "b"}\n', "twice"),
        ('{"task_id": "Prob001_step", "sample": 0, "answer": "a"', "no JSON"),
        ("[" * 100_000 + "\n", "no JSON"),
        ('{"task_id": "Prob001_step", "sample": 1e999, "answer": ""}\n', "'sample'"),
        ('{"task_id": "Prob001_step", "sample": 0, "answer": ["a"]}\n', "'answer'"),
        ('{"task_id": ["Prob001_step"], "sample": 0, "answer": ""}\n', "'task_id'"),
        (f'{{"task_id": "Prob001_step", "sample": 0, "answer": "{"a" * MAX_LINE_BYTES}"}}\n',
         "more than"),
    ],
)  # fmt: skip
def test_no_row_is_guessed_at(
    run: Run, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert run(text) == 2
    assert said in capsys.readouterr().err


def test_an_answers_file_from_windows_is_read(run: Run) -> None:
    rows = "".join(json.dumps(row) + "\r\n" for row in answers(RIGHT, WRONG))
    assert run(f"\ufeff{rows}") == 0
    assert run.verdicts() == ["pass", "mismatch"]


def test_a_line_without_an_end_is_not_read_whole() -> None:
    with pytest.raises(UserError, match="line 1: more than"):
        read_answers(Path("/dev/zero"), ["p"])


@pytest.mark.parametrize(
    "there",
    [
        "one line of notes",
        "notes\n",
        '{"task_id": "p"}\n',
        '{"task_id": [1], "sample": {}, "verdict": "", "detail": "", "official": "", "key": ""}\n',
        '{"task_id": "p", "sample": 0, "verdict": "", "detail": "", "official": "", "key": "", '
        '"benchmark": "rtllm_v1.1"}\n',
    ],
)  # fmt: skip
def test_a_file_that_is_not_this_benchmarks_verdicts_stays_as_it_is(
    run: Run, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    out = run.folder / "verdicts.jsonl"
    out.write_text(there)
    assert run(answers(RIGHT)) == 2
    assert "another --out" in capsys.readouterr().err
    assert out.read_text() == there


def test_the_verdicts_of_another_benchmark_are_not_replaced(
    run: Run, capsys: pytest.CaptureFixture[str], declare: Declare
) -> None:
    """Not even of one with the same problems."""
    assert run(answers(RIGHT)) == 0
    before = (run.folder / "verdicts.jsonl").read_bytes()
    run.name = declare(V2, [STEP])
    assert run(answers(WRONG)) == 2
    assert f"holds the verdicts of {STEP_SET}" in capsys.readouterr().err
    assert (run.folder / "verdicts.jsonl").read_bytes() == before


def test_what_is_read_or_is_no_file_is_not_written_to(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    read = run.folder / "answers.jsonl"
    for flag, path, said in (
        ("--out", read, "is read by this"),
        ("--json", read, "is read by this"),
        ("--json", run.folder / "verdicts.jsonl", "is read by this"),
        ("--out", Path("/dev/null"), "is no file"),
        ("--json", Path("/dev/null"), "is no file"),
        ("--out", run.folder, "is no file"),
    ):
        assert run(answers(RIGHT), flag, str(path)) == 2
        assert said in capsys.readouterr().err
    assert json.loads(read.read_text())["answer"] == RIGHT
    assert Path("/dev/null").is_char_device()


def test_of_two_runs_with_one_file_the_second_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run.folder / "verdicts.jsonl"
    first, late = Verdicts(out, STEP_SET), Verdicts(out, STEP_SET)
    first.add([])
    with closing(first), closing(late):
        assert run(answers(RIGHT)) == 2
        assert f"another run writes {out}" in capsys.readouterr().err
        with pytest.raises(WorkspaceBusyError):  # one that began when there was no file yet
            late.add([])
    assert run(answers(RIGHT)) == 0
    assert run.verdicts() == ["pass"]


def test_a_problem_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    row = {"task_id": "p", "prompt": "module top_module(", "test": "module reference_module();\n"}
    row["test"] += "endmodule\n"
    path = tmp_path / "VerilogEval_Human.jsonl"
    path.write_text(2 * (json.dumps(row) + "\n"))
    with pytest.raises(UserError, match="problem p more than once"):
        read_benchmark("verilog_eval_v1_human_layout", path)
