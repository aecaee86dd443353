"""Answers that were made elsewhere, once judged, as an evaluation of a workspace.

    folder = publish_graded(workspace, "gpt", problems, answers, lines, samples=5,
                            source=path, seconds=2.5)

The evaluation has what one of `python -m flows.score` has: results with hash of the data, grader,
tools and excluded problems, every answer, a report. What is not known is how the answers were
asked for, which its `answers` setting says; so they are compared with each other and not with
answers to our own prompts. The hash of the answers stands for the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaluation import leaderboard
from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.verilog.answers import Answer, VerdictLine
from evaluation.benchmarks.verilog.public_set import (
    PUBLIC,
    BenchSet,
    hash_problems,
    read_public_set,
)
from evaluation.benchmarks.verilog.scoring import graded_line
from evaluation.evaluation_files import Done, Settings, write_evaluation
from evaluation.models import ScoredModel, check_label
from evaluation.problems import Problems
from evaluation.shard import ShardResult
from evaluation.survey import STAGE, VERSION
from evaluation.verifiers import verilog
from workspace.config import hash_json
from workspace.errors import UserError
from workspace.locking import stage_lock
from workspace.manifest import find_published, stage_key, write_manifest
from workspace.paths import Workspace
from workspace.stage import StagePlan

MADE: Final = "made elsewhere"
_MISSING: Final = Graded("", 0.0, "no_answer", "no such sample was given")


def ranked_benchmark(name: str, source: Path, cache: Path, label: str) -> BenchSet:
    """The problems as `flows.score` has them.

    Raises `UserError` for a label that no model may have, a benchmark that has no leaderboard, or
    files that upstream's folder lacks.
    """
    check_label(label)
    if name not in PUBLIC:
        raise UserError(f"--workspace: {name} is no public benchmark: use python -m flows.score")
    return read_public_set(name, source, limit=None, seed=0, cache=cache)


def publish_graded(
    workspace: Workspace,
    label: str,
    problems: BenchSet,
    answers: Sequence[Answer],
    lines: Sequence[VerdictLine],
    *,
    samples: int,
    source: Path,
    seconds: float,
) -> Path:
    """Publish an evaluation and the leaderboard; its folder. The same answers make the same one.

    `lines` holds a verdict for each of `answers`, which came from the file `source`; a problem with
    fewer than `samples` of them is wrong for the rest.
    """
    # An answer from JSON may hold half a surrogate pair, which no file can.
    texts = {(a.task_id, a.sample): a.text.encode("utf-8", "replace").decode() for a in answers}
    content = hash_json(sorted([*key, text] for key, text in texts.items()))
    model = ScoredModel(label, source, content)
    plan = _plan(workspace, model, problems, samples)
    if plan.published is None:
        result = ShardResult(_graded(problems, texts, lines, samples), {}, seconds)
        ks = tuple(sorted({1, samples}))
        settings = Settings(
            _fingerprint(samples),
            {"answers": MADE, "samples_per_problem": samples},
            dataset="",
            ks=ks,
            seed=0,
            asked_by_lm_eval=False,
        )
        done: Done = {(label, problems.benchmark.name): result}
        with stage_lock(workspace, STAGE):
            found = Problems((problems,), 0, "", ())
            manifest, _ = write_evaluation(workspace, plan, [model], found, done, settings)
            write_manifest(plan.directory, manifest)
    leaderboard.write(workspace)
    return plan.directory


def only(problems: BenchSet, names: Collection[str]) -> BenchSet:
    """These problems alone: another benchmark as far as comparing goes."""
    rows = tuple(row for row in problems.rows if row["row_id"] in names)
    kept = {name: problems.problems[name] for name in names}
    return replace(problems, rows=rows, data_hash=hash_problems(rows, kept), problems=kept)


def _fingerprint(samples: int) -> str:
    return hash_json([MADE, samples])


def _plan(workspace: Workspace, model: ScoredModel, problems: BenchSet, samples: int) -> StagePlan:
    name = problems.benchmark.name
    inputs = {
        f"model {model.label}": model.hash,
        f"benchmark {name}": problems.data_hash,
        f"grader {name}": problems.grader_version,
        "simulator": verilog.tool_version(),
    }
    key = stage_key(STAGE, VERSION, _fingerprint(samples), inputs)
    directory = workspace.evaluation(key[:12])
    return StagePlan(STAGE, key, directory, (), inputs, find_published(directory, key))


def _graded(
    problems: BenchSet,
    texts: Mapping[tuple[str, int], str],
    lines: Sequence[VerdictLine],
    samples: int,
) -> dict[str, list[Graded]]:
    """By row, in the order of the samples' numbers."""
    found: dict[str, list[Graded]] = {row["row_id"]: [] for row in problems.rows}
    for line in sorted(lines, key=lambda line: (line.task_id, line.sample)):
        found[line.task_id].append(graded_line(texts[line.task_id, line.sample], line))
    missing = _MISSING._replace(official="missing" if problems.benchmark.has_official else None)
    return {name: [*mine, *[missing] * (samples - len(mine))] for name, mine in found.items()}
