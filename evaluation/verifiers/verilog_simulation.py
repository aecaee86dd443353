"""Compile one module and play input vectors to it, with Icarus Verilog inside the sandbox.

    with bench(cpu_s) as b:
        ports = b.load(code, top)          # ports as elaborated, or the verdict that refuses it
        samples = b.play(ports, vectors)   # one text of 0/1/x/z per vector, or a verdict

`load` gates the preprocessed text and compiles it alone, so nothing in it can name a thing of the
bench. What is compiled later is that same text. `play` uses module and signal names and a line
mark that are random for each call.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from evaluation.verifiers import sandbox
from evaluation.verifiers.sandbox import Finished, Limits
from evaluation.verifiers.verdict import OUTPUT_CHARS, Verdict
from evaluation.verifiers.verilog_gate import check_raw, clean_code, is_preprocessed
from evaluation.verifiers.verilog_stimulus import Port

_SCOPE = re.compile(r'^S_\w+ \.scope module, "(?P<instance>[^"]*)" "(?P<module>[^"]*)"', re.M)
_PORT = re.compile(r'^\s+\.port_info \d+ /(?P<kind>\w+) (?P<width>\d+) "(?P<name>[^"]*)"', re.M)
_REAL = re.compile(r'\.(?:net|var)/real "(?P<name>[^"]*)"')
_WRONG_PORT = re.compile(r"error:.*\bports?\b")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_BENCH = """`timescale 1ns/1ps
module {bench};
  reg [{inputs}-1:0] {now};
  reg [{inputs}-1:0] {all} [0:{steps}-1];
  wire [{outputs}-1:0] {seen};
  integer {step};
  {top} {unit} ({connections});
  initial begin
    $readmemh("{stimulus}", {all});
    for ({step} = 0; {step} < {steps}; {step} = {step} + 1) begin
      {now} = {all}[{step}];
      #100;
      $display("{mark} %0d %b", {step}, {seen});
    end
    $finish;
  end
endmodule
"""


def simulator_version() -> str:
    """For example `Icarus Verilog 11.0`, "" when it is not installed."""
    try:
        said = subprocess.run(
            ["iverilog", "-V"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except FileNotFoundError:
        return ""
    match = re.match(r"Icarus Verilog version (\S+)", said)
    return f"Icarus Verilog {match.group(1)}" if match else ""


@contextmanager
def bench(cpu_s: int) -> Iterator[Bench]:
    """A bench in a temporary folder; `cpu_s` bounds each of its tool runs."""
    with tempfile.TemporaryDirectory(prefix="dsm-verilog-") as name:
        yield Bench(Path(name), cpu_s)


# `$1` is the code's top module, empty when it need not be compiled alone; `$2` is the bench's.
_DRIVE = """[ -z "$1" ] || iverilog -g2012 -s "$1" -t null code.sv 2>alone.log || exit 101
iverilog -g2012 {warnings} -s "$2" -o both.vvp bench.sv code.sv 2>both.log || exit 102
vvp -n both.vvp
ended=$?
times >times.log
exit $ended
"""
_ALONE_FAILED, _BOTH_FAILED = 101, 102
WARNINGS = "-Wall -Winfloop -Wno-timescale"


_SPARE_DISK_BYTES = 16 << 20
# A failure on a full disk says nothing of the answer.
DISK_FULL = Verdict(None, "infra:disk", "the temporary folder is full")


def disk_full() -> OSError:
    """The error of a temporary folder without room, where there is no answer to give a verdict."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tempfile.gettempdir())


class Driven(NamedTuple):
    """A simulation that ended by itself: what it printed, and what the compiler warned of."""

    stdout: str
    warnings: str
    cpu_s: float


class Bench:
    """One candidate's compilation and simulation."""

    def __init__(self, folder: Path, cpu_s: int) -> None:
        self.folder = folder
        self.limits = Limits(cpu_s=cpu_s)
        self.top = ""

    def load(self, code: str, top: str) -> list[Port] | Verdict:
        """Gate and compile `code` alone; its ports with the widths that elaboration gave."""
        return self.gate(code, top) or self._compile_alone()

    def gate(self, code: str, top: str) -> Verdict | None:
        """Put what may be compiled of `code` into the folder, or say why it is refused."""
        self.top = top
        text = _CONTROL.sub(" ", code.replace("\r\n", "\n").replace("\r", "\n"))
        checked = check_raw(text)
        if isinstance(checked, Verdict):
            return checked
        text = checked
        if not is_preprocessed(text):
            self._write("answer.sv", text)
            command = ["iverilog", "-g2012", "-E", "-M", "read.txt", "-o", "code.sv", "answer.sv"]
            ended = self._run(command)
            if ended is not None:
                return ended
            # A macro can put a directive together that its text does not hold.
            read = sandbox.read_start(self.folder / "read.txt", 1 << 16).split("\n")
            if [name for name in read if name] != ["answer.sv"]:
                return Verdict(0.0, "rejected:include", "another file was read")
            text = (self.folder / "code.sv").read_text(encoding="utf-8", errors="replace")
        cleaned = clean_code(text, top)
        if isinstance(cleaned, Verdict):
            return cleaned
        self._write("code.sv", cleaned)
        return None

    def code(self) -> str:
        """The code as it was gated: what is compiled."""
        return (self.folder / "code.sv").read_text(encoding="utf-8", errors="replace")

    def disk_is_full(self) -> bool:
        """Whether a failure may have come from a lack of room for files."""
        return shutil.disk_usage(self.folder).free < _SPARE_DISK_BYTES

    def trust(self, code: str, top: str) -> None:
        """Put `code` into the folder as it is: a reference that we did not get from a model."""
        self.top = top
        self._write("code.sv", code)

    def _write(self, name: str, text: str) -> None:
        # An answer from JSON may hold half a surrogate pair, which UTF-8 cannot.
        (self.folder / name).write_text(text, encoding="utf-8", errors="replace")

    def _compile_alone(self) -> list[Port] | Verdict:
        command = ["iverilog", "-g2012", "-s", self.top, "-o", "alone.vvp", "code.sv"]
        ended = self._run(command)
        if ended is not None:
            return ended
        return _read_ports((self.folder / "alone.vvp").read_text(errors="replace"), self.top)

    def play(self, ports: Sequence[Port], vectors: Sequence[int]) -> list[str] | Verdict:
        """Drive the inputs with each vector and sample all outputs 100 ns later."""
        mark = secrets.token_hex(12)
        names = {key: f"{key}_{mark}" for key in ("bench", "now", "all", "seen", "step", "unit")}
        inputs, outputs = _width(ports, "input"), _width(ports, "output")
        digits = (inputs + 3) // 4
        (self.folder / f"{mark}.hex").write_text(
            "".join(f"{vector:0{digits}x}\n" for vector in vectors)
        )
        (self.folder / "bench.sv").write_text(
            _BENCH.format(
                **names,
                inputs=inputs,
                outputs=outputs,
                steps=len(vectors),
                top=self.top,
                connections=_connections(ports, names["now"], names["seen"]),
                stimulus=f"{mark}.hex",
                mark=mark,
            )
        )
        command = ["iverilog", "-g2012", "-s", names["bench"], "-o", "both.vvp"]
        ended = self._run([*command, "bench.sv", "code.sv"])
        if ended is not None:
            return ended
        # Twice the honest output, and room for what vvp itself may say.
        most = 2 * len(vectors) * (outputs + len(mark) + 12) + (1 << 16)
        finished = sandbox.run(
            self.folder,
            ["vvp", "-n", "both.vvp"],
            Limits(self.limits.cpu_s, self.limits.memory_bytes, most, self.limits.wall_s),
        )
        return _verdict(finished, "runtime") or read_samples(finished.stdout, mark)

    def drive(
        self, bench_text: str, top: str, *, alone: bool, output_bytes: int
    ) -> Driven | Verdict:
        """Simulate a whole test bench, whose top module is `top`, with the gated code.

        One sandbox for all of it. The text of `bench_text` is trusted. `alone` compiles the code
        by itself first, so that nothing in it can name a thing of the bench: needed where the
        bench holds more than a stimulus and a print of the code's own outputs.
        """
        (self.folder / "bench.sv").write_text(bench_text, encoding="utf-8")
        (self.folder / "drive.sh").write_text(_DRIVE.format(warnings=WARNINGS))
        finished = sandbox.run(
            self.folder,
            ["sh", "drive.sh", self.top if alone else "", top],
            replace(self.limits, output_bytes=output_bytes),
            tool="iverilog",
        )
        logs = {
            code: sandbox.read_start(self.folder / name, 1 << 16)
            for code, name in ((_ALONE_FAILED, "alone.log"), (_BOTH_FAILED, "both.log"))
        }
        if finished.code not in logs or finished.limit:
            return _verdict(finished, "runtime") or Driven(
                finished.stdout, logs[_BOTH_FAILED], _cpu_seconds(self.folder / "times.log")
            )
        said = logs[finished.code]
        outcome = "compile"
        if finished.code == _BOTH_FAILED and _WRONG_PORT.search(said):
            outcome = "interface"
        ended = finished._replace(
            stderr=f"{said}{finished.stderr}", limit=sandbox.limit_in_text(said)
        )
        return _verdict(ended, outcome) or Verdict(0.0, outcome)

    def _run(self, command: list[str]) -> Verdict | None:
        return _verdict(sandbox.run(self.folder, command, self.limits), "compile")


def _cpu_seconds(times: Path) -> float:
    """User and system seconds of a shell's children, from its `times`.

    Not from the sandbox: bubblewrap does not wait for its child, whose usage is lost.
    """
    words = sandbox.read_start(times, 1 << 10).split()[2:]
    parts = [word.rstrip("s").split("m") for word in words]
    return sum(60 * float(minutes) + float(seconds) for minutes, seconds in parts)


def _verdict(finished: Finished, failure: str) -> Verdict | None:
    """Why a tool run ends the grading; None when it ended well."""
    if finished.limit == "wall":
        return Verdict(None, "infra:wall", "the machine did not get it done in time")
    if finished.stderr.startswith(sandbox.OWN_MESSAGES):
        return Verdict(None, "infra:sandbox", finished.stderr[:200])
    if finished.limit:
        return Verdict(0.0, f"limit:{finished.limit}")
    if finished.code == 128 + signal.SIGKILL:
        return Verdict(None, "infra:killed", "something else on this machine killed it")
    if finished.code == 0:
        return None
    said = (finished.stderr or finished.stdout).strip()
    # The compiler may warn of other things first.
    first = said.rfind("\n", 0, max(said.find("error"), 0)) + 1
    detail = said[first : first + 200] or f"exit code {finished.code}"
    return Verdict(0.0, failure, detail, said[-OUTPUT_CHARS:])


def _read_ports(compiled: str, top: str) -> list[Port] | Verdict:
    scope = next((m for m in _SCOPE.finditer(compiled) if m.group("module") == top), None)
    if scope is None:
        return Verdict(0.0, "no_top", f"{top} is not elaborated")
    after = _SCOPE.search(compiled, scope.end())
    text = compiled[scope.end() : after.start() if after else len(compiled)]
    real = {match.group("name") for match in _REAL.finditer(text)}
    ports: list[Port] = []
    for match in _PORT.finditer(text):
        name, kind = match.group("name"), match.group("kind")
        if kind not in ("INPUT", "OUTPUT"):
            return Verdict(0.0, "interface", f"port {name} is {kind.lower()}")
        if name in real:
            return Verdict(0.0, "interface", f"port {name} is real")
        direction = "input" if kind == "INPUT" else "output"
        ports.append(Port(name, direction, int(match.group("width"))))  # type: ignore[arg-type]
    return ports


def _width(ports: Sequence[Port], direction: str) -> int:
    return sum(port.width for port in ports if port.direction == direction)


def _connections(ports: Sequence[Port], inputs: str, outputs: str) -> str:
    left = {"input": _width(ports, "input"), "output": _width(ports, "output")}
    joined: list[str] = []
    for port in ports:
        high = left[port.direction] - 1
        left[port.direction] -= port.width
        bus = inputs if port.direction == "input" else outputs
        joined.append(f".{port.name}({bus}[{high}:{left[port.direction]}])")
    return ", ".join(joined)


def read_samples(stdout: str, mark: str) -> list[str] | Verdict:
    """The sampled bits in step order; a missing, repeated or strange line is no run."""
    found: list[str] = []
    for line in stdout.splitlines():
        if not line.startswith(mark):
            continue
        parts = line.split(" ")
        if len(parts) != 3 or parts[1] != str(len(found)):
            return Verdict(0.0, "runtime", "samples out of order")
        found.append(parts[2])
    return found
