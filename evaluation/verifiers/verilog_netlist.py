"""A module as yosys sees it, flattened to cells: what may go into a proof, and what clocks it.

    netlist = Netlist.read(folder / "gold.json", top)
    netlist.flaw()      # why a proof about it would mean nothing, "" when it may be proved about
    netlist.clock()     # the one clock and its edge, when all its flip-flops share one

A SAT proof takes the netlist for a set of equations. Equations that contradict each other (a net
with two drivers, a loop without a register) prove anything, so they must not get there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

MAX_CELLS: Final = 20_000
_CLOCKED: Final = ("$dff", "$adff", "$sdff", "$aldff")  # and their forms with enable or set
_SEQUENTIAL: Final = (*_CLOCKED, "$ff", "$dlatch", "$adlatch", "$sr")


class Clock(NamedTuple):
    """An input port, and whether its rising edge counts."""

    port: str
    rising: bool


class _Cell(NamedTuple):
    kind: str
    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    rising: bool


@dataclass(frozen=True)
class Netlist:
    """Cells, and the bits of each port; a bit is a number, a constant one of the texts 0 1 x z."""

    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    cells: list[_Cell]

    @classmethod
    def read(cls, path: Path, top: str) -> Netlist:
        """From yosys's `write_json`."""
        module: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["modules"][top]
        ports = module["ports"].items()
        return cls(
            {name: port["bits"] for name, port in ports if port["direction"] != "output"},
            {name: port["bits"] for name, port in ports if port["direction"] == "output"},
            [_cell(cell) for cell in module["cells"].values()],
        )

    def flaw(self) -> str:
        """Why nothing may be proved about this netlist."""
        if len(self.cells) > MAX_CELLS:
            return f"{len(self.cells)} cells, at most {MAX_CELLS}"
        drivers: dict[int | str, int] = {}
        driven = [*self.inputs.values(), *(b for c in self.cells for b in c.outputs.values())]
        for bit in (bit for bits in driven for bit in bits):
            drivers[bit] = drivers.get(bit, 0) + 1
        if any(isinstance(bit, str) or count > 1 for bit, count in drivers.items()):
            return "a net has two drivers"
        return "a loop without a register" if self._loops() else ""

    def _loops(self) -> bool:
        """Whether combinational cells feed themselves: some stay when all that can be are done."""
        waiting: dict[int, list[int]] = {}
        open_inputs: list[int] = []
        driver: dict[int | str, int] = {}
        logic = [cell for cell in self.cells if not cell.kind.startswith(_SEQUENTIAL)]
        for index, cell in enumerate(logic):
            driver.update({bit: index for bits in cell.outputs.values() for bit in bits})
        for index, cell in enumerate(logic):
            before = {driver[b] for bits in cell.inputs.values() for b in bits if b in driver}
            open_inputs.append(len(before))
            for other in before:
                waiting.setdefault(other, []).append(index)
        ready = [index for index, count in enumerate(open_inputs) if not count]
        done = 0
        while ready:
            done += 1
            for index in waiting.get(ready.pop(), ()):
                open_inputs[index] -= 1
                if not open_inputs[index]:
                    ready.append(index)
        return done < len(logic)

    @property
    def is_combinational(self) -> bool:
        """Whether it has no register."""
        return not any(cell.kind.startswith(_SEQUENTIAL) for cell in self.cells)

    def clock(self) -> Clock | None:
        """The input that clocks every register on one edge and does nothing else, if there is."""
        registers = [cell for cell in self.cells if cell.kind.startswith(_SEQUENTIAL)]
        if not all(cell.kind.startswith(_CLOCKED) for cell in registers):
            return None
        edges = {(cell.inputs["CLK"][0], cell.rising) for cell in registers}
        if len(edges) != 1:
            return None
        [(bit, rising)] = edges
        as_data = [
            *self.outputs.values(),
            *(
                bits
                for cell in self.cells
                for name, bits in cell.inputs.items()
                if name != "CLK" or not cell.kind.startswith(_CLOCKED)
            ),
        ]
        port = next((name for name, bits in self.inputs.items() if bits == [bit]), None)
        if port is None or any(bit in bits for bits in as_data):
            return None
        return Clock(port, rising)


def _cell(cell: dict[str, Any]) -> _Cell:
    directions = cell["port_directions"]
    bits = cell["connections"]
    return _Cell(
        cell["type"],
        {name: bits[name] for name, way in directions.items() if way != "output"},
        {name: bits[name] for name, way in directions.items() if way == "output"},
        str(cell["parameters"].get("CLK_POLARITY", "1")).endswith("1"),
    )
