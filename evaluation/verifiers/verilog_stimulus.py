"""Ports of a module, and the input vectors that exercise it.

The vectors hold everything, clocks and resets included; the bench only plays them. Clocks never
change in the same step as another input, so no sample depends on a race. A cycle of a clocked
module has four steps (inputs at clock low, edge, inputs at clock high, edge), and outputs are
sampled after each, which tells a rising edge from a falling one and a synchronous reset from an
asynchronous one. The first half of a run draws controls freely, the second half lets them change
slowly, so that counters and state machines get somewhere.

Deterministic in (ports, seed, cycles, constants, VERSION): change any rule here, bump `VERSION`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

VERSION = 2

_CLOCK = re.compile(r"(?:^|_)(?:[a-z]{0,4}cl(?:oc)?k|ck|cp)(?:_?i|_in|\d*)?(?:_|$|\d)", re.I)
_RESET = re.compile(
    r"(?:^|_)(?:[a-z]{0,6}(?:reset|rst)|n?clr|clear|clrn|resetn|rstn)(?:_?[nbip]{1,2}|\d*)?(?:_|$)",
    re.I,
)
_ACTIVE_LOW = re.compile(
    r"(?:_n[io]?|_b|_l)$|(?:reset|rst|clr)_?(?:n|b|ni)$|(?:^|_)n_?(?:reset|rst|clr)|_n_", re.I
)
_LITERAL = re.compile(r"\d*\s*'[sS]?([bodh])\s*([0-9a-f_]+)|\b(\d{1,9})\b", re.I)
_MAX_CONSTANTS = 24


@dataclass(frozen=True)
class Port:
    """One port with its width in bits."""

    name: str
    direction: Literal["input", "output"]
    width: int


@dataclass(frozen=True)
class Roles:
    """Which inputs are clocks and resets; `active_low` names resets that assert at 0."""

    clocks: tuple[str, ...]
    resets: tuple[str, ...]
    active_low: tuple[str, ...]


def guess_roles(ports: Sequence[Port]) -> Roles:
    """Roles by the names that designers use for one-bit inputs."""
    bits = [p.name for p in ports if p.direction == "input" and p.width == 1]
    clocks = tuple(n for n in bits if _CLOCK.search(n) and not _is_enable(n))
    resets = tuple(n for n in bits if _RESET.search(n) and n not in clocks)
    return Roles(clocks, resets, tuple(n for n in resets if _ACTIVE_LOW.search(n)))


def _is_enable(name: str) -> bool:
    return re.search(r"(?:en|ena|enable|sel|valid|gate)\d*(?:_?[ni])?$", name, re.I) is not None


def constants_of(code: str) -> tuple[int, ...]:
    """Literals of the source, as likely values for its inputs (addresses, opcodes, limits)."""
    found: set[int] = set()
    for base, digits, plain in _LITERAL.findall(code):
        radix = {"b": 2, "o": 8, "d": 10, "h": 16}.get(base.lower(), 10)
        try:
            found.add(int((digits or plain).replace("_", ""), radix))
        except ValueError:
            continue  # digits that do not fit the base: not a literal after all
    return tuple(sorted(v for v in found if 0 < v < 1 << 64)[:_MAX_CONSTANTS])


def make_vectors(
    ports: Sequence[Port], roles: Roles, *, seed: int, cycles: int, constants: Sequence[int]
) -> list[int]:
    """The input vectors; the first input port sits in the highest bits of each.

    Clocked modules get 4 vectors a cycle, others 2 (all combinations first when there are few).
    """
    inputs = [p for p in ports if p.direction == "input"]
    player = _Player(inputs, roles, random.Random(seed), constants)
    if not roles.clocks:
        return player.combinational(2 * cycles)
    return player.clocked(cycles)


class _Player:
    """Draws the next value of every input."""

    def __init__(
        self, inputs: list[Port], roles: Roles, rng: random.Random, constants: Sequence[int]
    ) -> None:
        self.inputs = inputs
        self.roles = roles
        self.rng = rng
        self.constants = constants
        self.values = {p.name: 0 for p in inputs}
        self.bias = {p.name: 0.5 for p in inputs}

    def combinational(self, steps: int) -> list[int]:
        bits = sum(p.width for p in self.inputs)
        vectors: list[int] = []
        if bits <= 10 and 1 << bits <= 2 * steps:
            vectors = list(range(1 << bits))
            self.rng.shuffle(vectors)
        while len(vectors) < steps:
            self._draw_data(slow=len(vectors) > steps // 2)
            self._draw_resets(asserted=self.rng.random() < 1 / 16)
            vectors.append(self._pack())
        return vectors

    def clocked(self, cycles: int) -> list[int]:
        vectors: list[int] = []
        for cycle in range(cycles):
            slow = cycle > cycles // 2
            for phase in (1, 0):
                self._draw_data(slow=slow)
                self._draw_resets(asserted=self._reset_now(cycle, cycles, high=phase == 0))
                vectors.append(self._pack())
                clocks = self.roles.clocks
                moving = clocks if len(clocks) == 1 else [c for c in clocks if self._coin(0.6)]
                for name in moving:
                    self.values[name] = phase if len(clocks) == 1 else 1 - self.values[name]
                vectors.append(self._pack())
        return vectors

    def _reset_now(self, cycle: int, cycles: int, *, high: bool) -> bool:
        """Asserted at the start, at two early times (one within a clock-high phase), and rarely.

        Early, so that the rest of the run is long enough for counters to wrap.
        """
        if cycle < 3 or cycle == min(8, cycles // 4) or (cycle == min(14, cycles // 2) and high):
            return True
        return self._coin(1 / 1000)

    def _draw_resets(self, *, asserted: bool) -> None:
        for name in self.roles.resets:
            together = asserted and (len(self.roles.resets) == 1 or self._coin(0.8))
            self.values[name] = int(together != (name in self.roles.active_low))

    def _draw_data(self, *, slow: bool) -> None:
        special = {*self.roles.clocks, *self.roles.resets}
        if slow and self._coin(1 / 24):
            self.bias = {name: self.rng.choice((0.05, 0.3, 0.7, 0.95)) for name in self.bias}
        for port in self.inputs:
            if port.name in special or (slow and self._coin(0.8)):
                continue
            if port.width == 1:
                chance = self.bias[port.name] if slow else 0.5
                self.values[port.name] = int(self._coin(chance))
            else:
                self.values[port.name] = self._draw_word(port.width)

    def _draw_word(self, width: int) -> int:
        top = (1 << width) - 1
        pick = self.rng.random()
        if pick < 0.5:
            return self.rng.getrandbits(width)
        if pick < 0.65:
            return self.rng.randrange(4) & top
        if pick < 0.75:
            return self.rng.choice((0, top, 1 << self.rng.randrange(width), top >> 1))
        if pick < 0.95 and self.constants:
            return self.rng.choice(self.constants) & top
        return self.rng.getrandbits(width) & self.rng.getrandbits(width)

    def _coin(self, chance: float) -> bool:
        return self.rng.random() < chance

    def _pack(self) -> int:
        packed = 0
        for port in self.inputs:
            packed = packed << port.width | self.values[port.name]
        return packed
