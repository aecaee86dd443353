"""Upstream's own verdicts and figures, mistakes included: logs -> letters, answers -> scores."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from scoring_inputs import STEP, STEP_RIGHT, STEP_SET, STEP_WRONG, Declare, write_step_benchmark

from evaluation import grade
from evaluation.benchmarks import Benchmark
from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.contents import layout_of
from evaluation.benchmarks.verilog.grader import Judgement, ProblemGrader
from evaluation.benchmarks.verilog.official import Log, has_rules, printed_rate, read_v2, refusal
from evaluation.benchmarks.verilog.problems import READERS, Problem, read_benchmark
from evaluation.results import summarise

V2 = "verilog_eval_v2_code_complete"
V1 = "verilog_eval_v1_human"
RTLLM = "rtllm_v1.1"
RIGHT_LINE = "Mismatches: 0 in 100 samples"
WRONG_LINE = "Mismatches: 3 in 100 samples"

needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


@pytest.mark.parametrize(
    ("letter", "log"),
    [
        (".", RIGHT_LINE),
        (".", f"a.sv:3: warning: Port 2 (x) of M expects 3 bits.\n{RIGHT_LINE}"),
        ("S", "a.sv:3: syntax error\na.sv:1: error: Invalid module instantiation"),
        ("e", "a.sv:9: error: This assignment requires an explicit cast."),
        ("0", "a.sv:2: error: Sized numeric constant must have a size greater than zero."),
        ("n", f"a.sv:5: warning: always_comb process has no sensitivities.\n{RIGHT_LINE}"),
        (
            "n",
            f"a.sv:5: warning: @* found no sensitivities so it will never trigger.\n{RIGHT_LINE}",
        ),
        (
            "w",
            "a.sv:7: error: q is not a valid l-value\na.sv:2:      : q is declared here as wire.",
        ),
        ("m", "a.sv:4: error: Unknown module type: helper\n2 error(s) during elaboration."),
        ("c", "a.sv:6: error: Unable to bind wire/reg/memory `clk' in `tb.top_module1'"),
        ("p", "a.sv:6: error: Unable to bind wire/reg/memory `d' in `tb.top_module1'"),
        ("T", f"TIMEOUT\n{RIGHT_LINE}"),
        ("C", "a.sv:6: error: port ``Y2'' is not a port of top_module1."),
        ("C", f"a.sv:6: warning: no error\n{RIGHT_LINE}"),
        ("R", WRONG_LINE),
        ("R", ""),
        ("R", f" {RIGHT_LINE}"),  # looked for at the start of a line, to its end
        ("R", f"{RIGHT_LINE} more"),
    ],
)
def test_each_letter_of_verilog_eval_v2(letter: str, log: str) -> None:
    assert read_v2(Log("", log, "module TopModule;")).letter == letter
    assert (refusal(V2, Log("", log)) == "") == (letter == ".")


@pytest.mark.parametrize(
    ("log", "letter"),
    [
        # The first line with one of the words ends the reading, whatever stands below.
        ("TIMEOUT\na.sv:3: syntax error", "T"),
        ("a.sv:3: syntax error\nTIMEOUT", "S"),
        ("a.sv:1: error: x\na.sv:4: error: Unknown module type: y", "m"),
        # Without one of them the whole log is read: unbound names before other errors.
        ("a.sv:1: error: x\na.sv:2: error: Unable to bind wire/reg/memory `d'", "p"),
        (f"{WRONG_LINE}\n{RIGHT_LINE}", "."),  # one line of 0 is enough
    ],
)
def test_the_order_in_which_verilog_eval_v2_reads(log: str, letter: str) -> None:
    assert read_v2(Log(log)).letter == letter


@pytest.mark.parametrize("words", ["posedge reset", "negedge reset", "posedge r)"])
def test_a_mismatch_with_an_asynchronous_reset_has_a_letter_of_its_own(words: str) -> None:
    code = f"always @(posedge clk, {words} q <= d;"
    assert read_v2(Log("", WRONG_LINE, code)).letter == "r"
    assert read_v2(Log("", RIGHT_LINE, code)).letter == "."


@pytest.mark.parametrize(
    ("stderr", "stdout", "said"),
    [
        ("", RIGHT_LINE, ""),
        ("", f"VCD info\n Hint: {RIGHT_LINE} more", ""),  # looked for anywhere
        ("", f"{RIGHT_LINE}\n{WRONG_LINE}", ""),  # the first one counts
        ("", f"{WRONG_LINE}\n{RIGHT_LINE}", "failed: 3 out of 100 samples."),
        ("", "TIMEOUT", "failed: info string not matched."),
        ("", f"TIMEOUT\n{RIGHT_LINE}", ""),
        ("a.sv:3: warning: timescale", RIGHT_LINE, "failed: compile error."),
        ("\n", RIGHT_LINE, "failed: compile error."),
        ("a.sv:3: syntax error", "", "failed: syntax error."),
    ],
)
def test_any_text_on_stderr_is_a_compile_error_in_verilog_eval_v1(
    stderr: str, stdout: str, said: str
) -> None:
    found = refusal(V1, Log(stderr, stdout))
    assert found.startswith(said)
    assert (found == "") == (said == "")


@pytest.mark.parametrize(
    ("printed", "right"),
    [
        ("===========Your Design Passed===========", True),
        ("===========Failed=========== 3\n 10 Passed 1 * 1 = 1", True),
        ("bypass", True),
        ("TEST PASSED", False),  # neither Pass nor pass
        ("===========Error===========", False),
        ("", False),
    ],
)
def test_rtllm_looks_for_a_word_in_all_that_is_printed(printed: str, right: bool) -> None:
    assert (refusal(RTLLM, Log("a.v:1: warning: x", printed)) == "") == right


def test_an_assertion_over_cycles_is_a_syntax_error_of_icarus_alone() -> None:
    for name in (V1, V2):
        assert "syntax error" in refusal(name, Log("", RIGHT_LINE, asserts=True))
    assert refusal(RTLLM, Log("", "Passed", asserts=True)) == "", "upstream has VCS"


def test_every_public_benchmark_has_rules_and_a_set_of_your_own_has_none() -> None:
    assert {name for name in READERS if not has_rules(name)} == {"local_set"}
    for name in (*(f"{name}_layout" for name in READERS), "local_set"):
        assert not has_rules(name)
        assert refusal(name, Log("error", "TIMEOUT")) == ""


@pytest.mark.parametrize(
    ("benchmark", "passed", "samples", "k", "problems", "rate"),
    [
        (V2, 2, 3, 1, 156, 0.66),  # cut, not rounded
        (V2, 29, 100, 1, 156, 0.28),  # 29 / 100 * 100 is 28.99... in upstream's floats
        (V2, 5, 5, 1, 156, 1.0),
        (V2, 2, 3, 3, 156, 1.0),
        (V1, 2, 3, 1, 156, 2 / 3),
        (V1, 1, 5, 5, 156, 1.0),
        (RTLLM, 5, 5, 1, 29, 29 / 30),
        (RTLLM, 1, 5, 5, 29, 29 / 30),
        ("rtllm_v2.0", 1, 2, 1, 50, 0.5 * 50 / 51),
    ],
)
def test_the_printed_figure_has_upstreams_arithmetic(
    benchmark: str, passed: int, samples: int, k: int, problems: int, rate: float
) -> None:
    found = printed_rate(benchmark, passed=passed, samples=samples, k=k, problems=problems)
    assert found == pytest.approx(rate)


@pytest.mark.parametrize(("name", "official"), [(V2, 0.66), (V1, 2 / 3), (RTLLM, 2 / 3 * 1 / 2)])
def test_a_result_prints_what_upstream_would(name: str, official: float) -> None:
    """Two of three answers to one problem; the audited score is the plain estimate."""
    benchmark = Benchmark(name, name, "", None, sampled=True, has_official=True)
    graded = [Graded("", float(right), "pass" if right else "mismatch", "",
                     "pass" if right else "mismatch (R)") for right in (1, 1, 0)]  # fmt: skip
    found = summarise(
        benchmark, [{"row_id": "p", "fact_id": ""}], {"m": {"p": graded}},
        ks=(1,), seed=0, seconds={},
    )  # fmt: skip
    assert found.scores["m"]["pass@1"].value == pytest.approx(2 / 3)
    assert found.scores["m"]["official_pass@1"].value == pytest.approx(official)


def judge(source: Path, name: str, task_id: str, cache: Path, *codes: str) -> list[Judgement]:
    """By the rules of the benchmark whose layout it is."""
    problem = replace(read_benchmark(name, source)[task_id], benchmark=layout_of(name))
    grader = ProblemGrader(problem, Cache(cache))
    assert not grader.prepare().unusable
    found = [grader.extract(code) for code in codes]
    return [grader.judge(code) for code in found if isinstance(code, str)]


@needs_icarus
def test_what_is_simulated_here_gets_upstreams_letter(tmp_path: Path) -> None:
    source = write_step_benchmark(tmp_path / "step")
    asynchronous = STEP_WRONG.replace("@(posedge clk)", "@(posedge clk, posedge reset)")
    unknown = STEP_RIGHT.replace("endmodule", "helper h(clk);\nendmodule")
    found = judge(
        source, STEP_SET, STEP, tmp_path / "cache",
        STEP_RIGHT, STEP_WRONG, asynchronous, STEP_RIGHT.replace(";", "", 1), unknown,
        STEP_RIGHT.replace("reset", "rst"),
    )  # fmt: skip
    assert [one.outcome for one in found] == [
        "pass", "mismatch", "mismatch", "compile", "compile", "interface",
    ]  # fmt: skip
    assert [one.official[-3:] for one in found] == ["", "(R)", "(r)", "(S)", "(m)", "(C)"]


@needs_icarus
def test_rtllm_counts_a_bench_that_prints_passed_beside_a_failure(tmp_path: Path) -> None:
    """As v2.0's ring_counter does: upstream counts whatever gets to the end."""
    source = write_follower(tmp_path / "rtllm")
    right = "module follower(input a, output q); assign q = a; endmodule"
    wrong, open_end = right.replace("= a", "= !a"), right.replace("assign q = a;", "")
    found = judge(source, f"{RTLLM}_layout", "follower", tmp_path / "cache", right, wrong, open_end)
    assert [one.outcome for one in found] == ["pass", "mismatch", "mismatch"]
    assert [one.official for one in found] == [""] * 3


@needs_icarus
def test_rtllm_counts_nothing_that_no_bench_calls_passed(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / RTLLM
    problem = read_benchmark(RTLLM, source)["adder_8bit"]
    right = problem.reference.replace(problem.reference_top, problem.top)
    empty = f"{right[: right.index(';') + 1]} endmodule"
    found = judge(source, RTLLM, "adder_8bit", tmp_path / "cache", right, empty)
    assert [(one.outcome, one.official) for one in found] == [
        ("pass", ""), ("mismatch", "no 'Pass' or 'pass' in the output"),
    ]  # fmt: skip


@needs_icarus
def test_the_same_answers_divide_by_one_problem_more_in_rtllm(
    tmp_path: Path, declare: Declare
) -> None:
    source = write_follower(tmp_path / "rtllm")
    reference = next(source.rglob("verified_*.v")).read_text().replace("verified_", "")
    (tmp_path / "answers.jsonl").write_text(
        json.dumps({"task_id": "follower", "sample": 0, "answer": reference}) + "\n"
    )
    assert grade.main([
        "--benchmark", f"{declare(RTLLM, ['follower'])}={source}",
        "--answers", str(tmp_path / "answers.jsonl"),
        "--out", str(tmp_path / "out.jsonl"), "--cache", str(tmp_path / "cache"),
        "--json", str(tmp_path / "summary.json"),
    ]) == 0  # fmt: skip
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["audited"]["pass_at"][0]["value"] == 1
    assert summary["official"]["pass_at"][0]["value"] == pytest.approx(1 / 2)


@needs_icarus
def test_letters_agree_with_upstreams_own_flow(shared_data: Path, tmp_path: Path) -> None:
    """References and mutants, by upstream's commands and with its unchanged bench."""
    source = shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"
    problems = read_benchmark(V2, source)
    compared: dict[str, str] = {}
    for task_id in ("Prob031_dff", "Prob035_count1to10", "Prob047_dff8ar", "Prob057_kmap2",
                    "Prob107_fsm1s", "Prob082_lfsr32"):  # fmt: skip
        right = problems[task_id].reference.replace("RefModule", "TopModule")
        codes = {
            right, right.replace("&", "|"), right.replace("posedge", "negedge"),
            right.replace(";", "", 1), right.replace("endmodule", "gone g();\nendmodule"),
            right.replace("endmodule", "assign nothing = 1;\nendmodule"),
            right.replace("input", "output", 1), right.replace("clk", "clock"),
            right.replace("endmodule", "always @(*) begin end\nendmodule"),
        }  # fmt: skip
        ordered = sorted(codes) if task_id != "Prob082_lfsr32" else [right]  # a slow one
        found = judge(source, V2, task_id, tmp_path / "cache", *ordered)
        assert len(found) == len(ordered)
        for code, judged in zip(ordered, found, strict=True):
            wanted = refusal(V2, upstreams_log(problems[task_id], code, tmp_path))
            assert judged.official[-3:] == wanted[-3:], (task_id, code, judged)
            compared[wanted[-3:]] = code
    assert {"", "(R)", "(S)", "(m)", "(C)", "(T)"} <= set(compared)


def upstreams_log(problem: Problem, code: str, folder: Path) -> Log:
    for name, text in (("a.sv", code), ("t.sv", problem.bench), ("r.sv", problem.reference)):
        (folder / name).write_text(text)
    (folder / "b").unlink(missing_ok=True)
    command = "iverilog -Wall -Winfloop -Wno-timescale -g2012 -s tb -o b a.sv t.sv r.sv"
    compiled = subprocess.run(
        command.split(), cwd=folder, capture_output=True, text=True, check=False
    )
    if compiled.returncode:
        return Log(compiled.stderr, "", code)
    ran = subprocess.run(
        ["prlimit", "--cpu=20", "vvp", "-n", "b"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Log(compiled.stderr, ran.stdout, code)


def write_follower(folder: Path) -> Path:
    """A design in RTLLM's layout whose bench ends with `Design Passed` whatever it found."""
    design = folder / "Control" / "Wires" / "follower"
    design.mkdir(parents=True)
    (design / "design_description.txt").write_text("Follow the input.\n")
    (design / "verified_follower.v").write_text(
        "module verified_follower(input a, output q); assign q = a; endmodule\n"
    )
    (design / "testbench.v").write_text(
        """module testbench;
  reg a = 0; wire q;
  follower dut(.a(a), .q(q));
  initial begin
    repeat (4) begin
      #5 a = ~a;
      #5 if (q !== a) $display("Failed at a=%b, q=%b", a, q);
    end
    $display("=========== Your Design Passed ===========");
    $finish;
  end
endmodule
"""
    )
    return folder


@needs_icarus
def test_an_answer_that_is_refused_unrun_is_said_to_be_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], declare: Declare
) -> None:
    """A forged line passes upstream; here it is never run, and the summary says so."""
    source = write_step_benchmark(tmp_path / "step")
    forged = STEP_WRONG.replace("endmodule", "initial force tb.tb_match = 1;\nendmodule")
    (tmp_path / "answers.jsonl").write_text(
        "".join(
            json.dumps({"task_id": STEP, "sample": sample, "answer": text}) + "\n"
            for sample, text in enumerate((STEP_RIGHT, forged))
        )
    )
    assert grade.main([
        "--benchmark", f"{declare(V2, [STEP])}={source}",
        "--answers", str(tmp_path / "answers.jsonl"),
        "--out", str(tmp_path / "out.jsonl"), "--cache", str(tmp_path / "cache"),
    ]) == 0  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[1]["official"].startswith("rejected:")
    assert "1 refused before they ran" in capsys.readouterr().out
