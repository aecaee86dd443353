"""A JSONL file of your own problems -> a problem set (layout: the package's docstring)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evaluation.benchmarks import HERE, Benchmark
from evaluation.benchmarks.local_set.lines import is_text, read_lines, the_module
from evaluation.benchmarks.problem_set import (
    HarnessTasks,
    ProblemSet,
    Row,
    choose,
    hash_rows,
)
from evaluation.benchmarks.tasks import Sampling, write_task
from evaluation.benchmarks.verilog.cache import Cache, key_of
from evaluation.benchmarks.verilog.grader import VERSION as BENCH_VERSION
from evaluation.benchmarks.verilog.problems import read_benchmark
from evaluation.benchmarks.verilog.public_set import BenchSet, bench_row, hash_problems
from evaluation.benchmarks.verilog.scoring import ground_truth
from evaluation.verifiers import KINDS, VERSION
from evaluation.verifiers.verilog import (
    Unusable,
    record_golden,
    require_simulator,
    self_test,
    tool_version,
)
from workspace.config import hash_json
from workspace.errors import UserError

_MEASURES: Final = {
    "questions": "your own questions",
    "modules": "your own hardware modules, against their references",
    "benches": "your own hardware modules, in their test benches",
}
_QUESTION_KINDS: Final = tuple(kind for kind in KINDS if not kind.startswith("verilog_"))


@dataclass(frozen=True)
class ModuleSet(ProblemSet):
    """Modules with references; what these put out is recorded before anything is asked."""

    tops: Mapping[str, str]
    cache: Path

    @property
    def needs_every_verdict(self) -> bool:
        """As for the public benchmarks."""
        return True

    def prepare(self) -> Mapping[str, str]:
        """Record all references, or name the one that makes no task."""
        require_simulator()
        self._recorded()
        return {}

    def tasks(self, folder: Path, sampling: Sampling) -> HarnessTasks:
        """As all, with the recorded outputs as ground truth."""
        place = write_task(folder, self.benchmark, self._recorded(), sampling, cache=self.cache)
        return HarnessTasks([self.benchmark.name], place)

    def _recorded(self) -> list[Row]:
        self_test()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            truths = list(pool.map(self._record, self.rows))
        return [
            {**row, "ground_truth": truth} for row, truth in zip(self.rows, truths, strict=True)
        ]

    def _record(self, row: Row) -> str:
        top, cache = self.tops[row["row_id"]], Cache(self.cache)
        key = key_of("module", VERSION, tool_version(), row["answer"], top)
        kept = cache.get(key)
        if kept is not None:
            return str(kept)
        golden = record_golden(row["answer"], top)
        if isinstance(golden, Unusable):
            raise UserError(
                f"problem {row['row_id']} of {self.benchmark.name}: its reference makes no task "
                f"({golden.reason} {golden.detail}): mend or remove it"
            )
        truth = golden.ground_truth("", "")
        cache.put(key, truth)
        return truth


def read_local_set(
    name: str, source: Path, *, limit: int | None, seed: int, cache: Path
) -> ProblemSet:
    """The set. `UserError` names the line and what is wrong with it."""
    lines = read_lines(source)
    kinds = {_kind(line): where for where, line in lines.items()}
    if len(kinds) > 1:
        (first, one), (second, other), *_ = kinds.items()
        raise UserError(f"{one} holds {first}, {other} holds {second}: one kind a file")
    [kind] = kinds
    yaml = HERE / "local_set" / f"{kind}.yaml"
    benchmark = Benchmark(name, name, _MEASURES[kind], yaml, sampled=kind != "questions")
    if kind == "questions":
        found = choose([_question(line, where) for where, line in lines.items()], limit, seed)
        return ProblemSet(benchmark, found, hash_rows(found), VERSION)
    require_simulator()
    if kind == "modules":
        return _modules(benchmark, lines, limit, seed, cache)
    return _benches(benchmark, source, lines, limit, seed, cache)


def _kind(line: Mapping[str, Any]) -> str:
    if "testbench" in line:
        return "benches"
    return "modules" if "reference" in line else "questions"


def _question(line: Mapping[str, Any], where: str) -> Row:
    answer = line.get("answer")
    if not is_text(answer):
        raise UserError(f"{where}: 'answer' must be a text (or give a 'reference' module)")
    verifier = line.get("verifier", "exact")
    if verifier not in _QUESTION_KINDS:
        raise UserError(f"{where}: 'verifier' is one of {', '.join(_QUESTION_KINDS)}")
    truth = json.dumps(line.get("ground_truth", {"value": answer}), sort_keys=True)
    if not KINDS[verifier](truth, answer).passed:
        raise UserError(f"{where}: the answer does not pass its own verifier {verifier!r}")
    return _row(line, answer, verifier, truth, "question")


def _modules(
    benchmark: Benchmark,
    lines: Mapping[str, Mapping[str, Any]],
    limit: int | None,
    seed: int,
    cache: Path,
) -> ModuleSet:
    rows = [_row(line, line["reference"], "verilog_sim", "", "module") for line in lines.values()]
    tops = {line["id"]: the_module(line, where) for where, line in lines.items()}
    chosen = choose(rows, limit, seed)
    asked = [[r["row_id"], r["prompt_json"], r["answer"], tops[r["row_id"]]] for r in chosen]
    return ModuleSet(benchmark, chosen, hash_json(asked), VERSION, tops, cache)


def _benches(
    benchmark: Benchmark,
    source: Path,
    lines: Mapping[str, Mapping[str, Any]],
    limit: int | None,
    seed: int,
    cache: Path,
) -> BenchSet:
    problems = read_benchmark("local_set", source)
    truth = ground_truth("local_set", source, cache)
    rows = [
        {**bench_row(problems[line["id"]], line["prompt"], truth), **_asked(line, "module")}
        for line in lines.values()
    ]
    chosen = choose(rows, limit, seed)
    return BenchSet(
        benchmark,
        chosen,
        hash_problems(chosen, problems),
        BENCH_VERSION,
        problems={row["row_id"]: problems[row["row_id"]] for row in chosen},
        cache=cache,
        strict=True,
    )


def _asked(line: Mapping[str, Any], kind: str) -> Row:
    messages = [{"role": "user", "content": line["prompt"]}]
    if line.get("system"):
        messages.insert(0, {"role": "system", "content": line["system"]})
    return {"prompt_json": json.dumps(messages), "task": line.get("kind", kind)}


def _row(line: Mapping[str, Any], answer: str, verifier: str, truth: str, kind: str) -> Row:
    return {
        "row_id": line["id"],
        "kind": "test",
        "setting": "skill",
        "difficulty": 0,
        "answer": answer,
        "verifier": verifier,
        "ground_truth": truth,
        "fact_id": "",
        "form": "",
        "doc_ids": [],
        "page": 0,
        **_asked(line, kind),
    }
