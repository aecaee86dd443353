"""The problems of one benchmark, as they are asked and graded.

    found = problem_set.tasks(folder, sampling)       # for lm_eval.simple_evaluate
    answers = problem_set.graded(results)             # row id -> its graded samples

A problem is a row with the columns of `evaluation.problems.ROW_COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.benchmarks import Benchmark
from evaluation.benchmarks.grading import Graded, unpack
from evaluation.benchmarks.tasks import Sampling, generation_settings, write_task
from evaluation.verifiers import verilog, verilog_equivalence
from workspace.config import hash_json
from workspace.ids import derive_id

Row = dict[str, Any]


class HarnessTasks(NamedTuple):
    """What lm-eval is told to run; `samples` are the documents by task, None for all."""

    tasks: list[Any]
    include_path: Path | None
    samples: dict[str, list[int]] | None = None


@dataclass(frozen=True)
class ProblemSet:
    """`data_hash` changes with anything that is asked or that decides a verdict.

    `verdicts` is the folder where those of simulations are kept, None for nowhere.
    """

    benchmark: Benchmark
    rows: tuple[Row, ...]
    data_hash: str
    grader_version: str
    verdicts: Path | None = field(default=None, kw_only=True)

    @property
    def needs_every_verdict(self) -> bool:
        """Whether an answer that the machine could not judge stops the score."""
        return False

    @property
    def needs_likelihoods(self) -> bool:
        """Whether only a model folder can answer, since endpoints give texts alone."""
        return False

    @property
    def verifiers(self) -> frozenset[str]:
        """The kinds of verdicts that its answers get."""
        return frozenset(row["verifier"] for row in self.rows)

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator decides on any answer."""
        return any(kind.startswith("verilog_") for kind in self.verifiers)

    def requests(self, samples: int) -> int:
        """How many answers a model is asked for, with so many samples of a problem."""
        return len(self.rows) * (samples if self.benchmark.sampled else 1)

    def asking(self, sampling: Sampling) -> str:
        """Hash of what a model is asked and how: with the same one, answers can be used again.

        The number of samples is not part of it, nor what only grading depends on.
        """
        prompts = [[row["row_id"], row["prompt_json"]] for row in self.rows]
        return hash_json([prompts, generation_settings(self.benchmark, sampling), sampling.seed])

    def prepare(self) -> Mapping[str, str]:
        """See that answers can be graded, before any is asked for.

        Returns the problems that the audited score leaves out, and why. Raises when nothing may
        be scored here: one row of Verilog needs the simulator, of a known version that passes its
        self-test.
        """
        if self.is_simulated:
            verilog.require_simulator()
            verilog.self_test()
        if verilog_equivalence.KIND in self.verifiers:
            verilog_equivalence.require_yosys()
        return {}

    def tasks(self, folder: Path, sampling: Sampling) -> HarnessTasks:
        """Write what lm-eval needs below `folder`."""
        place = write_task(
            folder, self.benchmark, self.rows, sampling, self.prepare(), cache=self.verdicts
        )
        return HarnessTasks([self.benchmark.name], place)

    def graded(self, results: Mapping[str, Any]) -> dict[str, list[Graded]]:
        """The graded answers in what `simple_evaluate` returned."""
        return {
            sample["doc"]["row_id"]: [unpack(text) for text in sample["filtered_resps"][0]]
            for sample in results["samples"][self.benchmark.name]
        }


def choose(rows: Sequence[Row], limit: int | None, seed: int) -> tuple[Row, ...]:
    """Rows by id; `limit` takes a seeded choice, the same one from the same rows."""
    shuffled = sorted(rows, key=lambda row: derive_id(seed, row["row_id"]))
    return tuple(sorted(shuffled[:limit], key=lambda row: str(row["row_id"])))


def hash_rows(rows: Sequence[Row]) -> str:
    """Hash of what is asked and of what decides a verdict."""
    columns = ("row_id", "prompt_json", "verifier", "ground_truth")
    return hash_json([[row[column] for column in columns] for row in rows])
