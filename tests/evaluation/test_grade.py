"""The grading command, on a small benchmark in upstream's layout and on upstream's own files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scoring_inputs import STEP as NAME
from scoring_inputs import STEP_BODY as BODY
from scoring_inputs import STEP_RIGHT as RIGHT
from scoring_inputs import STEP_SET, Declare, write_step_benchmark
from scoring_inputs import STEP_WRONG as WRONG

from evaluation import grade
from evaluation.benchmarks.verilog import golden as goldens
from evaluation.benchmarks.verilog import grader, self_test
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.contents import known_ids
from evaluation.benchmarks.verilog.errata import Erratum, read_errata
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark
from evaluation.benchmarks.verilog.public_set import read_public_set, refuse_too_many_unusable
from evaluation.benchmarks.verilog.recording import recording_bench
from evaluation.benchmarks.verilog.summary import excluded_by
from evaluation.graded_elsewhere import only
from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog import BrokenToolchainError, tool_version
from evaluation.verifiers.verilog_simulation import Bench, Driven
from workspace.errors import UserError
from workspace.paths import Workspace

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

V2 = "verilog_eval_v2_code_complete"


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return write_step_benchmark(tmp_path / "dataset")


class Run:
    """Runs the command in a folder."""

    def __init__(self, folder: Path, benchmark: Path, name: str = STEP_SET) -> None:
        self.folder, self.benchmark, self.name = folder, benchmark, name

    def __call__(self, rows: list[dict[str, Any]] | str, *flags: str) -> int:
        text = rows if isinstance(rows, str) else "".join(json.dumps(r) + "\n" for r in rows)
        (self.folder / "answers.jsonl").write_text(text)
        return grade.main([
            "--benchmark", f"{self.name}={self.benchmark}",
            "--answers", str(self.folder / "answers.jsonl"),
            "--out", str(self.folder / "verdicts.jsonl"),
            "--cache", str(self.folder / "cache"),
            "--json", str(self.folder / "summary.json"), *flags,
        ])  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        text = (self.folder / "verdicts.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def verdicts(self) -> list[str]:
        return [line["verdict"] for line in self.lines()]

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found


@pytest.fixture
def run(tmp_path: Path, benchmark: Path) -> Run:
    return Run(tmp_path, benchmark)


def answers(*texts: str, task: str = NAME) -> list[dict[str, Any]]:
    return [{"task_id": task, "sample": i, "answer": text} for i, text in enumerate(texts)]


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
    (run.benchmark / f"{NAME}_{kind}").unlink()
    assert run(answers(RIGHT)) == 2
    assert f"{NAME}_{kind} is missing" in capsys.readouterr().err


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


def v2_folder(shared_data: Path) -> Path:
    return shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"


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


def test_errata_name_real_problems() -> None:
    known, errata = known_ids(), read_errata()
    assert {name for e in errata.errata for name in e.benchmarks} == set(known)
    unknown = {
        (name, e.problem)
        for e in errata.errata
        for name in e.benchmarks
        if e.problem not in known[name]
    }
    assert not unknown


@pytest.mark.parametrize(
    ("name", "version", "excluded"),
    [
        (V2, "12", {"Prob053_m2014_q4d"}),
        ("rtllm_v1.1", "11", {"asyn_fifo", "div_16bit", "radix2_div"}),
        ("rtllm_v1.1", "12", {"asyn_fifo", "div_16bit", "radix2_div", "pe"}),
        ("rtllm_v2.0", "11", {"asyn_fifo", "clkgenerator", "radix2_div", "ring_counter"}),
        ("rtllm_v2.0", "12", {"asyn_fifo", "clkgenerator", "radix2_div", "ring_counter"}),
    ],
)
def test_errata_exclude_what_cannot_be_judged(name: str, version: str, excluded: set[str]) -> None:
    found = read_errata().of(name, f"Icarus Verilog {version}.0")
    assert set(excluded_by(found, {})) == excluded


def test_the_errata_exclude_every_reference_that_cannot_be_run_here(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "rtllm_v1.1"
    found = read_public_set("rtllm_v1.1", source, limit=None, seed=0, cache=tmp_path / "cache")
    by_errata = excluded_by(read_errata().of("rtllm_v1.1", tool_version()), {})
    assert found.prepare() == by_errata


def test_a_small_choice_of_known_broken_problems_is_no_broken_simulator(
    shared_data: Path, tmp_path: Path
) -> None:
    """Two of three: their errata say why, and the third one runs."""
    source = shared_data / "rtllm_v1.1"
    found = read_public_set("rtllm_v1.1", source, limit=None, seed=0, cache=tmp_path / "cache")
    few = only(found, ["radix2_div", "asyn_fifo", "adder_8bit"])
    assert set(few.prepare()) == {"radix2_div", "asyn_fifo"}
    run = Run(tmp_path, source, "rtllm_v1.1")
    right = {n: p.reference.replace(p.reference_top, p.top) for n, p in few.problems.items()}
    rows = [row for name, text in right.items() for row in answers(text, task=name)]
    assert run(rows, "--only-answered") == 0
    assert run.summary()["audited"]["passed"] == 1


def test_the_toolchain_is_judged_by_the_problems_that_have_no_errata() -> None:
    broken = {
        f"p{n}": [Erratum(benchmarks=(V2,), problem=f"p{n}", effect=effect, what="w", evidence="e")]
        for n, effect in enumerate(("exclude", "exclude", "exclude", "note"))
    }
    unusable = dict.fromkeys(("p0", "p1", "p2", "p4"), "compile")
    names = [f"p{n}" for n in range(10)]
    refuse_too_many_unusable(V2, unusable, names, broken)  # one of seven
    for more in ("p3", "p5"):  # one with a note is expected to run
        with pytest.raises(BrokenToolchainError, match="2 of 7 references"):
            refuse_too_many_unusable(V2, {**unusable, more: "compile"}, names, broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evidence": ""}, "evidence"),
        ({"evidence": " "}, "evidence"),
        ({"what": ""}, "what"),
        ({"problem": ""}, "problem"),
        ({"benchmarks": []}, "benchmarks"),
        ({"effect": "ignore"}, "effect"),
    ],
)
def test_an_erratum_without_its_evidence_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    whole = {"benchmarks": [V2], "problem": "p", "effect": "note", "what": "w", "evidence": "e"}
    path = tmp_path / "errata.yaml"
    path.write_text(json.dumps({"version": 1, "errata": [whole]}))
    assert read_errata(path).errata
    path.write_text(json.dumps({"version": 1, "errata": [{**whole, **change}]}))
    with pytest.raises(UserError, match=rf"(?s)errata\.yaml.*{said}"):
        read_errata(path)


def test_a_broken_errata_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "errata.yaml").write_text("version: 1\nerrata: [{problem: x}]\n")
    with pytest.raises(UserError, match=r"errata\.yaml"):
        read_errata(tmp_path / "errata.yaml")


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


def test_a_broken_simulator_stops_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        goldens, "run_in_bench", lambda *_, **__: Verdict(0.0, "compile", "ivl missing")
    )
    assert run(answers(RIGHT)) == 1
    assert "cannot run a counter" in capsys.readouterr().err
    assert not (run.folder / "verdicts.jsonl").exists()
