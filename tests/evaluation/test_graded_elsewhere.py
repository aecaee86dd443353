"""Graded answers on the leaderboard of a workspace, by the rules that they may be counted by."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from grade_runs import V2, Run, answers
from scoring_inputs import STEP as NAME
from scoring_inputs import STEP_RIGHT as RIGHT
from scoring_inputs import STEP_WRONG as WRONG
from scoring_inputs import Declare, write_step_benchmark

from evaluation import grade
from evaluation.benchmarks.verilog import grader
from evaluation.benchmarks.verilog.public_set import read_public_set
from workspace.paths import Workspace

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return write_step_benchmark(tmp_path / "dataset")


@pytest.fixture
def run(tmp_path: Path, benchmark: Path) -> Run:
    return Run(tmp_path, benchmark)


def test_a_result_stands_on_the_leaderboard_with_what_it_may_be_compared_with(
    tmp_path: Path, declare: Declare
) -> None:
    name = declare(V2, [NAME, NAME.replace("001", "002")])
    run = Run(tmp_path, write_step_benchmark(tmp_path / "two", problems=2), name)
    workspace = Workspace(tmp_path / "ws")
    flags = ("--samples", "2", "--workspace", str(workspace.root), "--model")
    rows = answers(RIGHT, f"// \ud800\n{WRONG}")
    assert run(rows, *flags, "ours") == 0
    assert run(rows, *flags, "ours") == 0  # the same answers make the same evaluation
    assert run(answers(RIGHT, RIGHT), *flags, "theirs") == 0
    board = json.loads(workspace.leaderboard.with_suffix(".json").read_text())
    audited, official = board["groups"]
    # Two problems of two samples, the second problem without any answer.
    for group in (audited, official):
        assert [(r["model"], r["score"]["value"]) for r in group["rows"]] == [
            ("theirs", 0.5), ("ours", 0.25),
        ]  # fmt: skip
    measured = audited["measured"]
    summary = run.summary()
    assert dict(measured["tool_versions"]) == {
        "simulator": summary["simulator"], "sandbox": summary["sandbox"],
    }  # fmt: skip
    assert measured["grader_version"].startswith(f"{grader.VERSION}, errata ")
    assert measured["answering"] == [["answers", "made elsewhere"]]
    of_flow = read_public_set(name, run.benchmark, limit=None, seed=0, cache=tmp_path / "cache")
    assert measured["data_hash"] == of_flow.data_hash
    evaluation = workspace.evaluations / audited["rows"][1]["evaluation"]
    outcomes = Counter(
        row["outcome"] for row in pq.read_table(evaluation / "samples.parquet").to_pylist()
    )
    assert outcomes == {"pass": 1, "mismatch": 1, "no_answer": 2}

    assert run(answers(RIGHT), "--only-answered", *flags[2:], "ours") == 0
    board = json.loads(workspace.leaderboard.with_suffix(".json").read_text())
    assert len(board["groups"]) == 4, "fewer problems are another benchmark"


def test_a_set_in_a_public_layout_has_no_score_by_upstreams_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed, in the JSON, in the verdicts, and on the leaderboard; missing samples or not."""
    run = Run(tmp_path, write_step_benchmark(tmp_path / "two", problems=2))
    workspace = Workspace(tmp_path / "ws")
    flags = ("--workspace", str(workspace.root), "--model", "ours")
    assert run(answers(RIGHT, WRONG), *flags) == 0
    assert "official" not in capsys.readouterr().out
    assert (run.summary()["official"], run.summary()["audited"]["passed"]) == (None, 1)
    assert [line["official"] for line in run.lines()] == ["", ""]
    [group] = json.loads(workspace.leaderboard.with_suffix(".json").read_text())["groups"]
    assert (group["rules"], group["rows"][0]["score"]["value"]) == ("audited", 0.25)
    evaluation = workspace.evaluations / group["rows"][0]["evaluation"]
    samples = pq.read_table(evaluation / "samples.parquet").to_pylist()
    assert [sample["official"] for sample in samples] == [None] * 4
    assert run(answers(RIGHT), "--no-errata") == 2
    assert "has no upstream" in capsys.readouterr().err


def test_a_place_on_the_leaderboard_is_refused_or_left_empty_for_its_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = run.folder / "ws"
    wanted = ("--workspace", str(workspace), "--model", "ours")
    for flags, said in (
        (wanted[:2], "go together"),
        (wanted[2:], "go together"),
        ((*wanted[:3], "a/b"), "a label is"),
        ((*wanted, "--no-errata"), "errata"),
    ):
        assert run(answers(RIGHT), *flags) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr(
        grader.ProblemGrader, "judge", lambda *_: grader.Judgement("infra:wall", "", "infra:wall")
    )
    monkeypatch.setattr(grade, "self_test", lambda: None)
    assert run(answers(RIGHT), *wanted) == 1
    assert not workspace.exists(), "a run without every verdict has no score"


def test_a_set_of_your_own_has_no_score_by_upstreams_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "own.jsonl"
    bench = (
        "module tb; reg a = 0; wire q; follower dut(a, q); initial begin #5 a = 1;\n"
        '  #5 if (q) $display("Design Passed"); else $display("failed"); $finish; end endmodule\n'
    )
    right = "module follower(input a, output q); assign q = a; endmodule\n"
    source.write_text(json.dumps(
        {"id": "f", "prompt": "Follow.", "reference": right, "testbench": bench}
    ))  # fmt: skip
    run = Run(tmp_path, source, "local_set")
    assert run(answers(right.replace("= a", "= a & a"), right.replace("= a", "= 0"), task="f")) == 0
    assert run.summary()["audited"]["passed"] == 1
    assert run.summary()["official"] is None
    assert "official" not in capsys.readouterr().out
    assert [line["official"] for line in run.lines()] == ["", ""]
    assert run(answers(right, task="f"), "--no-errata") == 2
    assert "has no upstream" in capsys.readouterr().err
