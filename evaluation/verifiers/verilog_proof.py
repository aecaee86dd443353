"""Prove two modules equal with yosys in the sandbox, or find inputs that tell them apart.

    found = prove(folder, gold, gate, top, depth=12)      # Proof

The two are read into separate designs, flattened, and joined in a miter whose `trigger` is 1 when
an output of the second differs from a defined one of the first. Registers without an initial value
start undefined.

- Induction: equal for k steps and never different after. Where all registers of both share one
  clock, a step is a clock cycle; else the clocks' edges are part of the logic, which converges less
  often.
- Otherwise a search from the start over `depth` cycles for inputs that make them differ.

`undecided` says that neither was found within the limits; nothing follows from it. Comments and
attributes are taken out first, since yosys obeys some of them (`translate_off`, `full_case`).
Answers are told by exit codes and files, never by the log, in which a text under test can write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from evaluation.verifiers import sandbox
from evaluation.verifiers.sandbox import Limits
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_netlist import Netlist
from evaluation.verifiers.verilog_tokens import Edit, apply_edits, comments_of, tokens_of

DEPTH: Final = 12
_LIMITS: Final = Limits(cpu_s=5, memory_bytes=2 << 30, output_bytes=64 << 20)

_READ: Final = """read_verilog -sv -noassert -noassume {name}.sv
hierarchy -check -top {top}
proc
flatten
memory
opt_clean
setundef -undriven -undef
rename {top} dsm_{name}
write_json {name}.json
write_rtlil {name}.il
"""
_MITER: Final = """read_rtlil gold.il
read_rtlil gate.il
{registers}
miter -equiv -flatten -ignore_gold_x dsm_gold dsm_gate dsm_miter
hierarchy -top dsm_miter
sat -verify -set-init-undef -enable_undef -set-def-inputs -prove trigger 0 {how} dsm_miter
"""
_INDUCTION: Final = "-tempinduct -maxsteps {depth}"
_SEARCH: Final = (
    "-tempinduct -tempinduct-baseonly -maxsteps {depth} -show-inputs -dump_json found.json"
)


class Proof(NamedTuple):
    """`steps` are values of the input ports that may tell the two apart, when `different`."""

    result: Literal["equal", "different", "undecided"]
    detail: str
    steps: list[dict[str, int]]


def prove(folder: Path, gold: str, gate: str, top: str, *, depth: int = DEPTH) -> Proof | Verdict:
    """Compare module `top` of two texts; a verdict (infra:*) when the machine failed."""
    netlists: list[Netlist] = []
    for name, text in (("gold", gold), ("gate", gate)):
        (folder / f"{name}.sv").write_text(plain(text), encoding="utf-8", errors="replace")
        ended = _run(folder, _READ.format(name=name, top=top))
        if isinstance(ended, Verdict):
            return ended
        if ended:
            return Proof("undecided", f"yosys cannot read {name}: {ended}", [])
        netlists.append(Netlist.read(folder / f"{name}.json", f"dsm_{name}"))
        flaw = netlists[-1].flaw()
        if flaw:
            return Proof("undecided", f"{name}: {flaw}", [])
    return _decide(folder, netlists[0], netlists[1], depth)


def _decide(folder: Path, gold: Netlist, gate: Netlist, depth: int) -> Proof | Verdict:
    combinational = gold.is_combinational and gate.is_combinational
    shared = combinational or (gold.clock() is not None and gold.clock() == gate.clock())
    # Twice the steps where the clock is an input: low and high.
    steps, registers = (depth, "async2sync") if shared else (2 * depth, "clk2fflogic")
    ended = _run(folder, _MITER.format(registers=registers, how=_INDUCTION.format(depth=steps)))
    if isinstance(ended, Verdict):
        return ended
    if not ended:
        return Proof("equal", "proved by induction", [])
    registers, steps = ("", 1) if combinational else ("clk2fflogic", 2 * depth)
    searched = _run(folder, _MITER.format(registers=registers, how=_SEARCH.format(depth=steps)))
    if isinstance(searched, Verdict):
        return searched
    found = folder / "found.json"
    if found.is_file():
        return Proof("different", "inputs that tell them apart", read_steps(found))
    return Proof("undecided", f"no difference found, no proof: {searched or ended}", [])


def _run(folder: Path, script: str) -> str | Verdict:
    """ "" when yosys carried the script out, else why not."""
    (folder / "script.ys").write_text(script)
    ended = sandbox.run(folder, ["yosys", "-q", "script.ys"], _LIMITS, proc=True)
    if ended.limit == "wall":
        return Verdict(None, "infra:wall", "the machine did not get it done in time")
    if ended.stderr.startswith(sandbox.OWN_MESSAGES):
        return Verdict(None, "infra:sandbox", ended.stderr[:200])
    if ended.limit:
        return f"the limit of {ended.limit}"
    if "river-driver conflict" in ended.stderr:  # yosys picks one of them and goes on
        return "a net has two drivers"
    if ended.code:
        return (ended.stderr.strip().splitlines() or [f"exit code {ended.code}"])[-1][:150]
    return ""


def plain(code: str) -> str:
    """`code` without comments and attributes."""
    edits = [Edit(start, end, " ") for start, end in comments_of(code)]
    tokens = tokens_of(code)
    index = 0
    while index + 2 < len(tokens):
        one, two, three = tokens[index : index + 3]
        index += 1
        # `@(*)` and `@( * )` are no attributes.
        if one.text != "(" or two.text != "*" or two.start != one.end or three.text == ")":
            continue
        while index + 1 < len(tokens) and not (
            tokens[index].text == "*"
            and tokens[index + 1].text == ")"
            and tokens[index].end == tokens[index + 1].start
        ):
            index += 1
        index += 2
        edits.append(Edit(one.start, tokens[min(index, len(tokens)) - 1].end, " "))
    return apply_edits(code, edits)


def read_steps(path: Path) -> list[dict[str, int]]:
    """The values of the input ports, step by step, from yosys's WaveJSON.

    In a wave, a dot repeats the value before, `=` takes the next of `data`, 4 is a step without a
    value (the one that holds the registers' start).
    """
    # Names of inner nets hold backslashes, which yosys does not escape.
    text = path.read_text(encoding="utf-8").replace("\\", "/")
    signals: list[dict[str, Any]] = json.loads(text)["signal"]
    waves = {s["name"].removeprefix("in_"): s for s in signals if s["name"].startswith("in_")}
    length = max((len(wave["wave"]) for wave in waves.values()), default=0)
    steps: list[dict[str, int]] = [{} for _ in range(length)]
    for name, wave in waves.items():
        value: int | None = None
        for index, mark in enumerate(wave["wave"]):
            if mark != ".":
                text = wave["data"][index] if mark == "=" else mark
                value = int(text, 2) if re.fullmatch("[01]+", text) else None
            if value is not None:
                steps[index][name] = value
    return [step for step in steps if len(step) == len(waves)]
