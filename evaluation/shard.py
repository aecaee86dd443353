"""One model on one benchmark: generate, grade, keep every answer with its verdict.

Everything lies in one folder: `data/` and `tasks/` for lm-eval, `answers.jsonl` as they come, and
`graded.json`, written last; a shard that has it is done.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation import generation
from evaluation.benchmarks import Benchmark
from evaluation.benchmarks.grading import Graded, unpack
from evaluation.benchmarks.tasks import write_task
from evaluation.journal import Journal
from evaluation.models import ScoredModel
from workspace import publish


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn."""

    samples: int
    ks: tuple[int, ...]
    temperature: float
    seed: int
    batch_size: int
    dtype: str
    threads: int  # 0: all cores


@dataclass(frozen=True)
class ShardResult:
    """All graded answers of one model on one benchmark, by row id and sample number."""

    answers: dict[str, list[Graded]]
    lm_eval: dict[str, float]  # lm-eval's own aggregate of each metric
    seconds: float


def run_shard(
    folder: Path,
    benchmark: Benchmark,
    model: ScoredModel,
    rows: Sequence[dict[str, Any]],
    sampling: Sampling,
    advance: Callable[[int], None] = lambda n: None,
) -> ShardResult:
    """Do the shard, or read what was done before. Idempotent; goes on after a kill."""
    done = folder / "graded.json"
    if done.exists():
        return _read(done)
    started = time.monotonic()
    tasks = write_task(
        folder,
        benchmark,
        rows,
        samples=sampling.samples,
        ks=sampling.ks,
        temperature=sampling.temperature,
    )
    _quieten()
    journal = Journal(folder / "answers.jsonl")
    lm = generation.journaled(
        generation.load(model.path, sampling.dtype, sampling.threads),
        journal,
        seed=sampling.seed,
        batch_size=sampling.batch_size,
        advance=advance,
    )
    answers, metrics = _evaluate(lm, benchmark, tasks)
    publish.write_json(
        done,
        {"answers": answers, "lm_eval": metrics, "seconds": time.monotonic() - started},
    )
    return _read(done)


def _quieten() -> None:
    """Progress is ours; lm-eval warns of what is on purpose (a model object, sampled answers)."""
    import datasets
    import lm_eval.api.task
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    # Its bar over the prompts has no switch of its own.
    lm_eval.api.task.tqdm = functools.partial(lm_eval.api.task.tqdm, disable=True)


def _evaluate(
    lm: Any, benchmark: Benchmark, tasks: Path
) -> tuple[dict[str, list[list[Any]]], dict[str, float]]:
    """Run lm-eval; graded answers by row id, and its aggregates."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model=lm,
        tasks=[benchmark.name],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        apply_chat_template=True,
        log_samples=True,
        bootstrap_iters=0,  # intervals are ours: clustered by problem
        confirm_run_unsafe_code=True,  # graded in the sandbox of evaluation.verifiers
    )
    answers = {
        sample["doc"]["row_id"]: [list(unpack(text)) for text in sample["filtered_resps"][0]]
        for sample in found["samples"][benchmark.name]
    }
    metrics = {
        name.removesuffix(",graded"): float(value)
        for name, value in found["results"][benchmark.name].items()
        if name.endswith(",graded") and "_stderr" not in name
    }
    return answers, metrics


def _read(done: Path) -> ShardResult:
    found = json.loads(done.read_text(encoding="utf-8"))
    return ShardResult(
        {row: [Graded(*one) for one in graded] for row, graded in found["answers"].items()},
        found["lm_eval"],
        found["seconds"],
    )
