"""VerilogEval's test bench -> a bench that records what the candidate puts out.

    bench = recording_bench(problem)                   # or why there is none
    text = bench.with_mark("m4f1c...", samples=400)    # for one run
    recorded = read_recording(stdout, written, "m4f1c...")

Upstream's benches are generated from one mould: `stimulus_gen`, and `tb` with the reference as
`good1`, the candidate as `top_module1`, a `tb_match` wire and a process that samples it. Here the
reference's instance goes, `tb_match` is constantly true (its value in a right run), dumps and
prints go, and the sampling process stores the candidate's outputs instead of counting: in a memory
that is written to a file at the end (printing each takes half of a long simulation), whose name,
like all others, holds the mark. They pass through a wire first, as they do in upstream's
`tb_match`, so that both see the same instant.

`stimulus_gen` is given `tb_match`, and in some problems the outputs, for hints that it prints.
Where a reference's output is still read after that, `reads_reference` says so: the caller records
twice, with all its bits 0 and all 1; equal samples show that the stimulus does not depend on it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_cuts import DUMPS, PRINTS, call_edits
from evaluation.verifiers.verilog_tokens import (
    Edit,
    Token,
    apply_edits,
    tokens_of,
    units_of,
)

MARK = "dsm_mark_"
FILL = "dsm_fill_"
ROOM = "dsm_room_"
_MATCH = re.compile(r"assign\s+tb_match\s*=[^;]*;")
# Which $writememb puts between; a search that begins with a letter is three times as fast as one
# for the start of a line.
_ADDRESS = re.compile(r"\n//[^\n]*")
_LIST = re.compile(r"\{([^{}]*)\}")
_DECLARES = frozenset({"logic", "wire", "reg", "bit", "]", ",", "input"})


class NoBench(Exception):
    """Why a test bench is not of the mould."""


class Outline(NamedTuple):
    """A bench with placeholders for the mark."""

    text: str
    top: str
    outputs: tuple[tuple[str, int], ...]  # names and widths in bits, as they are printed
    reads_reference: bool = False

    def with_mark(self, mark: str, *, samples: int, fill: str = "0") -> str:
        """The text of one run that keeps so many samples.

        `fill` is every bit of a reference's output that is still read.
        """
        text = self.text.replace(FILL, fill).replace(ROOM, str(max(1, samples)))
        return text.replace(MARK, mark)

    def top_with_mark(self, mark: str) -> str:
        """The name of its top module in that run."""
        return self.top.replace(MARK, mark)


class Recording(NamedTuple):
    """What one run recorded: a line of 0, 1, x, z per sample, as many as there was room for."""

    text: str
    samples: int  # that were taken
    timeout: bool  # the bench's own guard ended it

    @property
    def lines(self) -> list[str]:
        """The samples one by one."""
        return self.text.split()


def recording_bench(problem: Problem) -> Outline:
    """The recording form of a problem's bench. Raises `NoBench` when it is not of the mould."""
    text = problem.bench
    if any(name in text for name in (MARK, FILL, ROOM)):
        raise NoBench(f"uses the name {MARK}, {FILL} or {ROOM}")
    tokens = tokens_of(text)
    names = _outputs(text)
    widths = [_width(text, name) for name in names]
    guards = _timeout_edits(tokens)
    marked = {edit.start for edit in guards}
    edits = [
        *guards,
        *(edit for edit in call_edits(tokens, PRINTS | DUMPS) if edit.start not in marked),
        _instance_edit(tokens, problem.reference_top),
        _final_edit(tokens),
        _sampler_edit(tokens),
        *_renaming(tokens, problem.top),
    ]
    references = [f"{name.removesuffix('_dut')}_ref" for name in names]
    bare = apply_edits(text, [*edits, _match_edit(text, names, sum(widths), [])])
    read = _still_read(tokens_of(bare), references)
    return Outline(
        apply_edits(text, [*edits, _match_edit(text, names, sum(widths), read)]) if read else bare,
        f"tb_{MARK}",
        tuple(
            (name.removesuffix("_dut"), width) for name, width in zip(names, widths, strict=True)
        ),
        bool(read),
    )


def _outputs(text: str) -> list[str]:
    """The candidate's output nets in the order in which upstream compares them."""
    match = _MATCH.search(text)
    lists = _LIST.findall(match.group()) if match else []
    for names in lists:
        found = [name.strip() for name in names.split(",")]
        if all(name.endswith("_dut") for name in found):
            return found
    raise NoBench("no comparison of *_ref and *_dut in tb_match")


def _timeout_edits(tokens: Sequence[Token]) -> list[Edit]:
    """The guard's print stays, marked: whether it fired belongs to the official verdict."""
    return [
        Edit(a.start, d.end, f'$display("t {MARK}")')
        for a, b, c, d in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)
        if (a.text, b.text, c.text, d.text) == ("$display", "(", '"TIMEOUT"', ")")
    ]


def _instance_edit(tokens: Sequence[Token], reference: str) -> Edit:
    for index, token in enumerate(tokens):
        if token.text == reference:
            end = _find(tokens, ";", index)
            return Edit(token.start, tokens[end].end)
    raise NoBench(f"no instance of {reference}")


def _final_edit(tokens: Sequence[Token]) -> Edit:
    start = _find(tokens, "final", 0)
    return Edit(
        tokens[start].start,
        tokens[_block_end(tokens, start + 1)].end,
        f'final begin $display("n {MARK} %0d", {MARK}step);\n'
        f'    if ({MARK}step > 0) $writememb("{MARK}.txt", {MARK}kept, 0,\n'
        f"      ({MARK}step < {ROOM} ? {MARK}step : {ROOM}) - 1); end",
    )


def _width(text: str, name: str) -> int:
    """The width of a net in bits, as declared: Icarus 11 elaborates `$bits` of one too late."""
    match = re.search(rf"\blogic\s*(?:\[\s*(\d+)\s*:\s*(\d+)\s*\])?\s*{re.escape(name)}\s*;", text)
    if match is None:
        raise NoBench(f"no declaration of {name} with a plain width")
    return abs(int(match[1]) - int(match[2])) + 1 if match[1] else 1


def _match_edit(text: str, names: Sequence[str], bits: int, read: Sequence[str]) -> Edit:
    match = _MATCH.search(text)
    assert match is not None, "found by _outputs"
    return Edit(
        match.start(),
        match.end(),
        f"assign tb_match = 1'b1;\n"
        f"  wire [{bits}-1:0] {MARK}seen = {{{', '.join(names)}}};\n"
        f"  reg [{bits}-1:0] {MARK}kept [0:{ROOM}-1];\n"
        f"  integer {MARK}step = 0;\n"
        + "".join(f"  assign {name} = {{$bits({name}){{1'b{FILL}}}}};\n" for name in read),
    )


def _sampler_edit(tokens: Sequence[Token]) -> Edit:
    """The body of the process that counts samples keeps one instead."""
    counting = ["stats1", ".", "clocks", "+", "+"]
    for index, token in enumerate(tokens):
        if token.text == counting[0] and [t.text for t in tokens[index : index + 5]] == counting:
            begin = next(i for i in range(index, -1, -1) if tokens[i].text == "begin")
            return Edit(
                tokens[begin].start,
                tokens[_block_end(tokens, begin)].end,
                f"begin {MARK}kept[{MARK}step] = {MARK}seen; {MARK}step = {MARK}step + 1; end",
            )
    raise NoBench("no sampling process")


def _renaming(tokens: Sequence[Token], top: str) -> list[Edit]:
    """Modules and instances of the bench get names that no answer can have."""
    modules = {unit.name for unit in units_of(tokens)}
    if not {"tb", "stimulus_gen"} <= modules:
        raise NoBench("no modules tb and stimulus_gen")
    return rename(tokens, modules | instances_of(tokens, {*modules, top}))


def instances_of(tokens: Sequence[Token], modules: Container[str]) -> set[str]:
    """Names of instances: a module's name, another name, an opening parenthesis."""
    return {
        name.text
        for module, name, opening in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if module.text in modules and name.kind == "word" and opening.text == "("
    } - {"module"}


def rename(tokens: Sequence[Token], names: Container[str]) -> list[Edit]:
    """Edits that put the mark behind each of the names, except where they name a port."""
    return [
        Edit(token.start, token.end, f"{token.text}_{MARK}")
        for before, token in itertools.pairwise(tokens)
        if token.kind == "word" and token.text in names and before.text != "."
    ]


def _still_read(tokens: Sequence[Token], references: Sequence[str]) -> list[str]:
    """Those of the reference's outputs that are more than declared and passed on."""
    found = {
        token.text
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.text in references
        and not (before.text in _DECLARES and after.text in (";", ",", ")"))
    }
    return sorted(found)


def _block_end(tokens: Sequence[Token], begin: int) -> int:
    """The index of the `end` of the block that begins at `begin`."""
    depth = 0
    for index in range(begin, len(tokens)):
        text = tokens[index].text
        depth += (text in ("begin", "case", "casez", "casex")) - (text in ("end", "endcase"))
        if depth == 0:
            return index
    raise NoBench("a block without an end")


def _find(tokens: Sequence[Token], text: str, start: int) -> int:
    for index in range(start, len(tokens)):
        if tokens[index].text == text:
            return index
    raise NoBench(f"no {text!r}")


def read_recording(stdout: str, written: str, mark: str) -> Recording | Verdict:
    """What a run, whose bench had `mark`, printed and wrote; a verdict when that is not whole."""
    lines = stdout.splitlines()
    counts = [line.split()[2:] for line in lines if line.startswith(f"n {mark} ")]
    if len(counts) != 1 or len(counts[0]) != 1 or not counts[0][0].isdecimal():
        return Verdict(0.0, "runtime", f"the bench ended {len(counts)} times")
    samples = _ADDRESS.sub("", f"\n{written}").removeprefix("\n")
    return Recording(samples, int(counts[0][0]), f"t {mark}" in lines)
