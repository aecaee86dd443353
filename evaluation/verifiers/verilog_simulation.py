"""Compile one module and play input vectors to it, with Icarus Verilog inside the sandbox.

    with bench(cpu_s) as b:
        ports = b.load(code, top)          # ports as elaborated, or the verdict that refuses it
        samples = b.play(ports, vectors)   # one text of 0/1/x/z per vector, or a verdict

`load` gates the preprocessed text and compiles it alone, so nothing in it can name a thing of the
bench. What is compiled later is that same text. `play` uses module and signal names and a line
mark that are random for each call.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from evaluation.verifiers import sandbox, temporary_disk
from evaluation.verifiers.sandbox import Finished, Limits
from evaluation.verifiers.verdict import OUTPUT_CHARS, Verdict
from evaluation.verifiers.verilog_compiler import compiler
from evaluation.verifiers.verilog_gate import check_raw, clean_code, is_preprocessed, program_of
from evaluation.verifiers.verilog_stimulus import Port

COMPILED_BYTES: Final = 32 << 20  # a limit of bytes holds for every file, the program too

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


def simulator_version(simulator: str) -> str:
    """For example `Icarus Verilog 11.0`, "" when the program at that path is none."""
    said = subprocess.run(
        [simulator, "-V"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    match = re.match(r"Icarus Verilog version (\S+)", said)
    return f"Icarus Verilog {match.group(1)}" if match else ""


@contextmanager
def bench(cpu_s: int) -> Iterator[Bench]:
    """A bench in a temporary folder; `cpu_s` bounds each of its tool runs."""
    with tempfile.TemporaryDirectory(prefix="dsm-verilog-") as name:
        yield Bench(Path(name), cpu_s)


# A compiler's exit code may be the number of its errors, so what ended it is read from what the
# shell says of it.
_DRIVE = """{both} 2>both.log || exit 102
vvp -n both.vvp
ended=$?
times >times.log
exit $ended
"""
_ALONE = "{command} 2>alone.log || exit 101\n: >alone.done\n"
_ALONE_FAILED, _BOTH_FAILED = 101, 102


# A failure on a full disk says nothing of the answer.
DISK_FULL = Verdict(None, "infra:disk", "the temporary folder is full")


class Driven(NamedTuple):
    """A simulation that ended by itself: what it printed, and what the compiler warned of.

    `written` is the content of the file that the caller named, `program` that of `Bench.program`.
    """

    stdout: str
    warnings: str
    cpu_s: float
    written: str = ""
    program: str = ""


class Bench:
    """One candidate's compilation and simulation."""

    def __init__(self, folder: Path, cpu_s: int) -> None:
        self.folder = folder
        self.limits = Limits(cpu_s=cpu_s)
        self.top = ""
        self._code = ""

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
        preprocessed = self.preprocess(checked)
        if isinstance(preprocessed, Verdict):
            return preprocessed
        cleaned = clean_code(preprocessed, top)
        if isinstance(cleaned, Verdict):
            return cleaned
        self._keep(cleaned)
        return None

    def preprocess(self, text: str) -> str | Verdict:
        """`text` without macros and conditions; refused when it reads another file."""
        if is_preprocessed(text):
            return text
        self._write("answer.sv", text)
        command = ["iverilog", "-g2012", "-E", "-M", "read.txt", "-o", "code.sv", "answer.sv"]
        ended = _verdict(sandbox.run(self.folder, command, self.limits), "compile")
        if ended is not None:
            return ended
        # A macro can put a directive together that its text does not hold.
        read = sandbox.read_start(self.folder / "read.txt", 1 << 16).split("\n")
        if [name for name in read if name] != ["answer.sv"]:
            return Verdict(0.0, "rejected:include", "another file was read")
        return (self.folder / "code.sv").read_text(encoding="utf-8", errors="replace")

    def code(self) -> str:
        """The code as it was gated: what is compiled."""
        return self._code

    def program(self) -> str:
        """SHA-256 of the gated code, the same whatever its comments and layout."""
        text = program_of(self._code)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    def _keep(self, code: str) -> None:
        self._code = code
        self._write("code.sv", code)

    def disk_is_full(self) -> bool:
        """Whether a failure may have come from a lack of room for files."""
        return temporary_disk.is_full(self.folder)

    def trust(self, code: str, top: str) -> Verdict | None:
        """As `gate`, without refusing anything: a reference that we did not get from a model."""
        self.top = top
        text = self.preprocess(code)
        if isinstance(text, Verdict):
            return text
        self._keep(text)
        return None

    def _write(self, name: str, text: str) -> None:
        # An answer from JSON may hold half a surrogate pair, which UTF-8 cannot.
        (self.folder / name).write_text(text, encoding="utf-8", errors="replace")

    def _compile_alone(self) -> list[Port] | Verdict:
        ended = self._start(self._alone(), self.limits)
        return self._compile_failure(ended) or _verdict(ended, "compile") or self.ports()

    @property
    def compiled_alone(self) -> bool:
        """Whether the code by itself, without a bench, was compiled."""
        return (self.folder / "alone.done").exists()

    def ports(self) -> list[Port] | Verdict:
        """Of the code that was compiled alone."""
        return _read_ports((self.folder / "alone.vvp").read_text(errors="replace"), self.top)

    def play(
        self, ports: Sequence[Port], vectors: Sequence[int], *, alone: bool = False
    ) -> list[str] | Verdict:
        """Drive the inputs with each vector and sample all outputs 100 ns later.

        `alone` as in `drive`, for code that was not loaded.
        """
        mark = secrets.token_hex(12)
        names = {key: f"{key}_{mark}" for key in ("bench", "now", "all", "seen", "step", "unit")}
        inputs, outputs = _width(ports, "input"), _width(ports, "output")
        digits = (inputs + 3) // 4
        (self.folder / f"{mark}.hex").write_text(
            "".join(f"{vector:0{digits}x}\n" for vector in vectors)
        )
        text = _BENCH.format(
            **names,
            inputs=inputs,
            outputs=outputs,
            steps=len(vectors),
            top=self.top,
            connections=_connections(ports, names["now"], names["seen"]),
            stimulus=f"{mark}.hex",
            mark=mark,
        )
        # Twice the honest output, and room for what vvp itself may say.
        most = 2 * len(vectors) * (outputs + len(mark) + 12) + COMPILED_BYTES
        ran = self.drive(text, names["bench"], alone=alone, output_bytes=most)
        return ran if isinstance(ran, Verdict) else read_samples(ran.stdout, mark)

    def drive(
        self, bench_text: str, top: str, *, alone: bool, output_bytes: int, written: str = ""
    ) -> Driven | Verdict:
        """Simulate a whole test bench, whose top module is `top`, with the gated code.

        One sandbox for all of it. The text of `bench_text` is preprocessed and trusted. `alone`
        compiles the code by itself first, so that nothing in it can name a thing of the bench:
        needed where the bench holds more than a stimulus and a print of the code's own outputs.
        `written` is a file of the bench that is read afterwards.
        """
        limits = replace(self.limits, output_bytes=output_bytes)
        script = f"{self._alone() if alone else ''}{self._both(bench_text, top)}"
        finished = self._start(script, limits)
        failure = self._compile_failure(finished) or _verdict(finished, "runtime")
        return failure or Driven(
            finished.stdout,
            sandbox.read_start(self.folder / "both.log", 1 << 16),
            _cpu_seconds(self.folder / "times.log"),
            sandbox.read_start(self.folder / written, output_bytes) if written else "",
            self.program(),
        )

    def _start(self, script: str, limits: Limits) -> Finished:
        """Have a shell do it in the sandbox."""
        command = ["sh", "-c", f"{sandbox.shell_limits(limits)}{script}"]
        return sandbox.run(self.folder, command, limits, tool="iverilog", limits_itself=True)

    def _compile_failure(self, finished: Finished) -> Verdict | None:
        """The verdict when it was a compiler that ended a script; None when both did their work."""
        if finished.code not in (_ALONE_FAILED, _BOTH_FAILED) or finished.limit:
            return None
        log = "alone.log" if finished.code == _ALONE_FAILED else "both.log"
        said = sandbox.read_start(self.folder / log, 1 << 16)
        outcome = "compile"
        if finished.code == _BOTH_FAILED and _WRONG_PORT.search(said):
            outcome = "interface"
        ended = finished._replace(
            code=128 + signal.SIGKILL if "Killed" in finished.stderr else finished.code,
            stderr=f"{said}{finished.stderr}",
            limit=sandbox.limit_in_text(f"{said}{finished.stderr}"),
        )
        return _verdict(ended, outcome) or Verdict(0.0, outcome)

    def _alone(self) -> str:
        """A shell's lines that compile the code by itself; the files for it are written."""
        icarus = compiler()
        self._write("alone.conf", icarus.settings(self.code(), self.top, "alone.vvp"))
        return _ALONE.format(command=icarus.command("alone.conf", "code.sv"))

    def _both(self, bench_text: str, top: str) -> str:
        """Those that compile and simulate it in its bench."""
        icarus, code = compiler(), self.code()
        # One text for the compiler, as its preprocessor would have made of two files.
        both = f'`line 1 "bench.sv" 0\n{bench_text}\n`line 1 "code.sv" 0\n{code}\n'
        self._write("both.sv", both)
        self._write("both.conf", icarus.settings(both, top, "both.vvp"))
        return _DRIVE.format(both=icarus.command("both.conf", "both.sv"))


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
