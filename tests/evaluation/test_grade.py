"""The grading command, on a small benchmark in upstream's layout and on upstream's own files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grade_runs import V2, Run, answers, v2_folder
from scoring_inputs import STEP as NAME
from scoring_inputs import STEP_BODY as BODY
from scoring_inputs import STEP_RIGHT as RIGHT
from scoring_inputs import STEP_WRONG as WRONG
from scoring_inputs import Declare, write_step_benchmark

from evaluation import grade
from evaluation.benchmarks.verilog import golden as goldens
from evaluation.benchmarks.verilog import grader, self_test
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark
from evaluation.benchmarks.verilog.recording import recording_bench
from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_simulation import Bench, Driven

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return write_step_benchmark(tmp_path / "dataset")


@pytest.fixture
def run(tmp_path: Path, benchmark: Path) -> Run:
    return Run(tmp_path, benchmark)


def test_right_and_wrong_answers_in_every_form(run: Run) -> None:
    forms = [
        RIGHT,
        f"Here:\n```verilog\n{RIGHT}```\nDone.",
        f"<think>{WRONG}</think>\n[BEGIN]\n{RIGHT}[DONE]",
        BODY,
        f"{BODY}endmodule",
        f"```\n{BODY}endmodule\n```",
        RIGHT.replace("q <=", 'if (0) $display("%t (", $time); else q <='),
        f"{RIGHT}module tb; TopModule t(); initial #9 $finish; endmodule",
    ]
    wrong = [WRONG, BODY.replace("3", "2"), "", "<think>", "module TopModule(input clk"]
    assert run(answers(*forms, *wrong)) == 0
    assert run.verdicts() == ["pass"] * len(forms) + [
        "mismatch", "mismatch", "no_code", "no_code", "compile",
    ]  # fmt: skip
    score = run.summary()["audited"]
    assert (score["samples"], score["passed"]) == (13, 8)
    assert score["pass_at"][0]["value"] == pytest.approx(8 / 13)


def test_verdicts_are_the_same_for_any_order_and_number_of_workers(run: Run) -> None:
    rows = answers(RIGHT, WRONG, BODY, RIGHT, "nothing", WRONG)
    assert run(rows, "--workers", "1") == 0
    first = (run.folder / "verdicts.jsonl").read_bytes()
    shutil.rmtree(run.folder / "cache")
    (run.folder / "verdicts.jsonl").unlink()
    assert run(rows[::-1], "--workers", "4") == 0
    assert (run.folder / "verdicts.jsonl").read_bytes() == first


def test_answers_that_differ_in_comments_and_layout_are_simulated_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference itself was simulated when it was recorded."""
    simulated: list[str] = []
    drive = Bench.drive

    def noting(self: Bench, *arguments: Any, **options: Any) -> Driven | Verdict:
        simulated.append(self.code())
        return drive(self, *arguments, **options)

    assert run(answers(RIGHT)) == 0  # records the reference
    monkeypatch.setattr(Bench, "drive", noting)
    monkeypatch.setattr(grade, "self_test", lambda: None)
    reference = next(run.benchmark.glob("*_ref.sv")).read_text().replace("RefModule", "TopModule")
    commented = WRONG.replace("\n", "  /* endmodule */\n\n\t")
    forms = [WRONG, f"// first\n{WRONG}", commented, f"{WRONG}\n// last"]
    assert run(answers(*forms, reference, f"// mine\n{reference}")) == 0
    assert run.verdicts() == ["mismatch"] * 4 + ["pass"] * 2
    assert simulated == [min(forms)]


def test_a_run_continues_after_a_kill_and_notices_changed_answers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(answers(RIGHT, WRONG, RIGHT + "// 2")) == 0
    whole = (run.folder / "verdicts.jsonl").read_bytes()
    torn = whole[: whole.rfind(b"\n", 0, -1) + 40]
    (run.folder / "verdicts.jsonl").write_bytes(torn)
    judge = grader.ProblemGrader._judge

    def from_disk(self: grader.ProblemGrader, code: str) -> grader.Judgement:
        assert self.problem.task_id == "self_test", "all comes from the disk"
        return judge(self, code)

    monkeypatch.setattr(grader.ProblemGrader, "_judge", from_disk)
    assert run(answers(RIGHT, WRONG, RIGHT + "// 2")) == 0
    assert (run.folder / "verdicts.jsonl").read_bytes() == whole
    monkeypatch.undo()
    assert run(answers(WRONG, WRONG, RIGHT + "// 2")) == 0
    assert run.verdicts() == ["mismatch", "mismatch", "pass"]


def test_a_damaged_cache_entry_is_not_believed(run: Run) -> None:
    assert run(answers(WRONG)) == 0
    for path in (run.folder / "cache").rglob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"mismatch", b"pass"))
    (run.folder / "verdicts.jsonl").unlink()
    assert run(answers(WRONG)) == 0
    assert run.verdicts() == ["mismatch"]


def test_missing_samples_stay_in_the_denominator(run: Run, declare: Declare) -> None:
    other = NAME.replace("001", "002")
    run.name = declare(V2, [NAME, other])
    for path in list(run.benchmark.iterdir()):
        (run.benchmark / path.name.replace(NAME, other)).write_bytes(path.read_bytes())
    assert run(answers(RIGHT), "--samples", "4") == 0
    summary = run.summary()
    assert summary["missing"] == [[NAME, 3], [other, 4]]
    for rules in ("audited", "official"):
        assert summary[rules]["pass_at"][0]["value"] == pytest.approx(1 / 8)
    assert run(answers(RIGHT), "--only-answered") == 0
    for rules in ("audited", "official"):
        assert run.summary()[rules]["pass_at"][0]["value"] == 1


def test_a_fault_of_the_machine_is_no_verdict(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = sandbox.run

    def overdue(folder: Path, command: Any, limits: Any, **options: Any) -> sandbox.Finished:
        if any("STUCK" in path.read_text() for path in folder.glob("code.sv")):
            return sandbox.Finished(137, "wall", "", "", 0.0)
        return real(folder, command, limits, **options)

    monkeypatch.setattr(sandbox, "run", overdue)
    stuck = RIGHT.replace("posedge clk", "posedge clk /* STUCK */")
    assert run(answers(RIGHT, stuck)) == 1
    assert [line["sample"] for line in run.lines()] == [0]
    assert run.summary()["without_verdict"] == [[NAME, 1, "infra:wall"]]
    assert run.summary()["audited"] is None
    assert "NO VERDICT" in capsys.readouterr().out
    monkeypatch.undo()
    assert run(answers(RIGHT, stuck)) == 0
    assert run.verdicts() == ["pass", "pass"]


def test_a_verdict_of_another_sandbox_level_is_not_taken(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(answers(RIGHT, WRONG)) == 0
    first = run.lines()
    assert {line["sandbox"] for line in first} == {sandbox.level()}
    other: sandbox.Level = "none" if sandbox.level() != "none" else "rlimit"
    monkeypatch.setattr(sandbox, "level", lambda: other)
    assert run(answers(RIGHT, WRONG)) == 0
    assert {line["sandbox"] for line in run.lines()} == {other}
    assert not {line["key"] for line in run.lines()} & {line["key"] for line in first}


def test_the_guards_timeout_splits_the_two_scores(run: Run, declare: Declare) -> None:
    run.name = declare(V2, [NAME])
    bench = self_test._BENCH.replace(
        "  assign tb_match",
        '  initial begin #200 $display("TIMEOUT"); $finish(); end\n  assign tb_match',
    )
    (run.benchmark / f"{NAME}_test.sv").write_text(bench)
    assert run(answers(RIGHT, WRONG)) == 0
    assert run.verdicts() == ["pass", "mismatch"]
    assert (run.summary()["audited"]["passed"], run.summary()["official"]["passed"]) == (1, 0)
    assert run(answers(RIGHT, WRONG), "--no-errata") == 0
    assert run.verdicts()[0].startswith("official:TIMEOUT")


def test_a_stimulus_that_depends_on_the_reference_is_found(tmp_path: Path) -> None:
    """One that only hints at it is graded; one that steers by it is refused."""

    def golden(extra: str) -> grader.Golden:
        bench = self_test._BENCH.replace(
            "input tb_match);", f"input tb_match, input [3:0] q_ref);\n  {extra}"
        )
        problem = Problem(V2, "p", "TopModule", bench, self_test._REFERENCE, "RefModule")
        assert recording_bench(problem).reads_reference
        return grader.ProblemGrader(problem, Cache(tmp_path)).prepare()

    assert golden("reg [3:0] seen = 0; always @(posedge clk) seen <= seen | q_ref;").count
    steered = golden("always @(posedge clk) if (q_ref == 4'hf) reset <= 1;")
    assert steered.unusable == "bench"
    assert "depends on the reference" in steered.detail


def test_published_cheats_never_pass(shared_data: Path, tmp_path: Path) -> None:
    lines = (shared_data / "verilog_cheats" / "cheats.jsonl").read_text().splitlines()
    cheats = [json.loads(line)["answer"] for line in lines]
    run = Run(tmp_path, v2_folder(shared_data), V2)
    reference = (run.benchmark / "Prob035_count1to10_ref.sv").read_text()
    right = reference.replace("RefModule", "TopModule")
    assert run(answers(*cheats, right, task="Prob035_count1to10"), "--only-answered") == 0
    assert [v == "pass" for v in run.verdicts()] == [False] * 20 + [True]
    assert run.verdicts()[0] == "mismatch"  # the honest one


def test_verdicts_agree_with_upstreams_own_flow(shared_data: Path, tmp_path: Path) -> None:
    """References and mutants of some problems, judged by the unchanged bench with its reference."""
    problems = read_benchmark(V2, v2_folder(shared_data))
    compared = 0
    for task_id in sorted(problems)[3:140:26]:
        problem = problems[task_id]
        one = grader.ProblemGrader(problem, Cache(tmp_path / "cache"))
        one.prepare()
        right = problem.reference.replace("RefModule", "TopModule")
        swaps = (("&", "|"), ("1'b1", "1'b0"), ("posedge", "negedge"), ("q+1", "q-1"))
        for code in {right, *(right.replace(a, b) for a, b in swaps)}:
            judged = one.judge(code).outcome == "pass"
            assert judged == upstream_passes(problem, code, tmp_path), (task_id, code)
            compared += 1
    assert compared > 8


def upstream_passes(problem: Problem, code: str, folder: Path) -> bool:
    for name, text in (("a.sv", code), ("t.sv", problem.bench), ("r.sv", problem.reference)):
        (folder / name).write_text(text)
    command = "iverilog -Wall -Winfloop -Wno-timescale -g2012 -s tb -o b a.sv t.sv r.sv"
    if subprocess.run(command.split(), cwd=folder, capture_output=True, check=False).returncode:
        return False
    ran = subprocess.run(
        ["prlimit", "--cpu=20", "vvp", "-n", "b"], cwd=folder, capture_output=True, check=False
    )
    return re.search(rb"^Mismatches: 0 in \d+ samples", ran.stdout, re.MULTILINE) is not None


def test_the_benchs_print_cannot_be_forged_in_rtllm(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "rtllm_v1.1"
    run = Run(tmp_path, folder, "rtllm_v1.1")
    problem = read_benchmark("rtllm_v1.1", folder)["adder_8bit"]
    right = problem.reference.replace(problem.reference_top, problem.top)
    ports = right[: right.index(";") + 1]
    forged = f'{ports}\ninitial $display("===========Your Design Passed===========");\nendmodule'
    assert run(answers(right, forged, f"{ports} endmodule", task="adder_8bit"),
               "--only-answered") == 0  # fmt: skip
    assert run.verdicts() == ["pass", "mismatch", "mismatch"]


def test_every_benchmark_of_upstream_is_of_the_known_mould(shared_data: Path) -> None:
    v1 = shared_data / "verilog_eval_v1"
    sizes = {}
    for name, place in ((V2, v2_folder(shared_data)), ("verilog_eval_v1_human", v1),
                        ("verilog_eval_v1_machine", v1)):  # fmt: skip
        problems = read_benchmark(name, place)
        sizes[name] = sum(bool(recording_bench(problem)) for problem in problems.values())
    assert list(sizes.values()) == [156, 156, 143]
    assert len(read_benchmark("rtllm_v1.1", shared_data / "rtllm_v1.1")) == 29


def test_a_broken_simulator_stops_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        goldens, "run_in_bench", lambda *_, **__: Verdict(0.0, "compile", "ivl missing")
    )
    assert run(answers(RIGHT)) == 1
    assert "cannot run a counter" in capsys.readouterr().err
    assert not (run.folder / "verdicts.jsonl").exists()
