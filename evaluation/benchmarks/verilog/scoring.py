"""The lm-eval filter of the Verilog benchmarks: all answers of a task -> graded ones.

A document's `ground_truth` says where its problem is: `{"benchmark", "source", "cache"}`. Equal
answers are simulated once, the longest simulation first, on all cores (`run.grade_answers`), and
every judgement is on disk before the next one, so a killed run does not simulate again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.verilog.answers import Answer, VerdictLine, Verdicts
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.errata import read_errata
from evaluation.benchmarks.verilog.problems import read_benchmark
from evaluation.benchmarks.verilog.run import grade_answers
from evaluation.verifiers.verilog import tool_version


def ground_truth(benchmark: str, source: Path, cache: Path) -> str:
    """What a document of this benchmark holds."""
    return json.dumps(
        {"benchmark": benchmark, "source": str(source.resolve()), "cache": str(cache.resolve())}
    )


def grade(responses: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """lm-eval filter: the answers of each document -> JSON of their `Graded`."""
    place = json.loads(docs[0]["ground_truth"])
    answers = [
        Answer(doc["row_id"], sample, text)
        for texts, doc in zip(responses, docs, strict=True)
        for sample, text in enumerate(texts)
    ]
    found = grade_answers(
        read_benchmark(place["benchmark"], Path(place["source"])),
        answers,
        Verdicts(),
        Cache(Path(place["cache"])),
        errata=read_errata().of(place["benchmark"], tool_version()),
        use_errata=True,
        workers=len(os.sched_getaffinity(0)),
    )
    lines = {(line.task_id, line.sample): line for line in found.lines}
    infra = {(task_id, sample): why for task_id, sample, why in found.infra}
    graded: dict[str, list[str]] = {doc["row_id"]: [] for doc in docs}
    for answer in answers:
        key = (answer.task_id, answer.sample)
        one = graded_line(answer.text, lines[key]) if key in lines else _without(answer, infra[key])
        graded[answer.task_id].append(json.dumps(one))
    return [graded[doc["row_id"]] for doc in docs]


def graded_line(text: str, line: VerdictLine) -> Graded:
    """An answer with its verdict as all benchmarks have them."""
    score = float(line.verdict == "pass")
    return Graded(text, score, line.verdict, line.detail, line.official or None, line.output)


def _without(answer: Answer, why: str) -> Graded:
    return Graded(answer.text, None, why, "the machine did not get to a verdict")
