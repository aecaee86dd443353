"""The functions that the task YAMLs name: grade all answers at once, then metrics a problem.

lm-eval calls a filter once with every answer of a task, and `process_results` once a problem, one
after the other. Simulation therefore happens in the filter: equal answers once, the longest first,
in parallel, and what was judged before comes from a cache by content.
A filtered answer is the JSON of a `Graded`. An answer without a verdict (`infra:*`) is left out
of the metrics, never counted as wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.benchmarks.verilog.cache import Cache, key_of
from evaluation.statistics import pass_at_k
from evaluation.verifiers import VERSION, Verdict, sandbox, verify
from evaluation.verifiers.extraction import normalise
from evaluation.verifiers.verilog import tool_version
from evaluation.verifiers.verilog_golden import parse_ground_truth

# Outcomes of code that the simulator took; the others ended before it ran.
RAN = frozenset({"pass", "mismatch"})
_MENTION_WORDS = 60


class Graded(NamedTuple):
    """One answer and its verdict."""

    answer: str
    score: float | None
    outcome: str
    detail: str
    official: str | None = None  # "pass" or why upstream's own rules refuse it; None: has none
    output: str = ""  # the end of what compiler and simulator printed
    normalised: float | None = None  # score of the likeliest choice for its length; None: has none

    @property
    def passed(self) -> bool:
        return self.score == 1.0


def grade(responses: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """lm-eval filter: the answers of each document -> JSON of their `Graded`."""
    asked = [
        [_Job(doc["verifier"], doc["ground_truth"], answer, doc["cache"]) for answer in answers]
        for answers, doc in zip(responses, docs, strict=True)
    ]
    work = {job[:2]: _work(job) for jobs in asked for job in jobs}
    ordered = sorted({job for jobs in asked for job in jobs}, key=lambda j: (-work[j[:2]], j))
    # Simulators are processes of their own, so threads are enough to keep every core busy.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = dict(zip(ordered, pool.map(_judge, ordered), strict=True))
    return [[_pack(job.answer, verdicts[job]) for job in jobs] for jobs in asked]


class _Job(NamedTuple):
    """An answer to judge; `cache` is the folder of verdicts, "" for none."""

    verifier: str
    ground_truth: str
    answer: str
    cache: str


def _work(job: _Job) -> int:
    """How long its simulation takes beside others; 0 for what is not simulated."""
    if not job.verifier.startswith("verilog_"):
        return 0
    return parse_ground_truth(job.ground_truth, job.verifier).golden.work


def _judge(job: _Job) -> Verdict:
    """The verdict, from the cache where a simulation made it. A machine's fault is not kept."""
    if not job.cache or job.verifier != "verilog_sim":
        return verify(*job[:3])
    cache = Cache(Path(job.cache))
    key = key_of("verdict", VERSION, tool_version(), sandbox.level(), *job[:3])
    kept = cache.get(key)
    if kept is not None:
        return Verdict(**kept)
    verdict = verify(*job[:3])
    if verdict.score is not None:
        cache.put(key, asdict(verdict))
    return verdict


def _pack(answer: str, verdict: Verdict) -> str:
    return json.dumps(
        Graded(answer, verdict.score, verdict.outcome, verdict.detail, output=verdict.output)
    )


def unpack(text: str) -> Graded:
    """The `Graded` of a filtered response."""
    return Graded(*json.loads(text))


def accuracy(doc: dict[str, Any], results: Sequence[Any]) -> dict[str, float]:
    """Metrics of a question: strictly right, and whether the reference is mentioned at all."""
    graded = unpack(results[0][0])
    if graded.score is None:
        return {}
    return {
        "accuracy": float(graded.passed),
        "mentions": float(graded.passed or mentions(graded.answer, doc["reference"])),
    }


def pass_rates(doc: dict[str, Any], results: Sequence[Any]) -> dict[str, float]:
    """Metrics of a sampled problem: pass@k for each k that its graded samples allow.

    The problem counts for the official rates alone when `doc` says why it is excluded.
    """
    graded = [one for one in map(unpack, results[0]) if one.score is not None]
    if not graded:
        return {}
    return sampled_metrics(graded, range(1, len(graded) + 1), is_excluded=bool(doc["excluded"]))


def sampled_metrics(
    graded: Sequence[Graded], ks: Iterable[int], *, is_excluded: bool
) -> dict[str, float]:
    """pass@k by our verdicts, and by upstream's where the answers have them; share that ran."""
    total, values = len(graded), dict[str, float]()
    counts = {"": sum(one.passed for one in graded)}
    if all(one.official is not None for one in graded):
        counts["official_"] = sum(one.official == "pass" for one in graded)
    if is_excluded:
        del counts[""]
    for rules, correct in counts.items():
        values |= {f"{rules}pass@{k}": pass_at_k(total, correct, k) for k in ks if k <= total}
    if not is_excluded:
        values["compiles"] = sum(one.outcome in RAN for one in graded) / total
    return values


def mentions(answer: str, reference: str) -> bool:
    """Whether the reference stands in the answer as whole words: right but not in the form asked.

    It tells "did not know" from "did not follow the form"; an echo of a passage also passes, so
    it is no score, and a text of more than 60 words never counts.
    """
    if len(answer.split()) > _MENTION_WORDS:
        return False
    said, wanted = normalise(answer).split(), normalise(reference).split()
    stripped = [word.strip(".,;:!?()[]\"'`*") for word in said]
    size = len(wanted)
    return any(wanted in (said[i : i + size], stripped[i : i + size]) for i in range(len(said)))
