"""The simulated verifier on real modules: right ones pass, wrong ones fail, cheats never pass."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from evaluation.verifiers import verify
from evaluation.verifiers.verilog import Golden, Unusable, record_golden
from workspace.errors import UserError

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

COUNTER = """module counter(input clk, input rst_n, input en, output reg [3:0] q, output wrap);
  always @(posedge clk or negedge rst_n)
    if (!rst_n) q <= 4'd0;
    else if (en) q <= q + 4'd1;
  assign wrap = en & (q == 4'd15);
endmodule
"""


def golden_of(reference: str, top: str, cycles: int = 256) -> Golden:
    golden = record_golden(reference, top, cycles=cycles)
    assert isinstance(golden, Golden), golden
    return golden


@pytest.fixture(scope="module")
def counter() -> str:
    return golden_of(COUNTER, "counter").ground_truth()


def outcome(ground_truth: str, answer: str) -> str:
    return verify("verilog_sim", ground_truth, answer).outcome


def problems(shared_data: Path) -> list[Path]:
    folder = shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"
    return sorted(folder.glob("*_ref.sv"))


def reference_of(path: Path) -> str:
    return path.read_text().replace("RefModule", "TopModule")


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "Here is the module:\n```verilog\n{}```\nIt counts.",
        "<think>module counter is easy</think>\n```systemverilog\n{}\n```",
        "First try:\n```\nmodule other; endmodule\n```\nBetter:\n```\n{}```",
        "[BEGIN]\n{}[DONE]",
        "The counter follows.\n\n{}\nThis one wraps at 15.",
        "// my counter\n`timescale 1ns/1ps\n`define W 4\n{}",
    ],
)
def test_a_right_module_passes_however_it_is_wrapped(counter: str, wrap: str) -> None:
    assert outcome(counter, wrap.format(COUNTER)) == "pass"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("q <= 4'd0;", 'begin q <= 4\'d0; $display("%d", q); end'),
        ("if (!rst_n)", 'if (0) $write("a)b"); else if (!rst_n)'),
        ("assign wrap", 'initial $monitor("at %t: %d", $time, q);\n  assign wrap'),
        ("assign wrap", 'generate if (0) $error("width"); endgenerate\n  assign wrap'),
        ("endmodule", "endmodule\nmodule tb; counter c(); initial $finish; endmodule"),
        ("endmodule", "endmodule\nmodule tb; initial force c.q = 1; endmodule // done"),
    ],
)
def test_prints_and_an_own_test_bench_are_left_out(counter: str, old: str, new: str) -> None:
    assert outcome(counter, COUNTER.replace(old, new)) == "pass"


def test_a_helper_module_is_found_in_another_block(counter: str) -> None:
    helper = "module step(input [3:0] a, output [3:0] y); assign y = a + 1'b1; endmodule"
    split = COUNTER.replace("q + 4'd1", "next").replace(
        "  assign", "  wire [3:0] next; step s(q, next);\n  assign"
    )
    for blocks in ((split, helper), (helper, split), (split, helper.replace("+", "-"), helper)):
        text = "".join(f"Then:\n```verilog\n{block}\n```\n" for block in blocks)
        assert outcome(counter, text) == "pass"


def test_half_a_surrogate_pair_is_no_reason_to_fail(counter: str) -> None:
    assert outcome(counter, "// \ud83d\n" + COUNTER) == "pass"


def test_another_way_to_write_it_passes(counter: str) -> None:
    other = """
    module step(input [3:0] a, output [3:0] y); assign y = a + 1'b1; endmodule
    module counter(output wire wrap, output logic [3:0] q, input en, rst_n, clk);
      wire [3:0] next;
      step u_step(.a(q), .y(next));
      always_ff @(posedge clk, negedge rst_n) q <= !rst_n ? '0 : en ? next : q;
      assign wrap = &{en, q};
    endmodule"""
    assert outcome(counter, other) == "pass"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("q + 4'd1", "q + 4'd2", "mismatch"),
        ("posedge clk", "negedge clk", "mismatch"),
        (" or negedge rst_n", "", "mismatch"),  # synchronous reset
        ("if (!rst_n)", "if (rst_n)", "mismatch"),
        ("else if (en)", "else", "mismatch"),
        ("4'd15", "4'd14", "mismatch"),
        ("en & (q", "(q", "mismatch"),
        ("module counter", "module count", "no_top"),
        ("[3:0] q", "[4:0] q", "interface"),
        ("output wrap", "output carry", "interface"),
        ("input en,", "input en, input load,", "interface"),
        ("endmodule", "", "compile"),
        ("q <= 4'd0;", "q <= $random;", "rejected:system_task"),
        ("q <= 4'd0;", 'begin q <= 4\'d0; `include "x"\n end', "rejected:include"),
        ("module counter", "`resetall\nbind counter x y();\nmodule counter", "rejected:word"),
        ("endmodule", "endmodule /* open", "rejected:unterminated"),
        ("assign wrap", "initial force wrap = 1;\nassign wrap", "rejected:word"),
        ("assign wrap = en", "assign wrap = tb.en", "rejected:hierarchy"),
        ("endmodule", "initial while (1) ;\nendmodule", "limit:cpu"),
    ],
)
def test_a_changed_module_fails_for_its_reason(
    counter: str, old: str, new: str, expected: str
) -> None:
    changed = COUNTER.replace(old, new)
    assert changed != COUNTER
    verdict = verify("verilog_sim", counter, changed)
    assert (verdict.outcome, verdict.score) == (expected, 0.0)


def test_a_prompt_echo_and_prose_are_no_code(counter: str) -> None:
    assert outcome(counter, "") == "no_code"
    assert outcome(counter, "I would use a counter.") == "no_top"
    assert outcome(counter, "<think>module counter") == "no_code"
    assert outcome(counter, "module counter(input clk, output q);\n// your code\nendmodule") == (
        "interface"
    )
    assert outcome(counter, "x" * 200_000) == "rejected:too_long"


def test_a_missing_part_is_spliced_in() -> None:
    before, rest = COUNTER.split("  always", 1)
    body, after = rest.split("  assign", 1)
    truth = golden_of(COUNTER, "counter").ground_truth(before, "  assign" + after)
    assert outcome(truth, "  always" + body) == "pass"
    assert outcome(truth, f"```verilog\nalways{body}```") == "pass"
    assert outcome(truth, COUNTER) == "pass"
    assert outcome(truth, "always @(posedge clk) q <= 0;") == "mismatch"
    assert outcome(truth, "endmodule\nmodule x; /*") == "rejected:unterminated"
    assert outcome(truth, "Sure!") == "compile"


def test_what_the_reference_leaves_open_is_free() -> None:
    """Division by zero is X in the reference, so any value is right there, and only there."""
    reference = "module div(input [3:0] a, b, output [3:0] q); assign q = a / b; endmodule"
    truth = golden_of(reference, "div", cycles=200).ground_truth()
    guarded = reference.replace("a / b", "b ? a / b : 4'd7")
    assert outcome(truth, guarded) == "pass"
    assert outcome(truth, reference.replace("a / b", "b ? a / b + 1 : 4'd7")) == "mismatch"
    assert outcome(truth, reference.replace("a / b", "b ? a / b : 4'd7").replace("b ?", "a ?")) == (
        "mismatch"
    )


def test_no_published_cheat_passes(shared_data: Path) -> None:
    path = next(p for p in problems(shared_data) if "Prob035" in p.name)
    reference = reference_of(path)
    truth = golden_of(reference, "TopModule").ground_truth()
    lines = (shared_data / "verilog_cheats" / "cheats.jsonl").read_text().splitlines()
    cheats = {c["name"]: c["answer"] for c in map(json.loads, lines)}
    verdicts = {name: verify("verilog_sim", truth, code) for name, code in cheats.items()}
    assert len(verdicts) == 20
    assert {v.score for v in verdicts.values()} == {0.0}
    assert verdicts["honest_wrong"].outcome == "mismatch"
    for harmless in ("/tmp/cheat_fopen", "/tmp/cheat_dump"):
        assert not Path(harmless).exists()
    assert outcome(truth, reference) == "pass"


def test_goldens_of_real_modules_pass_and_tell_stubs_and_mutants_apart(shared_data: Path) -> None:
    sampled = problems(shared_data)[::8]
    usable = killed = mutants = 0
    for path in sampled:
        reference = reference_of(path)
        golden = record_golden(reference, "TopModule")
        if isinstance(golden, Unusable):
            continue
        usable += 1
        truth = golden.ground_truth()
        assert outcome(truth, reference) == "pass", path.name
        assert outcome(truth, stub_of(golden)) == "mismatch", path.name
        for mutant in mutants_of(reference)[:3]:
            mutants += 1
            killed += outcome(truth, mutant) != "pass"
    assert usable >= 0.6 * len(sampled)
    assert mutants >= 20
    assert killed >= 0.8 * mutants


def stub_of(golden: Golden) -> str:
    ports = ", ".join(f"{p.direction} [{p.width - 1}:0] {p.name}" for p in golden.ports)
    zeros = "".join(f"assign {p.name} = 0;" for p in golden.ports if p.direction == "output")
    return f"module {golden.top}({ports}); {zeros} endmodule"


def mutants_of(code: str) -> list[str]:
    """One operator changed at a time, in the code after the port list."""
    start = code.index(");")
    swaps = {"&": "|", "|": "&", "^": "&", "+": "-", "==": "!=", "posedge": "negedge"}
    found = []
    for match in re.finditer(r"==|posedge|(?<![&|^~<>=+*@(])[&|^+](?![&|^=+)])", code[start:]):
        at = start + match.start()
        found.append(code[:at] + swaps[match.group()] + code[at + len(match.group()) :])
    return found


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("module m(input a, output y); assign y = 1'b1; endmodule", "outputs_constant"),
        ("module m(input a, output y); endmodule", "outputs_unknown"),
        ("module m(input clk, output reg y); always @(posedge clk) y <= ~y; endmodule",
         "outputs_unknown"),
        ("module m(output y); assign y = 1'b1; endmodule", "no_inputs"),
        ("module m(input a); endmodule", "no_outputs"),
        ("module m(inout a, input b, output y); assign y = b; endmodule", "reference_interface"),
        ("module m(input a, output y); assign y = ; endmodule", "reference_compile"),
        ("module m(input a, output y); wire b = $random; assign y = a; endmodule",
         "reference_rejected:system_task"),
        ("module m(input [4095:0] a, output y); assign y = ^a; endmodule", "too_wide"),
        ("module n(input a, output y); assign y = a; endmodule", "reference_no_top"),
    ],
)  # fmt: skip
def test_a_reference_that_makes_no_task_is_refused(code: str, reason: str) -> None:
    found = record_golden(code, "m")
    assert isinstance(found, Unusable)
    assert found.reason == reason


def test_a_reset_that_is_active_against_its_name_is_found() -> None:
    """`rst` that asserts at 0: driven as named, it would hold the module in reset for ever."""
    code = """module m(input clk, input rst, output reg [3:0] q);
      always @(posedge clk) if (!rst) q <= 0; else q <= q + 3;
    endmodule"""
    golden = golden_of(code, "m")
    assert golden.every_output_moves()


def test_ground_truth_is_reproducible_and_depends_on_the_seed() -> None:
    first = record_golden(COUNTER, "counter", seed=1)
    again = record_golden(COUNTER, "counter", seed=1)
    other = record_golden(COUNTER, "counter", seed=2)
    assert isinstance(first, Golden) and isinstance(again, Golden) and isinstance(other, Golden)
    assert first.ground_truth() == again.ground_truth() != other.ground_truth()


def test_damaged_ground_truth_is_the_users_error(counter: str) -> None:
    truth = json.loads(counter)
    for change in ({"stimulus": 0}, {"samples": "AAAA"}, {"ports": []}, {"samples": ""}):
        with pytest.raises(UserError, match="verilog_sim"):
            verify("verilog_sim", json.dumps(truth | change), COUNTER)


def test_a_missing_simulator_is_no_verdict(
    counter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = verify("verilog_sim", counter, COUNTER)
    assert verdict.score is None
    assert verdict.outcome == "infra:iverilog"
