"""Proofs of equality: what simulation cannot see is found, what proves nothing is no verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from honest_verilog import COUNTER, DETECT, HONEST

from evaluation.outcomes import outcome_group
from evaluation.verifiers import sandbox, verify, verilog_proof
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog import Unusable
from evaluation.verifiers.verilog_equivalence import record_equivalence
from evaluation.verifiers.verilog_proof import plain, prove, read_steps
from workspace.errors import UserError

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None or shutil.which("yosys") is None,
    reason="iverilog or yosys is not installed",
)

ADDER = (
    "module add(input [31:0] a, input [31:0] b, output [31:0] y);\n  assign y = a + b;\nendmodule"
)
TOPS = {COUNTER: "counter", DETECT: "detect", ADDER: "add"}


@pytest.fixture(scope="module")
def truths() -> dict[str, str]:
    """The ground truth of each reference."""
    found = {}
    for reference, top in TOPS.items():
        truth = record_equivalence(reference, top)
        assert isinstance(truth, str), truth
        found[reference] = truth
    return found


def judge(truth: str, answer: str) -> Verdict:
    return verify("verilog_equiv", truth, answer)


@pytest.mark.parametrize(
    "name",
    [
        "thinking", "ports_not_ansi", "generate_ripple", "one_hot_parameters", "enum_machine",
        "concurrent_assertions", "escaped_names", "defparam_of_an_own_instance", "initial_values",
        "attributes",
    ],
)  # fmt: skip
def test_what_is_equal_is_proved_so(truths: dict[str, str], name: str) -> None:
    reference, answer = HONEST[name]
    verdict = judge(truths[reference], answer)
    assert (verdict.outcome, verdict.score) == ("pass", 1.0), verdict


def test_a_difference_that_no_random_input_meets_is_found(truths: dict[str, str]) -> None:
    rare = ADDER.replace("a + b", "a + b + (a == 32'h5eed_c0de && b[7:0] == 8'h2a)")
    # The constants are the answer's own, so the stimulus does not know them.
    assert verify("verilog_sim", truths[ADDER], rare).outcome == "pass"
    verdict = judge(truths[ADDER], rare)
    assert (verdict.outcome, verdict.score) == ("mismatch", 0.0)
    assert judge(truths[ADDER], ADDER.replace("a + b", "b - ~a - 1")).passed


@pytest.mark.parametrize(
    ("reference", "old", "new", "expected"),
    [
        (COUNTER, "q + 4'd1", "q + 4'd2", "mismatch"),
        (COUNTER, "posedge clk", "negedge clk", "mismatch"),
        (COUNTER, " or negedge rst_n", "", "mismatch"),
        (COUNTER, "output wrap", "output carry", "interface"),
        (COUNTER, "endmodule", "", "compile"),
        (COUNTER, "endmodule", "initial force q = 1; endmodule", "rejected:word"),
        (DETECT, "3: s <= x ? 1 : 2", "3: s <= x ? 1 : 0", "mismatch"),
    ],
)
def test_what_simulation_refuses_is_refused(
    truths: dict[str, str], reference: str, old: str, new: str, expected: str
) -> None:
    verdict = judge(truths[reference], reference.replace(old, new))
    assert (verdict.outcome, verdict.score) == (expected, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        # Contradicting equations, from which a solver could conclude anything.
        ("y = a + b;", "y = a + b; assign y = ~(a - b);", "two drivers"),
        ("y = a + b;", "y = a + b; assign y = b;", "two drivers"),
        ("y = a + b;", "y = a + b; assign y[0] = 1'b0;", "two drivers"),
        ("y = a + b;", "y = a + b; assign a = b;", "two drivers"),
        ("y = a + b;", "y = l & ~l; wire [31:0] l; assign l = ~l;", "loop"),
    ],
)
def test_a_netlist_that_would_prove_anything_proves_nothing(
    tmp_path: Path, old: str, new: str, flaw: str
) -> None:
    """Straight to the prover, since simulation refuses most of these before."""
    found = prove(tmp_path, ADDER, ADDER.replace(old, new), "add")
    assert not isinstance(found, Verdict)
    assert found.result == "undecided"
    assert flaw in found.detail


@pytest.mark.parametrize(
    "trick",
    [
        "// synopsys translate_off\nassign y = 0;\n// synopsys translate_on\n",
        "assign y = a - b; always @* assume (0);",
        "assign y = a - b; initial assume (a == 0 && b == 0);",
        "(* keep, anyconst *) reg [31:0] r; assign y = r;",
        "reg [31:0] y_; assign y = y_; always @* (* full_case *) case (a[0]) 1'b0: y_ = a + b; "
        "endcase",
        "(* blackbox *) wire x; assign y = $anyseq;",
        "dsm_gold g(a, b, y);",
        "gold g(a, b, y);",
    ],
)
def test_words_to_yosys_alone_prove_nothing(tmp_path: Path, trick: str) -> None:
    found = prove(tmp_path, ADDER, ADDER.replace("assign y = a + b;", trick), "add")
    assert not isinstance(found, Verdict)
    assert found.result != "equal"


def test_the_first_step_counts(tmp_path: Path) -> None:
    """Two registers that differ until the first edge of the clock, and never after."""
    one = (
        "module m(input clk, input d, output reg q); initial q = 0; always @(posedge clk) q <= d; "
    )
    for other, result in ((one, "equal"), (one.replace("q = 0", "q = 1"), "different")):
        found = prove(tmp_path, f"{one} endmodule", f"{other} endmodule", "m")
        assert not isinstance(found, Verdict)
        assert found.result == result


def test_undecided_is_no_verdict(truths: dict[str, str]) -> None:
    """Icarus takes the table of a primitive, yosys does not."""
    table = (
        "primitive p(y, a);\n  output y; input a;\n  table 0 : 1; 1 : 0; endtable\nendprimitive\n"
    )
    answer = table + COUNTER.replace("assign wrap", "wire n; p u(n, en);\n  assign wrap")
    assert verify("verilog_sim", truths[COUNTER], answer).passed
    verdict = judge(truths[COUNTER], answer)
    assert (verdict.outcome, verdict.score) == ("undecided", None)
    assert outcome_group(verdict.outcome) == "no verdict"


def test_a_reference_that_is_not_proved_equal_to_itself_makes_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verilog_proof, "_LIMITS", sandbox.Limits(cpu_s=1))
    memory = HONEST["memory_with_optional_image"].reference.replace("[3:0] addr", "[9:0] addr")
    found = record_equivalence(memory.replace("[0:15]", "[0:1023]"), "memory")
    assert isinstance(found, Unusable)
    assert found.reason == "reference_undecided"


def test_steps_are_read_from_yosys(tmp_path: Path) -> None:
    """Both kinds of signal, repeated values, and the start without inputs."""
    wave = """{ "signal": [
        { "name": "in_clk", "wave": "401.0" },
        { "name": "in_a", "wave": "4==.=", "data": ["", "0101", "0000", "", "1111"] },
        { "name": "$flatten\\gold.x", "wave": "=4444", "data": ["xx", "", "", "", ""] }
    ] }"""
    (tmp_path / "found.json").write_text(wave)
    assert read_steps(tmp_path / "found.json") == [
        {"clk": 0, "a": 5}, {"clk": 1, "a": 0}, {"clk": 1, "a": 0}, {"clk": 0, "a": 15},
    ]  # fmt: skip


def test_comments_and_attributes_are_taken_out() -> None:
    code = 'always (* full_case *) @(*) x = "(* // *)"; // synopsys full_case\n/* a */ y = b*(c);'
    assert " ".join(plain(code).split()) == 'always @(*) x = "(* // *)"; y = b*(c);'


def test_without_yosys_there_is_no_verdict(
    truths: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("iverilog", "vvp"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = judge(truths[COUNTER], COUNTER)
    assert (verdict.outcome, verdict.score) == ("infra:yosys", None)


@pytest.mark.parametrize("change", [{"reference": ""}, {"depth": 0}, {"depth": 9999}])
def test_a_wrong_ground_truth_is_the_users_error(
    truths: dict[str, str], change: dict[str, object]
) -> None:
    truth = json.dumps({**json.loads(truths[COUNTER]), **change})
    with pytest.raises(UserError, match="verilog_equiv"):
        judge(truth, COUNTER)
