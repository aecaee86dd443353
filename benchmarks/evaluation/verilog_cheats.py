"""Wrong answers: published cheats, stubs, and references with one token changed. None may pass.

    python -m benchmarks.evaluation.verilog_cheats [--short]

A mutant that passes is put to yosys, which proves some of them equal to the reference; the others
are noted with what it found. Peer of the mutants: none, the stimulus is upstream's, so the share is
what its benches can see.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
from pathlib import Path

from benchmarks.evaluation.verilog_problems import V2, grade, problems_of, right_answer
from benchmarks.measure import Report, parser, shared_data
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers import verilog_simulation
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_proof import prove
from evaluation.verifiers.verilog_tokens import Edit, apply_edits, tokens_of

# Problems whose answer is a constant, and one whose golden samples are unknown after the first.
CONSTANT = {"Prob001_zero", "Prob002_m2014_q4i", "Prob003_step_one", "Prob053_m2014_q4d"}
SWAPS = {
    "&": "|", "|": "&", "^": "&", "+": "-", "-": "+", "!": "", "~": "", "posedge": "negedge",
    "<": ">", ">": "<", "0": "1", "1": "0",
}  # fmt: skip
MUTANTS, SHORT_MUTANTS = 3, 1
LEFT_BEHIND = ("cheat_fopen", "cheat_dump", "cheat_hex")


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("evaluation", "verilog_cheats", short=arguments.short)
    problems = list(problems_of(V2).values())
    with tempfile.TemporaryDirectory() as scratch:
        cheats(report, Path(scratch))
        stubs(report, Path(scratch), problems[:: 4 if arguments.short else 1])
        mutants(report, Path(scratch), problems, SHORT_MUTANTS if arguments.short else MUTANTS)
    return report.finish()


def cheats(report: Report, scratch: Path) -> None:
    lines = (shared_data() / "verilog_cheats" / "cheats.jsonl").read_text().splitlines()
    answers = [("Prob035_count1to10", i, json.loads(x)["answer"]) for i, x in enumerate(lines)]
    ran = grade(V2, answers, scratch / "cheats", "--only-answered")
    report.add("published cheats", len(answers))
    report.add("cheats that pass", _passes(ran.verdicts), target="= 0")
    left = sum((Path("/tmp") / name).exists() for name in LEFT_BEHIND)
    report.add("files left by cheats", left, target="= 0")


def stubs(report: Report, scratch: Path, problems: list[Problem]) -> None:
    answers = [
        (problem.task_id, sample, text)
        for problem in problems
        for sample, text in enumerate(stubs_of(problem))
    ]
    ran = grade(V2, answers, scratch / "stubs", "--only-answered")
    passing = {task_id for (task_id, _), verdict in ran.verdicts.items() if verdict == "pass"}
    report.add("stubs (open, 0, 1, X)", len(answers))
    report.add("stubs that pass where no constant is the answer", len(passing - CONSTANT),
               target="= 0")  # fmt: skip
    report.notes.append(f"a constant passes: {', '.join(sorted(passing))}")


def stubs_of(problem: Problem) -> list[str]:
    """Modules with the right ports whose outputs are open, 0, 1 and X."""
    with verilog_simulation.bench(10) as bench:
        ports = bench.load(right_answer(problem), problem.top)
    if isinstance(ports, Verdict):
        return []
    declared = ", ".join(f"{p.direction} [{p.width - 1}:0] {p.name}" for p in ports)
    outputs = [port.name for port in ports if port.direction == "output"]
    bodies = ["", *(
        "".join(f"  assign {name} = {value};\n" for name in outputs) for value in ("'0", "'1", "'x")
    )]  # fmt: skip
    return [f"module {problem.top}({declared});\n{body}endmodule\n" for body in bodies]


def mutants(report: Report, scratch: Path, problems: list[Problem], each: int) -> None:
    answers = [
        (problem.task_id, sample, text)
        for problem in problems
        for sample, text in enumerate(mutants_of(right_answer(problem), each))
    ]
    ran = grade(V2, answers, scratch / "mutants", "--only-answered")
    judged = {k: v for k, v in ran.verdicts.items() if not v.startswith(("unusable", "compile"))}
    killed = len(judged) - _passes(judged)
    report.add("mutants that compile", len(judged))
    report.add("mutants killed", 100 * killed / len(judged), "%", target=">= 97")
    texts = {(task_id, sample): text for task_id, sample, text in answers}
    by_name = {problem.task_id: problem for problem in problems}
    equal = 0
    for key, verdict in judged.items():
        if verdict != "pass":
            continue
        found = _proof(by_name[key[0]], texts[key])
        equal += found == "equal"
        report.notes.append(f"survives, {found}: {key[0]}: {_changed(by_name[key[0]], texts[key])}")
    report.add("survivors that yosys proves equal to the reference", equal,
               f"of {len(judged) - killed}")  # fmt: skip
    report.add("mutants killed, those left out", 100 * killed / (len(judged) - equal), "%")


def _proof(problem: Problem, mutant: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        found = prove(Path(name), right_answer(problem), mutant, problem.top)
    return found.outcome if isinstance(found, Verdict) else found.result


def _changed(problem: Problem, mutant: str) -> str:
    """The line in which a mutant differs."""
    pairs = itertools.zip_longest(right_answer(problem).splitlines(), mutant.splitlines())
    return next(
        f"{(one or '').strip()} -> {(two or '').strip()}" for one, two in pairs if one != two
    )


def mutants_of(code: str, most: int) -> list[str]:
    """Copies with one token of the body swapped, a seeded choice."""
    start = code.index(";")  # after the ports
    places = [t for t in tokens_of(code) if t.start > start and _swap(t.text) != t.text]
    chosen = random.Random(code).sample(places, min(most, len(places)))
    return [apply_edits(code, [Edit(t.start, t.end, _swap(t.text))]) for t in chosen]


def _swap(token: str) -> str:
    return SWAPS.get(token, token)


def _passes(verdicts: dict[tuple[str, int], str]) -> int:
    return sum(verdict == "pass" for verdict in verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
