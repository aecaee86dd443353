"""Before anything is scored: the simulator must pass a right counter and fail a wrong one.

The counter has a test bench of VerilogEval's mould, written here, and goes the way that every
answer goes. A broken installation looks like a benchmark full of compile errors otherwise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.grader import ProblemGrader
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers.verilog import BrokenToolchainError, tool_version
from evaluation.verifiers.verilog_compiler import compiler

_BENCH = """`timescale 1 ps/1 ps
`define HALF 5
module stimulus_gen(input clk, output reg reset, input tb_match);
  initial begin
    reset <= 1;
    @(posedge clk); @(posedge clk) reset <= 0;
    repeat (40) @(posedge clk);
    #1 $finish;
  end
endmodule
module tb();
  typedef struct packed { int errors; int clocks; } stats;
  stats stats1;
  reg clk = 0;
  initial forever #`HALF clk = ~clk;
  logic reset;
  logic [3:0] q_ref;
  logic [3:0] q_dut;
  wire tb_match;
  stimulus_gen stim1(.clk, .*, .reset);
  RefModule good1(.clk, .reset, .q(q_ref));
  TopModule top_module1(.clk, .reset, .q(q_dut));
  final begin
    $display("Mismatches: %1d in %1d samples", stats1.errors, stats1.clocks);
  end
  assign tb_match = ({ q_ref } === ({ q_ref } ^ { q_dut } ^ { q_ref }));
  always @(posedge clk, negedge clk) begin
    stats1.clocks++;
    if (!tb_match) stats1.errors++;
  end
endmodule
"""
_REFERENCE = """module RefModule(input clk, input reset, output reg [3:0] q);
  always @(posedge clk) q <= reset ? 4'd1 : q + 4'd3;
endmodule
"""


def self_test() -> None:
    """Raises `BrokenToolchainError` when the simulator misjudges the counter."""
    compiler()
    problem = Problem(
        "verilog_eval_v2_spec_to_rtl", "self_test", "TopModule", _BENCH, _REFERENCE, "RefModule"
    )
    # Another text than the reference's, which would not be simulated again.
    good = _REFERENCE.replace("RefModule", "TopModule").replace("q + 4'd3", "4'd3 + q")
    with tempfile.TemporaryDirectory(prefix="dsm-self-test-") as folder:
        grader = ProblemGrader(problem, Cache(Path(folder)))
        golden = grader.prepare()
        if golden.unusable:
            raise BrokenToolchainError(
                f"{tool_version()} cannot run a counter: {golden.unusable} {golden.detail}"
            )
        right, wrong = grader.judge(good), grader.judge(good.replace("4'd3", "4'd2"))
    if right.outcome != "pass" or wrong.outcome != "mismatch":
        raise BrokenToolchainError(
            f"{tool_version()} misjudges a counter: right one {right}, wrong one {wrong}"
        )
