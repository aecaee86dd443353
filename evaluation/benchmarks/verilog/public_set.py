"""A public Verilog benchmark as a problem set that models are asked.

    problems = read_public_set("rtllm_v1.1", folder, limit=None, seed=0, cache=folder)

The benchmark's files are read where they lie, none is copied or shipped. Prompts are upstream's
with one instruction of ours, so a score can differ a little from one made with upstream's own.
Nothing is asked before the simulator has passed its self-test and run the references.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from evaluation.benchmarks import HERE, Benchmark
from evaluation.benchmarks.problem_set import ProblemSet, Row, choose
from evaluation.benchmarks.rtllm.prompts import prompts as rtllm_prompts
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.contents import LAYOUT
from evaluation.benchmarks.verilog.errata import Erratum, read_errata
from evaluation.benchmarks.verilog.grader import VERSION, ProblemGrader
from evaluation.benchmarks.verilog.kinds import kind_of
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark
from evaluation.benchmarks.verilog.run import record_references
from evaluation.benchmarks.verilog.scoring import ground_truth
from evaluation.benchmarks.verilog.self_test import self_test
from evaluation.benchmarks.verilog.summary import excluded_by
from evaluation.benchmarks.verilog_eval_v1.prompts import prompts as v1_prompts
from evaluation.benchmarks.verilog_eval_v2.prompts import prompts as v2_prompts
from evaluation.verifiers.verilog import BrokenToolchainError, require_simulator, tool_version
from workspace.config import hash_json
from workspace.errors import TransientError, UserError

# A broken installation fails nearly all references; single ones fail on one version or another.
_MOST_UNUSABLE: Final = 0.1
_SYSTEM: Final = "You are an engineer who writes synthesisable Verilog."
_INSTRUCTION: Final = "Write the whole module in one Verilog code block."

_Prompts = Callable[[Path, Mapping[str, Problem]], dict[str, str]]


@dataclass(frozen=True)
class Public:
    """A benchmark that upstream publishes, and how its prompts are read."""

    benchmark: Benchmark
    prompts: _Prompts


def _public(name: str, title: str, measures: str, yaml: str, prompts: _Prompts) -> Public:
    benchmark = Benchmark(name, title, measures, HERE / yaml, sampled=True, has_official=True)
    return Public(benchmark, prompts)


_ALL = (
    _public("verilog_eval_v1_human", "VerilogEval v1 Human",
            "skill: modules to descriptions by people", "verilog_eval_v1/human.yaml", v1_prompts),
    _public("verilog_eval_v1_machine", "VerilogEval v1 Machine",
            "skill: modules to generated descriptions", "verilog_eval_v1/machine.yaml", v1_prompts),
    _public("verilog_eval_v2_code_complete", "VerilogEval v2 code completion",
            "skill: modules to a description and a header", "verilog_eval_v2/code_complete.yaml",
            v2_prompts),
    _public("verilog_eval_v2_spec_to_rtl", "VerilogEval v2 specification to RTL",
            "skill: modules to a specification", "verilog_eval_v2/spec_to_rtl.yaml", v2_prompts),
    _public("rtllm_v1.1", "RTLLM v1.1", "skill: designs to a description", "rtllm/v1_1.yaml",
            rtllm_prompts),
    _public("rtllm_v2.0", "RTLLM v2.0", "skill: designs to a description", "rtllm/v2_0.yaml",
            rtllm_prompts),
)  # fmt: skip


def _in_layout(public: Public) -> Public:
    """Problems of your own in the layout of a public benchmark: without upstream's rules."""
    whole = public.benchmark
    own = replace(
        whole,
        name=f"{whole.name}{LAYOUT}",
        title=f"Your own problems in the layout of {whole.title}",
        measures="your own hardware modules, in their test benches",
        has_official=False,
    )
    return replace(public, benchmark=own)


UPSTREAM: Final = tuple(one.benchmark.name for one in _ALL)
PUBLIC: Mapping[str, Public] = MappingProxyType(
    {one.benchmark.name: one for one in (*_ALL, *map(_in_layout, _ALL))}
)


@dataclass(frozen=True)
class BenchSet(ProblemSet):
    """Problems with test benches. `strict` refuses a set with a reference that cannot be run."""

    problems: Mapping[str, Problem]
    cache: Path
    strict: bool = False

    @property
    def needs_every_verdict(self) -> bool:
        """A score with holes would be compared with whole ones."""
        return True

    def prepare(self) -> Mapping[str, str]:
        """Self-test, then record every reference; both are quick the second time."""
        require_simulator()
        self_test()
        errata = read_errata().of(self.benchmark.name, tool_version())
        unusable = self._record()
        known = excluded_by(errata, {})
        surprising = {name: why for name, why in unusable.items() if name not in known}
        if self.strict and surprising:
            name, why = min(surprising.items())
            raise UserError(
                f"problem {name} of {self.benchmark.name}: its own reference does not pass its "
                f"bench ({why}): mend or remove it"
            )
        refuse_too_many_unusable(self.benchmark.name, unusable, self.problems, errata)
        excluded = excluded_by(errata, unusable)
        return {name: why for name, why in excluded.items() if name in self.problems}

    def _record(self) -> dict[str, str]:
        cache = Cache(self.cache)
        graders = [ProblemGrader(problem, cache) for problem in self.problems.values()]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            record_references(pool, graders)
        unusable = {g.problem.task_id: g.golden for g in graders if g.golden.unusable}
        for name, golden in unusable.items():
            if golden.unusable.startswith("infra:"):
                raise TransientError(
                    f"the reference of {name} could not be run ({golden.unusable}): run again"
                )
        return {n: f"{g.unusable} {g.detail}".strip() for n, g in unusable.items()}


def refuse_too_many_unusable(
    name: str,
    unusable: Mapping[str, str],
    problems: Collection[str],
    errata: Mapping[str, Sequence[Erratum]],
) -> None:
    """Raises `BrokenToolchainError` when so many references fail that something else is wrong.

    Problems that the errata exclude say nothing of the toolchain, whether they can be run or not.
    """
    known = excluded_by(errata, {})
    judged = [task_id for task_id in problems if task_id not in known]
    failed = {task_id: why for task_id, why in unusable.items() if task_id not in known}
    if len(failed) > max(1, _MOST_UNUSABLE * len(judged)):
        example, why = min(failed.items())
        raise BrokenToolchainError(
            f"{tool_version()} cannot run {len(failed)} of {len(judged)} references of {name}, for "
            f"example {example}: {why}"
        )


def read_public_set(
    name: str, source: Path, *, limit: int | None, seed: int, cache: Path
) -> BenchSet:
    """The set. `UserError` names what the files lack, or a simulator that none is scored with."""
    public = PUBLIC[name]
    problems = read_benchmark(name, source)
    require_simulator()
    said = public.prompts(source, problems)
    truth = ground_truth(name, source, cache)
    rows = [
        bench_row(problem, f"{said[task_id].rstrip()}\n\n{_INSTRUCTION}", truth, kind_of(problem))
        for task_id, problem in problems.items()
    ]
    chosen = choose(rows, limit, seed)
    return BenchSet(
        public.benchmark,
        chosen,
        hash_problems(chosen, problems),
        f"{VERSION}, errata {read_errata().version}",
        problems={row["row_id"]: problems[row["row_id"]] for row in chosen},
        cache=cache,
    )


def hash_problems(rows: tuple[Row, ...], problems: Mapping[str, Problem]) -> str:
    """Hash of prompts, references and benches; where they lie is no matter."""
    return hash_json(
        [[row["row_id"], row["prompt_json"], problems[row["row_id"]].digest()] for row in rows]
    )


def bench_row(problem: Problem, prompt: str, truth: str, task: str = "module") -> dict[str, Any]:
    """The row of a problem."""
    return {
        "row_id": problem.task_id,
        "kind": "test",
        "setting": "skill",
        "task": task,
        "difficulty": 0,
        "prompt_json": json.dumps(
            [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": prompt}]
        ),
        "answer": problem.reference,
        "verifier": "verilog_bench",
        "ground_truth": truth,
        "fact_id": "",
        "form": "",
        "doc_ids": [],
        "page": 0,
    }
