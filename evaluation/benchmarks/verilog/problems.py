"""A public Verilog benchmark, as upstream publishes it -> its problems.

    problems = read_benchmark("verilog_eval_v2_code_complete", folder)

In: `*_prompt.txt *_ref.sv *_test.sv *_ifc.txt` (VerilogEval v2), a JSONL file or the folder that
holds it (v1), one folder a design with `testbench.v` and `verified_*.v` (RTLLM v1.1; v2.0 has the
same below folders by category).
Your own problems with test benches: `local_set`, a JSONL file (`benchmarks/local_set`), or
`NAME_layout`, a folder like one of these. A missing file or problem, or another benchmark's files,
is a `UserError` that names it (`contents`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evaluation.benchmarks.local_set.lines import read_lines, the_module
from evaluation.benchmarks.verilog.contents import known_ids, layout_of, require_whole
from evaluation.verifiers.verilog_tokens import tokens_of, units_of
from workspace.errors import UserError

MAX_FILE_BYTES = 4 << 20


@dataclass(frozen=True)
class Problem:
    """One problem. `reference` declares `reference_top`, which is renamed to `top` to be run."""

    benchmark: str
    task_id: str
    top: str
    bench: str
    reference: str
    reference_top: str
    interface: str = ""  # stands before an answer that is only the module's body
    side_files: tuple[tuple[str, bytes], ...] = ()  # name and content, read by the bench
    self_judging: bool = False  # the bench itself prints the verdict
    category: str = ""  # upstream's kind of design, where it names one; decides no verdict

    def digest(self) -> str:
        """Changes with anything that a verdict may depend on."""
        parts = [self.benchmark, self.task_id, self.top, self.bench, self.reference]
        parts += [self.reference_top, self.interface, repr(self.side_files)]
        parts += [str(self.self_judging)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_benchmark(name: str, source: Path) -> dict[str, Problem]:
    """Problems by task id, in upstream's order. `UserError` names a missing file or problem."""
    layout = layout_of(name)
    if layout not in READERS or (layout != name and layout not in known_ids()):
        raise UserError(f"unknown benchmark {name!r}: use one of {', '.join(READERS)}")
    if not source.exists():
        raise UserError(f"{source} does not exist: give the place of {name} as upstream ships it")
    found = READERS[layout](name, source)
    problems = {problem.task_id: problem for problem in found}
    if len(problems) < len(found):
        twice = min(n for n, times in Counter(p.task_id for p in found).items() if times > 1)
        raise UserError(f"{source} holds problem {twice} more than once: give one version")
    if name in known_ids():
        require_whole(name, source, problems)
    return problems


def _read_v2(name: str, folder: Path) -> list[Problem]:
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder, which {name} is")
    kinds = ("prompt.txt", "ref.sv", "test.sv")
    names = sorted(
        {path.name.removesuffix(f"_{kind}") for kind in kinds for path in folder.glob(f"*_{kind}")}
    )
    if not names:
        raise UserError(
            f"{folder} holds no *_prompt.txt, *_ref.sv, *_test.sv: give upstream's dataset folder"
        )
    return [_read_v2_problem(name, folder, task_id) for task_id in names]


# Both forms have the same ids; in one the prompt ends with the module's header.
_CODE_COMPLETE = "verilog_eval_v2_code_complete"
_HEADER_AT_END = re.compile(r"\bmodule\s+TopModule\b[^;]*;\s*\Z")


def _read_v2_problem(name: str, folder: Path, task_id: str) -> Problem:
    prompt = read_text(folder / f"{task_id}_prompt.txt")
    has_header = _HEADER_AT_END.search(prompt) is not None
    wants_header = layout_of(name) == _CODE_COMPLETE
    if name == layout_of(name) and has_header != wants_header:
        raise UserError(
            f"{folder / task_id}_prompt.txt {'ends' if has_header else 'does not end'} with the "
            f"module's header, which is not so in {name}: give the folder of this form, upstream's "
            f"dataset_{'code-complete-iccad2023' if wants_header else 'spec-to-rtl'}"
        )
    interface = ""
    if wants_header:  # the other form shows the model no header
        interface = read_text(folder / f"{task_id}_ifc.txt")
    return Problem(
        benchmark=name,
        task_id=task_id,
        top="TopModule",
        bench=read_text(folder / f"{task_id}_test.sv"),
        reference=read_text(folder / f"{task_id}_ref.sv"),
        reference_top="RefModule",
        interface=interface,
    )


_V1_FILES = {
    "verilog_eval_v1_human": "VerilogEval_Human.jsonl",
    "verilog_eval_v1_machine": "VerilogEval_Machine.jsonl",
}


def _read_v1(name: str, source: Path) -> list[Problem]:
    path = source
    if source.is_dir():
        file = _V1_FILES[layout_of(name)]
        places = (source / file, source / "data" / file)
        path = next((place for place in places if place.is_file()), places[0])
    problems: list[Problem] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            problems.append(_read_v1_problem(name, line, f"{path}, line {number}"))
    if not problems:
        raise UserError(f"{path} is empty")
    return problems


def _read_v1_problem(name: str, line: str, where: str) -> Problem:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error})") from error
    for key in ("task_id", "prompt", "test"):
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            raise UserError(f"{where}: no text {key!r}, which VerilogEval v1 has")
    test = row["test"]
    units = {unit.name: unit for unit in units_of(tokens_of(test))}
    if "reference_module" not in units:
        raise UserError(f"{where}: no module reference_module in 'test'")
    edit = units["reference_module"].edit
    return Problem(
        benchmark=name,
        task_id=row["task_id"],
        top="top_module",
        bench=test[: edit.start] + test[edit.end :],
        reference=test[edit.start : edit.end] + "\n",
        reference_top="reference_module",
        interface=row["prompt"],
    )


def _read_rtllm(name: str, folder: Path) -> list[Problem]:
    designs = design_folders(folder)
    if not designs:
        raise UserError(f"{folder} holds no folder with a testbench.v: give upstream's folder")
    return [_read_design(name, folder, design) for design in designs]


def design_folders(folder: Path) -> list[Path]:
    """Folders of designs at any depth, by name; v2.0 has them in folders by category."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder, which RTLLM is")
    marks = ("testbench.v", "design_description.txt")
    found = {path.parent for mark in marks for path in folder.rglob(mark)}
    return sorted(found - {folder}, key=lambda path: path.name)


def _read_design(name: str, root: Path, folder: Path) -> Problem:
    bench = read_text(folder / "testbench.v")
    read_text(folder / "design_description.txt")
    references = sorted(folder.glob("verified_*.v"))
    if len(references) != 1:
        raise UserError(f"{folder}: {len(references)} files verified_*.v, there must be one")
    reference = read_text(references[0])
    top = _instantiated(bench, f"{folder / 'testbench.v'}")
    declared = [unit.name for unit in units_of(tokens_of(reference))]
    # Most references are called verified_<design>, a few by another name than the bench uses.
    named = [top] if top in declared else [n for n in declared if n.startswith("verified_")]
    if len(named) != 1:
        raise UserError(f"{references[0]}: neither module {top} nor one module verified_*")
    sides = sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix in (".dat", ".txt", ".hex", ".mem")
        and path.name != "design_description.txt"
    )
    return Problem(
        benchmark=name,
        task_id=folder.name,
        top=top,
        bench=bench,
        reference=reference,
        reference_top=named[0],
        side_files=tuple((path.name, _bytes(path)) for path in sides),
        self_judging=True,
        category=_category(folder.relative_to(root)),
    )


def _category(design: Path) -> str:
    """The outermost folder around a design of v2.0; v1.1 has none."""
    return design.parts[0].replace("_", " ") if len(design.parts) > 1 else ""


def _read_local(name: str, path: Path) -> list[Problem]:
    return [
        Problem(
            benchmark=name,
            task_id=line["id"],
            top=the_module(line, where),
            bench=line["testbench"],
            reference=line["reference"],
            reference_top=the_module(line, where),
            interface=line.get("header", ""),
            self_judging=True,
        )
        for where, line in read_lines(path).items()
        if "testbench" in line
    ]


_NO_MODULE = frozenset({
    "module", "task", "function", "begin", "end", "endtask", "endfunction", "if", "else", "for",
    "while", "case", "repeat", "forever", "always", "initial",
})  # fmt: skip


def _instantiated(bench: str, where: str) -> str:
    """The one module that the bench uses and does not declare."""
    tokens = tokens_of(bench)
    declared = {unit.name for unit in units_of(tokens)}
    found = {
        first.text
        for before, first, second, third in zip(
            [tokens[0], *tokens], tokens, tokens[1:], tokens[2:], strict=False
        )
        if before.text in (";", ")", "end", "endtask", "endfunction")
        and first.kind == "word"
        and first.text not in _NO_MODULE | declared
        and (
            (second.kind == "word" and third.text == "(")
            or (second.text == "#" and third.text == "(")
        )
    }
    if len(found) != 1:
        raise UserError(f"{where}: cannot tell the design's module among {sorted(found)}")
    return found.pop()


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path} is missing: the benchmark's folder is not complete")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    return path.read_bytes()


def read_text(path: Path) -> str:
    """The file's text. `UserError` when it is missing, blank or too big."""
    content = _bytes(path)
    if not content.strip():
        raise UserError(f"{path} is empty: fetch the benchmark again")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


READERS: Mapping[str, Callable[[str, Path], list[Problem]]] = MappingProxyType(
    {
        "verilog_eval_v2_code_complete": _read_v2,
        "verilog_eval_v2_spec_to_rtl": _read_v2,
        "verilog_eval_v1_human": _read_v1,
        "verilog_eval_v1_machine": _read_v1,
        "rtllm_v1.1": _read_rtllm,
        "rtllm_v2.0": _read_rtllm,
        "local_set": _read_local,
    }
)
