"""Tasks of lm-eval by name, for general abilities, and your own lm-eval tasks in a folder.

    read_harness_set("arc_easy", None, limit=200, seed=0)
    read_harness_set("my_task", Path("folder/with/yaml"), limit=None, seed=0)

They keep lm-eval's prompts, answers and metrics; each document's own metric becomes a graded
answer, so that intervals and paired tests are the same as everywhere. Most of lm-eval's tasks
fetch their data from the Hugging Face hub: that needs a filled HF cache, or a connection and the
settings `ONLINE`, since `workspace.environment` keeps every process off the hub.

Not covered: metrics that exist only over a whole task (perplexity, F1 over a corpus).
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from evaluation.benchmarks import Benchmark
from evaluation.benchmarks.grading import Graded
from evaluation.benchmarks.problem_set import HarnessTasks, ProblemSet, Row, choose
from evaluation.benchmarks.tasks import Sampling
from workspace.config import hash_json
from workspace.errors import UserError

ONLINE: Final = "HF_HUB_OFFLINE=0 HF_DATASETS_OFFLINE=0"
_PREFERRED: Final = ("acc", "exact_match", "acc_norm")


@dataclass(frozen=True)
class HarnessSet(ProblemSet):
    """Documents of one or more lm-eval tasks; a row is `task/number of its document`."""

    include_path: Path | None
    by_likelihood: bool

    @property
    def needs_likelihoods(self) -> bool:
        """Multiple choice in lm-eval compares the log-likelihoods of the choices."""
        return self.by_likelihood

    def requests(self, samples: int) -> int:
        """One for each choice, or for each repeat of the task's own."""
        return sum(row["requests"] for row in self.rows)

    def asking(self, sampling: Sampling) -> str:
        """Everything that lm-eval's task is, which also sets how answers are drawn."""
        return hash_json([self.data_hash, self.grader_version, sampling.seed])

    def tasks(self, folder: Path, sampling: Sampling) -> HarnessTasks:
        """lm-eval's own task, with the chosen documents alone."""
        samples: dict[str, list[int]] = {}
        for row in self.rows:
            samples.setdefault(row["task"], []).append(row["document"])
        return HarnessTasks(
            [self.benchmark.name],
            self.include_path,
            {task: sorted(found) for task, found in samples.items()},
        )

    def graded(self, results: Mapping[str, Any]) -> dict[str, list[Graded]]:
        """Each document's metric, of the task's first filter."""
        metric = self.benchmark.headline
        found: dict[str, list[Graded]] = {}
        for task, samples in results["samples"].items():
            for sample in samples:
                row_id = f"{task}/{sample['doc_id']}"
                found.setdefault(row_id, [_graded(sample, metric)])
        return {row["row_id"]: found[row["row_id"]] for row in self.rows}


def _graded(sample: Mapping[str, Any], metric: str) -> Graded:
    value = float(sample[metric])
    if not 0 <= value <= 1:
        raise UserError(f"lm-eval's {metric} of a document is {value}, not from 0 to 1")
    outcome = {0.0: "mismatch", 1.0: "pass"}.get(value, "partial")
    normalised = sample.get("acc_norm") if metric == "acc" else None
    return Graded(_answer(sample), value, outcome, "", normalised=normalised)


def _answer(sample: Mapping[str, Any]) -> str:
    """The text, or the likeliest choice."""
    responses: Sequence[Any] = sample["filtered_resps"]
    first = responses[0]
    if isinstance(first, (list, tuple)) and len(first) == 2 and isinstance(first[0], float):
        scores = [float(score) for score, _ in responses]
        _context, choice = sample["arguments"][scores.index(max(scores))]
        return str(choice).strip()
    return str(first[0] if isinstance(first, list) and first else first)


def read_harness_set(
    name: str, include_path: Path | None, *, limit: int | None, seed: int
) -> HarnessSet:
    """The documents of task or group `name`; `include_path` holds the YAML of your own.

    `UserError` when there is no such task, its data cannot be had, or it has no metric for each
    document.
    """
    tasks = _load(name, include_path)
    rows = [row for task in tasks.values() for row in _rows(task)]
    chosen = choose(rows, limit, seed)
    headline = _headline(name, tasks)
    benchmark = Benchmark(
        name,
        name if include_path else f"lm-eval {name}",
        "general ability: a task of lm-eval" if include_path is None else "a task of your own",
        yaml=None,
        sampled=False,
        headline=headline,
    )
    asked = [[row["row_id"], row["prompt_json"], row["answer"]] for row in chosen]
    settings = {task: _settings(found) for task, found in sorted(tasks.items())}
    return HarnessSet(
        benchmark,
        chosen,
        hash_json([asked, settings]),
        f"lm-eval {version('lm-eval')}",
        include_path,
        any(task.OUTPUT_TYPE != "generate_until" for task in tasks.values()),
    )


def _settings(task: Any) -> list[Any]:
    """What decides its requests and metrics besides the documents."""
    config = task.config
    return [str(task.VERSION), config.num_fewshot, task.OUTPUT_TYPE, str(config.generation_kwargs)]


def task_manager(include_path: Path | None) -> Any:
    """lm-eval's index of tasks: its own, or those of a folder alone."""
    return _manager(include_path)


@functools.lru_cache(maxsize=8)
def _manager(include_path: Path | None) -> Any:
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    if include_path is None:
        return TaskManager()
    return TaskManager(include_path=str(include_path), include_defaults=False)


@functools.lru_cache(maxsize=8)
def _load(name: str, include_path: Path | None) -> dict[str, Any]:
    """Tasks by name, with their data. Kept, because a stage plans several times in a process."""
    manager = _manager(include_path)
    if name not in manager.all_tasks:
        where = include_path or "lm-eval"
        raise UserError(f"benchmark {name!r}: neither one of ours nor a task of {where}")
    try:
        tasks: dict[str, Any] = manager.load([name])["tasks"]
        for task in tasks.values():
            task.eval_docs[0]
    except Exception as error:  # a task is code of its own, and hub clients raise what they like
        raise UserError(
            f"benchmark {name}: lm-eval cannot load its data ({type(error).__name__}: "
            f"{str(error)[:200]}): it needs {_way_to_data()}"
        ) from error
    return tasks


def _way_to_data() -> str:
    import datasets.config
    import huggingface_hub.constants

    reach = "a connection to the Hugging Face hub"
    if datasets.config.HF_HUB_OFFLINE or huggingface_hub.constants.HF_HUB_OFFLINE:
        reach = f"the Hugging Face hub, which is off here by default: set {ONLINE} and run again"
    return f"data in the hub's cache, or {reach}"


def _rows(task: Any) -> list[Row]:
    rows: list[Row] = []
    for number, doc in enumerate(task.eval_docs):
        prompt = str(task.doc_to_text(doc))
        rows.append(
            {
                "row_id": f"{task.task_name}/{number}",
                "kind": "test",
                "setting": "general",
                "task": task.task_name,
                "document": number,
                "requests": _requests(task, doc),
                "difficulty": 0,
                "prompt_json": json.dumps([{"role": "user", "content": prompt}]),
                "answer": _target(task, doc),
                "verifier": "lm_eval",
                "ground_truth": "{}",
                "fact_id": "",
                "form": "",
                "doc_ids": [],
                "page": 0,
            }
        )
    return rows


def _requests(task: Any, doc: Any) -> int:
    if task.OUTPUT_TYPE == "multiple_choice":
        return len(task.doc_to_choice(doc))
    return int(task.config.repeats or 1)


def _target(task: Any, doc: Any) -> str:
    target = task.doc_to_target(doc)
    if task.OUTPUT_TYPE == "multiple_choice" and isinstance(target, int):
        return str(task.doc_to_choice(doc)[target])
    return str(target)


def _headline(name: str, tasks: Mapping[str, Any]) -> str:
    """A metric that all tasks have for each document; accuracy before anything else."""
    from lm_eval.api.metrics import mean

    shared: set[str] | None = None
    for task in tasks.values():
        means = {metric for metric, how in task.aggregation().items() if how is mean}
        shared = means if shared is None else shared & means
    found = sorted(shared or ())
    if not found:
        raise UserError(f"benchmark {name}: lm-eval has no metric for its single documents")
    return next((metric for metric in _PREFERRED if metric in found), found[0])
