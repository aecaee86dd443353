"""One model on one benchmark: generate, grade, keep every answer with its verdict.

A shard has a folder: `data/` and `tasks/` for lm-eval, and `graded.json`, written last; one that
has it is done. The answers are in a journal, as they come, which other evaluations use as well.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from evaluation import endpoint, generation
from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.harness_tasks import task_manager
from evaluation.benchmarks.problem_set import HarnessTasks, ProblemSet
from evaluation.benchmarks.tasks import Sampling
from evaluation.endpoint import Calling
from evaluation.journal import Journal
from evaluation.kept_answers import kept_answers
from evaluation.models import ScoredModel
from workspace import publish
from workspace.errors import TransientError

Engine = Literal["transformers", "vllm"]
# What answers of a folder are computed with: their versions are part of where it was measured.
ENGINES: Final = ("torch", "transformers", "vllm")


@dataclass(frozen=True)
class Running:
    """What computes the answers of a folder, and how endpoints are asked."""

    engine: Engine
    batch_size: int
    dtype: str
    threads: int  # 0: all cores
    calling: Calling


@dataclass(frozen=True)
class ShardResult:
    """All graded answers of one model on one benchmark, by row id and sample number."""

    answers: dict[str, list[Graded]]
    lm_eval: dict[str, float]  # lm-eval's own aggregate of each metric
    seconds: float


class NoVerdictError(TransientError):
    """The machine failed to judge some answers; they and all verdicts so far are kept."""


def run_shard(
    folder: Path,
    journal: Journal,
    problems: ProblemSet,
    model: ScoredModel,
    sampling: Sampling,
    running: Running,
    advance: Callable[[int], None] = lambda n: None,
) -> ShardResult:
    """Do the shard, or read what was done before. Idempotent; goes on after a kill.

    Raises `NoVerdictError` when answers could not be judged that the score needs.
    """
    done = folder / "graded.json"
    if done.exists():
        return _read(done)
    started = time.monotonic()
    tasks = problems.tasks(folder, sampling)
    _quieten()
    if model.endpoint is None and len(journal.answers) == problems.requests(sampling.samples):
        lm = kept_answers(journal)
        advance(len(journal.answers))
    else:
        lm = _open_model(model, journal, sampling, running, advance)
    results = _evaluate(lm, tasks, chat=sampling.chat)
    answers = problems.graded(results)
    if problems.needs_every_verdict:
        _refuse_without_verdict(problems.benchmark.name, answers)
    publish.write_json(
        done,
        {
            "answers": answers,
            "lm_eval": _aggregates(results["results"].get(problems.benchmark.name, {})),
            "seconds": time.monotonic() - started,
        },
    )
    return _read(done)


def _open_model(
    model: ScoredModel,
    journal: Journal,
    sampling: Sampling,
    running: Running,
    advance: Callable[[int], None],
) -> Any:
    if model.endpoint is not None:
        return endpoint.journaled(
            model.endpoint, running.calling, journal, seed=sampling.seed, advance=advance
        )
    assert model.path is not None, "a folder or an endpoint"
    drawing = generation.Drawing(journal, sampling.seed, running.batch_size, advance)
    if running.engine == "vllm":
        return generation.journaled_vllm(model.path, running.dtype, drawing)
    return generation.journaled(
        generation.load(model.path, running.dtype, running.threads), drawing
    )


def _quieten() -> None:
    """Progress is ours; lm-eval warns of what is on purpose (a model object, sampled answers)."""
    import datasets
    import lm_eval.api.task
    import lm_eval.evaluator
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("lm_eval").setLevel(logging.CRITICAL)
    # Its bar over the prompts has no switch of its own.
    lm_eval.api.task.tqdm = functools.partial(lm_eval.api.task.tqdm, disable=True)
    # It lists the machine and all packages, 3 s a benchmark, for results that are not ours.
    lm_eval.evaluator.add_env_info = lambda results: None


def _evaluate(lm: Any, tasks: HarnessTasks, *, chat: bool) -> Mapping[str, Any]:
    """Run lm-eval; `chat` puts the prompts into the model's chat form."""
    import lm_eval

    results: Mapping[str, Any] = lm_eval.simple_evaluate(
        model=lm,
        tasks=tasks.tasks,
        task_manager=task_manager(tasks.include_path),
        samples=tasks.samples,
        apply_chat_template=chat,
        log_samples=True,
        bootstrap_iters=0,  # intervals are ours: clustered by problem
        confirm_run_unsafe_code=True,  # graded in the sandbox of evaluation.verifiers
    )
    return results


def _refuse_without_verdict(name: str, answers: Mapping[str, list[Graded]]) -> None:
    found = [one for graded in answers.values() for one in graded if one.score is None]
    if found:
        reasons = Counter(one.outcome for one in found)
        raise NoVerdictError(
            f"{name}: {len(found)} answers have no verdict "
            f"({', '.join(f'{count} {why}' for why, count in sorted(reasons.items()))}): run "
            "again, what was generated and judged is kept"
        )


def _aggregates(found: Mapping[str, Any]) -> dict[str, float]:
    return {
        name.removesuffix(",graded"): float(value)
        for name, value in found.items()
        if name.endswith(",graded") and "_stderr" not in name
    }


def _read(done: Path) -> ShardResult:
    found = json.loads(done.read_text(encoding="utf-8"))
    return ShardResult(
        {row: [Graded(*one) for one in graded] for row, graded in found["answers"].items()},
        found["lm_eval"],
        found["seconds"],
    )
