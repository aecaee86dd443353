"""What kind of design a public problem asks for, by the folder or by rule."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import open_chromium

from evaluation import grade
from evaluation.benchmarks.verilog.kinds import COMBINATIONAL, SEQUENTIAL, STATE_MACHINE, kind_of
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark
from evaluation.benchmarks.verilog.public_set import read_public_set
from workspace.paths import Workspace

V2 = "verilog_eval_v2_code_complete"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("assign q = a & b;", COMBINATIONAL),
        ("always @(*) case (a) 0: q = 1; default: q = 0; endcase", COMBINATIONAL),
        ("always_comb case (state) 0: next = a; 1: next = b; endcase", COMBINATIONAL),
        ("// at posedge clk\nassign q = a;", COMBINATIONAL),
        ("always @(posedge clk) q <= d;", SEQUENTIAL),
        ("always_latch if (a) q <= d;", SEQUENTIAL),
        ("always @(posedge clk) case (a) 0: q <= d; default: q <= b; endcase", SEQUENTIAL),
        ("always @(posedge clk) case (a <= b) 0: q <= d; endcase", SEQUENTIAL),
        ("always @(posedge clk) begin q <= d; case (a) 1: r <= 1; endcase end", SEQUENTIAL),
        ("always @(posedge clk) case (s) 0: s <= 1; 1: s <= 0; endcase", STATE_MACHINE),
        ("always @(posedge clk) if (rst) s <= 0; else s <= n; always_comb casez (s) 0: n = 1; "
         "endcase", STATE_MACHINE),
        ("always @(negedge clk) begin r[i] <= d; end always_comb case ({a, r[1:0]}) 0: n = 1; "
         "endcase", STATE_MACHINE),
        ("assign q = a; always @(posedge clk", SEQUENTIAL),
        ("always @(posedge clk) case", SEQUENTIAL),
    ],
)  # fmt: skip
def test_the_kind_is_read_off_the_reference(body: str, kind: str) -> None:
    text = f"module RefModule(input a); {body} endmodule"
    assert kind_of(Problem(V2, "p", "TopModule", "", text, "RefModule")) == kind


def test_every_problem_has_one_of_three_kinds(shared_data: Path) -> None:
    found = {}
    for name, folder in ((V2, "verilog_eval_v2/dataset_code-complete-iccad2023"),
                         ("verilog_eval_v1_human", "verilog_eval_v1"),
                         ("verilog_eval_v1_machine", "verilog_eval_v1"),
                         ("rtllm_v1.1", "rtllm_v1.1")):  # fmt: skip
        problems = read_benchmark(name, shared_data / folder).values()
        found[name] = Counter(map(kind_of, problems))
    order = (COMBINATIONAL, SEQUENTIAL, STATE_MACHINE)
    assert {name: tuple(kinds[k] for k in order) for name, kinds in found.items()} == {
        V2: (83, 44, 29),
        "verilog_eval_v1_human": (83, 44, 29),
        "verilog_eval_v1_machine": (83, 40, 20),
        "rtllm_v1.1": (5, 20, 4),
    }
    of_v2 = read_benchmark(V2, shared_data / "verilog_eval_v2/dataset_code-complete-iccad2023")
    by_name = {"lemmings": STATE_MACHINE, "dff": SEQUENTIAL, "kmap": COMBINATIONAL}
    for part, kind in by_name.items():
        assert {kind_of(p) for name, p in of_v2.items() if part in name} == {kind}


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_rows_are_grouped_by_upstreams_folders_where_there_are_some(
    shared_data: Path, tmp_path: Path
) -> None:
    """RTLLM v1.1's designs in folders as v2.0 has them."""
    for design, place in (("accu", "Arithmetic/Accumulator"), ("fsm", "Control/Finite State"),
                          ("RAM", "RISC_V")):  # fmt: skip
        shutil.copytree(shared_data / "rtllm_v1.1" / design, tmp_path / "v2" / place / design)
    shutil.copytree(shared_data / "rtllm_v1.1" / "adder_8bit", tmp_path / "v2" / "alone")
    found = read_public_set(
        "rtllm_v2.0_layout", tmp_path / "v2", limit=None, seed=0, cache=tmp_path
    )
    assert {row["row_id"]: row["task"] for row in found.rows} == {
        "accu": "Arithmetic", "fsm": "Control", "RAM": "RISC V", "alone": COMBINATIONAL,
    }  # fmt: skip


def test_what_is_asked_and_judged_does_not_change_with_the_kind(shared_data: Path) -> None:
    problem = read_benchmark("rtllm_v1.1", shared_data / "rtllm_v1.1")["accu"]
    assert replace(problem, category="Arithmetic").digest() == problem.digest()


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_the_report_shows_a_bar_for_each_kind(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "verilog_eval_v2/dataset_code-complete-iccad2023"
    problems = read_benchmark(V2, source)
    asked = {"Prob057_kmap2": True, "Prob050_kmap1": False, "Prob031_dff": True,
             "Prob107_fsm1s": True}  # fmt: skip
    texts = {
        name: problems[name].reference.replace("RefModule", "TopModule" if right else "Other")
        for name, right in asked.items()
    }
    (tmp_path / "answers.jsonl").write_text(
        "".join(
            json.dumps({"task_id": name, "sample": 0, "answer": text}) + "\n"
            for name, text in texts.items()
        )
    )
    workspace = Workspace(tmp_path / "ws")
    assert grade.main([
        "--benchmark", f"{V2}={source}", "--answers", str(tmp_path / "answers.jsonl"),
        "--out", str(tmp_path / "out.jsonl"), "--cache", str(tmp_path / "cache"),
        "--only-answered", "--workspace", str(workspace.root), "--model", "ours",
    ]) == 0  # fmt: skip
    [report] = workspace.evaluations.glob("*/report.html")
    with open_chromium() as browser:
        page = browser.new_page()
        page.goto(report.as_uri())
        rows = page.locator("#kinds tbody tr").all_inner_texts()
        assert page.locator("#kinds").is_visible()
    shown = [re.sub(r"\s+", " ", row) for row in rows]
    found = {kind: next(row for row in shown if kind in row) for kind in
             (COMBINATIONAL, SEQUENTIAL, STATE_MACHINE)}  # fmt: skip
    assert re.search(r"combinational 2 .*\b50\.0", found[COMBINATIONAL])
    assert re.search(r"sequential 1 .*\b100\.0", found[SEQUENTIAL])
    assert re.search(r"state machine 1 .*\b100\.0", found[STATE_MACHINE])
