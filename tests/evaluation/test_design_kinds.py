"""What kind of design a public problem asks for, by the folder or by rule."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.benchmarks.verilog.kinds import COMBINATIONAL, SEQUENTIAL, STATE_MACHINE, kind_of
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark
from evaluation.benchmarks.verilog.public_set import read_public_set

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
