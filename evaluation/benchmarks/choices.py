"""Multiple choice by likelihood: which choice the model holds for likeliest, nothing generated.

    sets = choices_apart(sets)

With `choice: likelihood` the rows of verifier `choice` leave their benchmark and make one of their
own, `<name>_likelihood`; what is left is asked as before. Compared are the letters where the
prompt lists every choice behind its letter, else the choices' texts, each as lm-eval compares them:
`acc` takes the likeliest, `acc_norm` the likeliest for its number of characters.

It tells what a model knows even when it does not keep to the form of an answer. Endpoints give no
likelihoods and are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from evaluation.benchmarks import HERE, Benchmark
from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.problem_set import HarnessTasks, ProblemSet, Row, hash_rows
from evaluation.benchmarks.tasks import Sampling, write_task
from evaluation.verifiers import choice
from workspace.config import hash_json
from workspace.errors import UserError

Choosing = Literal["generation", "likelihood"]
_YAML: Final = HERE / "domain_qa" / "likelihood.yaml"
_VERIFIER: Final = "choice"


@dataclass(frozen=True)
class ChoiceSet(ProblemSet):
    """Questions with choices; one request for each choice."""

    @property
    def needs_likelihoods(self) -> bool:
        """Nothing else is asked for."""
        return True

    def requests(self, samples: int) -> int:
        """One for each choice."""
        return sum(len(choice.read_question(row["ground_truth"]).choices) for row in self.rows)

    def asking(self, sampling: Sampling) -> str:
        """Prompts and what is compared behind them; nothing is drawn."""
        asked = [
            [row["row_id"], row["prompt_json"], _continuations(row["ground_truth"], _user(row))]
            for row in self.rows
        ]
        return hash_json(["likelihood", asked])

    def tasks(self, folder: Path, sampling: Sampling) -> HarnessTasks:
        """As all, of output type multiple_choice."""
        place = write_task(folder, self.benchmark, self.rows, sampling)
        return HarnessTasks([self.benchmark.name], place)

    def graded(self, results: Mapping[str, Any]) -> dict[str, list[Graded]]:
        """The likeliest choice of each question."""
        samples = results["samples"][self.benchmark.name]
        return {sample["doc"]["row_id"]: [_graded(sample)] for sample in samples}


def choices_apart(sets: Sequence[ProblemSet]) -> list[ProblemSet]:
    """The same problems, with the choice questions of each set in a set of their own.

    Raises `UserError` when there are none, or for one that does not say what its choices are.
    """
    found = [part for problems in sets for part in _split(problems)]
    if not any(isinstance(part, ChoiceSet) for part in found):
        raise UserError(
            "choice: likelihood: no benchmark here holds questions of verifier `choice`; tasks of "
            "lm-eval set their own way"
        )
    names = [part.benchmark.name for part in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"two benchmarks are called {min(twice)}: rename the one that you give")
    return found


def _split(problems: ProblemSet) -> list[ProblemSet]:
    apart = tuple(row for row in problems.rows if row["verifier"] == _VERIFIER)
    if not apart:
        return [problems]
    benchmark = problems.benchmark
    for row in apart:
        if len(choice.read_question(row["ground_truth"]).choices) < 2:
            raise UserError(
                f"row {row['row_id']} of {benchmark.name}: its ground truth does not name the "
                "'choices' that likelihoods are compared of: add them, or use choice: generation"
            )
    by_likelihood = ChoiceSet(
        _by_likelihood(benchmark), apart, hash_rows(apart), problems.grader_version
    )
    kept = tuple(row for row in problems.rows if row["verifier"] != _VERIFIER)
    if not kept:
        return [by_likelihood]
    return [replace(problems, rows=kept, data_hash=hash_rows(kept)), by_likelihood]


def _by_likelihood(benchmark: Benchmark) -> Benchmark:
    return Benchmark(
        f"{benchmark.name}_likelihood",
        f"{benchmark.title}, choices by likelihood",
        benchmark.measures,
        _YAML,
        sampled=False,
        headline="acc",
        by_likelihood=True,
    )


def continuations(doc: Mapping[str, str]) -> list[str]:
    """lm-eval's `doc_to_choice`: what may follow the prompt."""
    return _continuations(doc["ground_truth"], doc["user"])


def right_choice(doc: Mapping[str, str]) -> int:
    """lm-eval's `doc_to_target`: the index of the right choice."""
    return ord(choice.read_question(doc["ground_truth"]).letter) - ord("A")


def _continuations(ground_truth: str, prompt: str) -> list[str]:
    choices = [text.strip() for text in choice.read_question(ground_truth).choices]
    letters = [chr(ord("A") + index) for index in range(len(choices))]
    listed = all(
        re.search(rf"^\s*[(\[]?{letter}[)\].:]+\s*{re.escape(text)}\s*$", prompt, re.M | re.I)
        for letter, text in zip(letters, choices, strict=True)
    )
    return letters if listed else choices


def _user(row: Row) -> str:
    return str(json.loads(row["prompt_json"])[-1]["content"])


def _graded(sample: Mapping[str, Any]) -> Graded:
    likelihoods = [float(value) for value, _ in sample["filtered_resps"]]
    said = continuations(sample["doc"])
    chosen = likelihoods.index(max(likelihoods))
    values = ", ".join(
        f"{text[:40]} {value:.3f}" for text, value in zip(said, likelihoods, strict=True)
    )
    return Graded(
        said[chosen],
        float(sample["acc"]),
        "pass" if sample["acc"] == 1 else "mismatch",
        f"log-likelihoods: {values}",
        normalised=float(sample["acc_norm"]),
    )
