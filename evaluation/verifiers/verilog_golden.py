"""The recorded behaviour of a reference module, as a row's ground truth, and its comparison.

Samples are all output ports of one step side by side, first port in the highest bits: a value and
a mask of known bits. They are stored as zlib-compressed bytes in base64.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers import verilog_stimulus
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_stimulus import Port, Roles
from workspace.errors import UserError

_MAX_UNPACKED = 16 << 20
_BITS = str.maketrans("xzXZ", "0000")
_KNOWN = str.maketrans("01xzXZ", "110000")


@functools.lru_cache(1 << 16)  # narrow outputs repeat a few texts over 100,000 samples
def _parse_bits(bits: str) -> tuple[int, int]:
    return int(bits.translate(_BITS), 2), int(bits.translate(_KNOWN), 2)


class Sample(NamedTuple):
    """Output bits of one step: `value` is 0 wherever `known` is 0."""

    value: int
    known: int

    @classmethod
    def parse(cls, bits: str) -> Sample:
        """From the simulator's text of 0, 1, x and z."""
        return cls(*_parse_bits(bits))

    def accepts(self, other: Sample) -> bool:
        """Whether `other` has this sample's value wherever this one is known."""
        return not (self.known & ~other.known or (self.value ^ other.value) & self.known)


@dataclass(frozen=True)
class Golden:
    """A reference's ports, how its inputs were driven, and what came out at each step."""

    top: str
    ports: tuple[Port, ...]
    roles: Roles
    seed: int
    cycles: int
    constants: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def output_bits(self) -> int:
        return sum(p.width for p in self.ports if p.direction == "output")

    @functools.cached_property
    def vectors(self) -> tuple[int, ...]:
        """The input vectors, one a step."""
        return tuple(
            verilog_stimulus.make_vectors(
                self.ports, self.roles, seed=self.seed, cycles=self.cycles, constants=self.constants
            )
        )

    @property
    def work(self) -> int:
        """Port bits over all steps: stands for the time of a simulation, which no row holds."""
        return len(self.samples) * sum(port.width for port in self.ports)

    def known_share(self) -> float:
        """Share of output bits over all steps that are neither X nor Z."""
        known = sum(sample.known.bit_count() for sample in self.samples)
        return known / (self.output_bits * len(self.samples)) if self.samples else 0.0

    def moving_bits(self) -> int:
        """Mask of the output bits that were seen both at 0 and at 1, as a count."""
        return self._moving_mask().bit_count()

    def every_output_moves(self) -> bool:
        """Whether each output port has at least one moving bit."""
        mask, shift = self._moving_mask(), self.output_bits
        for port in self.ports:
            if port.direction == "output":
                shift -= port.width
                if not mask >> shift & ((1 << port.width) - 1):
                    return False
        return True

    def _moving_mask(self) -> int:
        ones = zeros = 0
        for value, known in self.samples:
            ones |= value
            zeros |= known & ~value
        return ones & zeros

    def compare(self, lines: Sequence[str]) -> Verdict:
        """Verdict on a candidate's samples (texts of 0, 1, x, z), one a step."""
        outputs = [(p.name, p.width) for p in self.ports if p.direction == "output"]
        return compare_samples(self.samples, lines, outputs)

    def expect(self, samples: Iterable[Sample]) -> Golden:
        """The same task with other samples to compare with."""
        return replace(self, samples=tuple(samples))

    def ground_truth(self, before: str = "", after: str = "") -> str:
        """The JSON for a row. An answer that is no whole module is put between the two texts."""
        return json.dumps(
            {
                "stimulus": verilog_stimulus.VERSION,
                "top": self.top,
                "ports": [[p.name, p.direction, p.width] for p in self.ports],
                "clocks": list(self.roles.clocks),
                "resets": list(self.roles.resets),
                "active_low": list(self.roles.active_low),
                "seed": self.seed,
                "cycles": self.cycles,
                "constants": list(self.constants),
                "samples": self._pack(),
                "before": before,
                "after": after,
            },
            separators=(",", ":"),
        )

    def _pack(self) -> str:
        size = (self.output_bits + 7) // 8
        data = b"".join(
            value.to_bytes(size) + known.to_bytes(size) for value, known in self.samples
        )
        return base64.b64encode(zlib.compress(data, 9)).decode()


def compare_samples(
    wanted: Sequence[Sample], lines: Sequence[str], outputs: Sequence[tuple[str, int]]
) -> Verdict:
    """Verdict on samples (texts of 0, 1, x, z) against the recorded ones, one a step.

    `outputs` are names and widths in bits, the first in the highest bits. What is X in `wanted` is
    free.
    """
    bits = sum(width for _, width in outputs)
    if len(lines) != len(wanted):
        return Verdict(0.0, "runtime", f"{len(lines)} samples of {len(wanted)}")
    if any(len(line) != bits or line.strip("01xzXZ") for line in lines):
        return Verdict(0.0, "runtime", "malformed samples")
    wrong = [
        index
        for index, (want, line) in enumerate(zip(wanted, lines, strict=True))
        if not want.accepts(Sample.parse(line))
    ]
    if not wrong:
        return Verdict(1.0, "pass", f"{len(lines)} samples agree")
    first = wrong[0]
    return Verdict(
        0.0,
        "mismatch",
        f"{len(wrong)} of {len(lines)} samples differ, first at step {first}: "
        + _describe(wanted[first], Sample.parse(lines[first]), outputs),
    )


def _describe(want: Sample, got: Sample, outputs: Sequence[tuple[str, int]]) -> str:
    shift = sum(width for _, width in outputs)
    for name, width in outputs:
        shift -= width
        part = (1 << width) - 1
        need = Sample(want.value >> shift & part, want.known >> shift & part)
        have = Sample(got.value >> shift & part, got.known >> shift & part)
        if not need.accepts(have):
            return f"{name} is {_text(have, width)}, wanted {_text(need, width)}"
    raise AssertionError("the sample does not differ")


def _text(sample: Sample, width: int) -> str:
    bits = "".join(
        "x" if not sample.known >> i & 1 else str(sample.value >> i & 1)
        for i in range(min(width, 64) - 1, -1, -1)
    )
    return bits if width <= 64 else f"...{bits}"


class Task(NamedTuple):
    """A row's ground truth: the golden and the texts around a spliced answer."""

    golden: Golden
    before: str
    after: str


# A group of answers to one task is graded in a row.
@functools.lru_cache(maxsize=8)
def parse_ground_truth(ground_truth: str, kind: str = "verilog_sim") -> Task:
    """Read what `Golden.ground_truth` wrote. Raises `UserError` for anything else."""
    truth = truths.load(kind, ground_truth)
    if truth.get("stimulus") != verilog_stimulus.VERSION:
        raise UserError(
            f"a {kind} row was recorded with stimulus version {truth.get('stimulus')!r}, "
            f"this program has {verilog_stimulus.VERSION}: build the data set again"
        )
    try:
        return Task(_read_golden(truth), str(truth["before"]), str(truth["after"]))
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise UserError(f"ground truth of a {kind} row is damaged: {error!r}") from error


def _read_golden(truth: dict[str, Any]) -> Golden:
    ports = tuple(Port(str(n), d, int(w)) for n, d, w in truth["ports"])
    roles = Roles(tuple(truth["clocks"]), tuple(truth["resets"]), tuple(truth["active_low"]))
    empty = Golden(
        str(truth["top"]), ports, roles, int(truth["seed"]), int(truth["cycles"]),
        tuple(int(c) for c in truth["constants"]), (),
    )  # fmt: skip
    size = (empty.output_bits + 7) // 8
    data = zlib.decompressobj().decompress(base64.b64decode(truth["samples"]), _MAX_UNPACKED)
    samples = tuple(
        Sample(int.from_bytes(data[i : i + size]), int.from_bytes(data[i + size : i + 2 * size]))
        for i in range(0, len(data), 2 * size)
    )
    if not samples:
        raise ValueError("no samples")
    return Golden(empty.top, ports, roles, empty.seed, empty.cycles, empty.constants, samples)
