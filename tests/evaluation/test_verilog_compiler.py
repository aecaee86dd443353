"""The compiler without its driver beside the driver itself, and how its failures are classed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scoring_inputs import COUNTER

from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_compiler import compiler
from evaluation.verifiers.verilog_gate import program_of
from evaluation.verifiers.verilog_simulation import bench

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)
UPSTREAM = ["-Wall", "-Winfloop", "-Wno-timescale", "-g2012"]
BENCH = "module check; wire [3:0] q; counter c(1'b0, 1'b0, 1'b0, q); initial #1 $finish; endmodule"
# Addresses, the libraries that are loaded, and where a name was taken from differ from run to run.
_OF_A_RUN = re.compile(
    r"0x[0-9a-f]+|^:vpi_module.*\n|^# .*\n|^ +\"[^\n]*\.sv\";\n|^:file_names.*\n", re.MULTILINE
)

TEXTS = {
    "plain": COUNTER,
    "math": COUNTER.replace("4'd1", "$clog2(2) + $rtoi($pow(2.0, 0.0)) - 1"),
    "warned": COUNTER.replace("endmodule", "  assign implicit = en;\nendmodule"),
    "systemverilog": "module counter(input clk, rst, en, output logic [3:0] q);\n"
                     "  typedef enum {A, B} t; t s; always_ff @(posedge clk) s <= s.next();\n"
                     "  always_comb q = {2{s}}; endmodule\n",
    "wrong": COUNTER.replace("posedge", "posedg"),
}  # fmt: skip


STRINGS = """module counter(output reg [31:0] q);
  reg \\a/*b ; initial begin \\a/*b = 1; $display("a // b  /* c"); q = "  //"; end
endmodule
"""


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_it_compiles_what_the_driver_compiles_and_warns_of_the_same(
    tmp_path: Path, name: str
) -> None:
    text = f'`line 1 "t.sv" 0\n{TEXTS[name]}\n{BENCH}\n'
    (tmp_path / "t.sv").write_text(f"{TEXTS[name]}\n{BENCH}\n")
    by_driver = subprocess.run(
        ["iverilog", *UPSTREAM, "-s", "check", "-o", "driver.vvp", "t.sv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (tmp_path / "both.sv").write_text(text)
    icarus = compiler()
    (tmp_path / "both.conf").write_text(icarus.settings(text, "check", "ours.vvp"))
    command = icarus.command("both.conf", "both.sv")
    ours = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ours.returncode == 0) == (by_driver.returncode == 0) == (name != "wrong")
    assert ours.stderr == by_driver.stderr
    assert ("warning" in ours.stderr) == (name == "warned")
    if name != "wrong":
        made, wanted = ((tmp_path / f"{one}.vvp").read_text() for one in ("ours", "driver"))
        assert _OF_A_RUN.sub("", made) == _OF_A_RUN.sub("", wanted)
        assert ("v2005_math" in made) == (name == "math")


_BETWEEN = st.sampled_from(
    [" ", "\t ", "\n", "\n\n  ", " // end\n", " /* ' \" */ ", "\n/**/\n", "//\\\n"]
)
_PLACE = re.compile(r" \d+ \d+(?=;| \"\$)")  # file and line of a scope or a call


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_is_taken_for_the_same_program_compiles_to_it(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Comments, blanks and line ends where there are some, judged by the compiler itself."""
    text = data.draw(st.sampled_from([TEXTS["plain"], TEXTS["systemverilog"], STRINGS]))
    pieces = re.split(r'("[^"]*"|\\\S+\s)|(\s+)', text)
    parts = [
        data.draw(_BETWEEN) if piece.isspace() else piece for piece in pieces if piece is not None
    ]
    other = "".join(parts)
    assert program_of(other).split() == program_of(text).split()
    assert _compiled(tmp_path, program_of(other)) == _compiled(tmp_path, text)
    assert _compiled(tmp_path, other) == _compiled(tmp_path, text)


def _compiled(folder: Path, text: str) -> str:
    (folder / "one.sv").write_text(text)
    command = ["iverilog", "-g2012", "-s", "counter", "-o", "one.vvp", "one.sv"]
    subprocess.run(command, cwd=folder, check=True)
    made = _OF_A_RUN.sub("", (folder / "one.vvp").read_text())
    return _PLACE.sub("", made)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a<=b", "a< =b"),
        ('"a  b"', '"a b"'),
        ('"a // b"', '"a "'),
        ("\\a/*b*/ ;", "\\a ;"),
        ("`define A b // c\n`A", "`define A b\n`A"),
        ("a //\n`timescale 1ns/1ps\nb", "a `timescale 1ns/1ps b"),
    ],
)
def test_other_programs_are_not_taken_for_the_same(one: str, other: str) -> None:
    assert program_of(one) != program_of(other)


@pytest.mark.parametrize("errors", [1, 101, 102, 137, 152, 255, 256])
def test_an_exit_code_made_of_errors_is_taken_for_nothing_else(errors: int) -> None:
    """The compiler's code may be the number of errors, which is also that of a signal."""
    lines = "".join(f"  assign nothing{i}[0] = absent{i}[0];\n" for i in range(errors))
    with bench(3) as made:
        assert made.gate(COUNTER.replace("endmodule", f"{lines}endmodule"), "counter") is None
        found = made.drive(BENCH, "check", alone=False, output_bytes=1 << 22)
    assert isinstance(found, Verdict)
    assert found.score == 0.0
    assert found.outcome in ("compile", "runtime")


def test_limits_that_cannot_be_set_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process itself may use less, as on a machine with limits of its own."""
    if sandbox.level() != "bwrap":
        pytest.skip("only without privileges can a limit not be raised")
    real = sandbox.shell_limits
    monkeypatch.setattr(sandbox, "shell_limits", lambda limits: f"ulimit -f 1\n{real(limits)}")
    with bench(3) as made:
        assert made.gate(COUNTER, "counter") is None
        found = made.drive(BENCH, "check", alone=False, output_bytes=1 << 22)
    assert isinstance(found, Verdict)
    assert (found.score, found.outcome) == (None, "infra:sandbox")
    assert "may not use as much" in found.detail
