"""The compiler without its driver beside the driver itself, and how its failures are classed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scoring_inputs import COUNTER

from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_compiler import compiler
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
