"""`verilog_sim`: does a module behave like the reference, step by step?

    golden = record_golden(reference, "TopModule")      # Golden, or Unusable with a reason
    row["ground_truth"] = golden.ground_truth(before=..., after=...)
    verify(row["ground_truth"], answer)

The reference is simulated once, when the task is made; its output samples are the ground truth,
and it is nowhere near the candidate's simulation. The candidate is preprocessed, gated
(`verilog_gate`), compiled alone, checked for the same ports, then played the same input vectors
(`verilog_stimulus`) by a bench of ours with random names. It prints samples; the comparison is
done here. Bits that are X in the reference are free. Everything runs in `sandbox`.

A machine's fault (no simulator, wall clock exceeded twice) is no verdict: score None, `infra:*`.
Not covered: timing, power-on values that the reference sets by `initial`, formal equivalence.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from evaluation.verifiers import (
    sandbox,
    temporary_disk,
    verilog_simulation,
    verilog_stimulus,
)
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_answer import extract_code
from evaluation.verifiers.verilog_compiler import BrokenToolchainError
from evaluation.verifiers.verilog_golden import Golden, Sample, parse_ground_truth
from evaluation.verifiers.verilog_simulation import Bench
from evaluation.verifiers.verilog_stimulus import Port, Roles
from workspace.errors import MissingToolError, UserError

# Upstream's benches do not compile on 13 (NVlabs/verilog-eval #9); 10 refuses right answers.
SIMULATORS: Final = ("Icarus Verilog 11.", "Icarus Verilog 12.")
MAX_BITS = 2048  # of all inputs, and of all outputs
MAX_SAMPLE_BITS = 400_000  # keeps a row's ground truth under about 100 kB
MIN_CYCLES = 32
RECORD_CPU_S = 1
GRADE_CPU_S = 3

_GOOD = """module Good(input clk, input rst, output reg [3:0] q);
  always @(posedge clk) if (rst) q <= 1; else q <= q + 3;
endmodule
"""
_BAD = _GOOD.replace("q + 3", "q + 1")


class Unusable(NamedTuple):
    """Why a reference cannot make a task. `reason` is a code for counting."""

    reason: str
    detail: str = ""


def tool_version() -> str:
    """For example `Icarus Verilog 11.0`; part of a score's identity. "" when not installed."""
    found = shutil.which("iverilog")
    return _version_of(found) if found else ""


@functools.cache
def _version_of(simulator: str) -> str:
    return verilog_simulation.simulator_version(simulator)


def require_simulator() -> None:
    """Raises `MissingToolError` without Icarus Verilog, `UserError` for a version of no use."""
    version = tool_version()
    if not version or not _installed():
        raise MissingToolError(
            "iverilog and vvp are not installed or not on PATH: apt install iverilog"
        )
    if not version.startswith(SIMULATORS):
        known = " and ".join(re.sub(r"\.$", "", one) for one in SIMULATORS)
        raise UserError(
            f"{version}: answers are judged with {known}, and scores of other versions are not "
            "comparable: put one of these first on PATH"
        )


def record_golden(
    reference: str, top: str, *, seed: int = 0, cycles: int = 256
) -> Golden | Unusable:
    """Simulate `reference` and keep its output samples.

    `Unusable` when it fails its own gate, does not compile, has no usable ports, is too big or
    slow, or when its outputs are all unknown or never change (a constant would pass).
    Raises `MissingToolError` without a simulator, `OSError` when the temporary folder is full.
    """
    if not _installed():
        raise MissingToolError("iverilog and vvp are not on PATH: apt install iverilog")
    with verilog_simulation.bench(RECORD_CPU_S) as bench:
        found = _record(bench, reference, top, seed, cycles)
        if isinstance(found, Unusable) and bench.disk_is_full():
            raise temporary_disk.full_error()
    return found


def _record(bench: Bench, reference: str, top: str, seed: int, cycles: int) -> Golden | Unusable:
    ports = bench.load(reference, top)
    if isinstance(ports, Verdict):
        return Unusable(f"reference_{ports.outcome}", ports.detail)
    unfit = _unfit(ports)
    if unfit is not None:
        return unfit
    wide = sum(p.width for p in ports if p.direction == "output")
    if 4 * cycles * wide > MAX_SAMPLE_BITS:
        cycles = max(MIN_CYCLES, MAX_SAMPLE_BITS // (4 * wide))
    constants = verilog_stimulus.constants_of(reference)
    best: Golden | Unusable = Unusable("outputs_constant")
    for roles in _possible_roles(verilog_stimulus.guess_roles(ports)):
        golden = Golden(top, tuple(ports), roles, seed, cycles, constants, ())
        samples = bench.play(ports, golden.vectors)
        if isinstance(samples, Verdict):
            return Unusable(f"reference_{samples.outcome}", samples.detail)
        best = _better(best, replace(golden, samples=tuple(map(Sample.parse, samples))))
        if isinstance(best, Golden) and best.every_output_moves():
            break
    return best


def _possible_roles(guessed: Roles) -> list[Roles]:
    """The guess by name, then resets of the other polarity."""
    if not guessed.resets:
        return [guessed]
    flipped = tuple(name for name in guessed.resets if name not in guessed.active_low)
    return [guessed, replace(guessed, active_low=flipped)]


def _unfit(ports: Sequence[Port]) -> Unusable | None:
    for direction in ("input", "output"):
        bits = sum(p.width for p in ports if p.direction == direction)
        if bits == 0:
            return Unusable(f"no_{direction}s")
        if bits > MAX_BITS:
            return Unusable("too_wide", f"{bits} {direction} bits, at most {MAX_BITS}")
    return None


def _better(best: Golden | Unusable, other: Golden) -> Golden | Unusable:
    if not other.known_share():
        return best if isinstance(best, Golden) else Unusable("outputs_unknown")
    if not other.moving_bits():
        return best
    if isinstance(best, Golden) and best.moving_bits() >= other.moving_bits():
        return best
    return other


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth was not made by `Golden`.

    Raises `BrokenToolchainError` when the simulator fails its self-test (once a process).
    """
    task = parse_ground_truth(ground_truth)
    if not _installed():
        return Verdict(None, "infra:iverilog", "iverilog and vvp are not on PATH")
    self_test()
    return _grade(task.golden, answer, task.before, task.after)


def _grade(golden: Golden, answer: str, before: str = "", after: str = "") -> Verdict:
    code = extract_code(answer, golden.top, before, after)
    if isinstance(code, Verdict):
        return code
    verdict = _simulate(golden, code)
    if verdict.outcome == "infra:wall":
        verdict = _simulate(golden, code)
    return replace(verdict, detail=f"{verdict.detail} [{sandbox.level()}]".strip())


def _simulate(golden: Golden, code: str) -> Verdict:
    with verilog_simulation.bench(GRADE_CPU_S) as bench:
        verdict = _run(bench, golden, code)
        if not verdict.passed and bench.disk_is_full():
            return verilog_simulation.DISK_FULL
    return verdict


def _run(bench: Bench, golden: Golden, code: str) -> Verdict:
    refused = bench.gate(code, golden.top)
    if refused is not None:
        return refused
    samples = bench.play(golden.ports, golden.vectors, alone=True)
    if bench.compiled_alone:
        # Whatever came of the bench with its ports: they must be the right ones.
        ports = bench.ports()
        if isinstance(ports, Verdict):
            return ports
        differing = _port_difference(golden.ports, ports)
        if differing:
            return Verdict(0.0, "interface", differing)
    return samples if isinstance(samples, Verdict) else golden.compare(samples)


def _port_difference(wanted: Sequence[Port], found: Sequence[Port]) -> str:
    have = {p.name: p for p in found}
    for port in wanted:
        other = have.pop(port.name, None)
        if other is None:
            return f"no port {port.name}"
        if other != port:
            return (
                f"port {port.name} is {other.direction} of {other.width} bits, "
                f"wanted {port.direction} of {port.width}"
            )
    return f"extra port {min(have)}" if have else ""


def _installed() -> bool:
    return shutil.which("iverilog") is not None and shutil.which("vvp") is not None


@functools.cache
def self_test() -> None:
    """A right module must pass and a wrong one fail, or nothing is scored in this process."""
    golden = record_golden(_GOOD, "Good", cycles=16)
    if isinstance(golden, Unusable):
        raise BrokenToolchainError(f"{tool_version()} cannot run a counter: {golden}")
    good, bad = _grade(golden, _GOOD), _grade(golden, _BAD)
    if "infra:disk" in (good.outcome, bad.outcome):
        raise temporary_disk.full_error()
    if not good.passed or bad.outcome != "mismatch":
        raise BrokenToolchainError(
            f"{tool_version()} misjudges a counter: right one {good}, wrong one {bad}"
        )


__all__ = [
    "BrokenToolchainError",
    "Golden",
    "Unusable",
    "record_golden",
    "require_simulator",
    "self_test",
    "tool_version",
    "verify",
]
