"""What an evaluation is made of: models, problems, the id that follows from them, its shards.

survey = take_survey(config)
survey.plan.key                       # changes with everything that decides a score
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version as library_version
from pathlib import Path
from typing import Final, NamedTuple

from evaluation import generation, models
from evaluation.benchmarks import DEFAULT_BENCHMARKS
from evaluation.benchmarks.problem_set import ProblemSet
from evaluation.benchmarks.tasks import Sampling
from evaluation.models import ScoredModel
from evaluation.problems import Problems, read_problem_sets
from evaluation.score_config import ScoreConfig
from evaluation.shard import Running
from evaluation.verifiers import verilog
from workspace.config import hash_json
from workspace.errors import MissingInputError, UserError
from workspace.manifest import find_published, stage_key
from workspace.paths import Workspace
from workspace.stage import Shard, StagePlan

STAGE: Final = "evaluation"
VERSION: Final = "2"
ANSWERS_VERSION: Final = "2"  # raise it when the same request may be answered otherwise


class Survey(NamedTuple):
    """What is scored, read once for each step of the stage."""

    plan: StagePlan
    models: list[ScoredModel]
    problems: Problems

    def problem_set(self, name: str) -> ProblemSet:
        """The problems of benchmark `name`."""
        return next(found for found in self.problems.sets if found.benchmark.name == name)


def take_survey(config: ScoreConfig) -> Survey:
    """Read it. Raises `MissingInputError` without a data set or a model, `UserError` for others."""
    workspace = Workspace(config.workspace)
    problems = read_problem_sets(
        workspace,
        config.dataset,
        config.benchmarks,
        limit=config.limit,
        seed=config.seed,
        choosing=config.choice,
    )
    wanted = config.models or (f"base:{config.name}", config.name)
    scored = [
        replace(model, is_chat=config.endpoint_api != "completions") if model.endpoint else model
        for model in models.resolve(workspace, wanted)
    ]
    if config.engine == "vllm" and any(model.path for model in scored):
        generation.require_vllm()
    chosen = config.benchmarks != DEFAULT_BENCHMARKS
    if problems.empty and (chosen or not problems.sets):
        raise MissingInputError(
            f"data set {config.dataset!r} has no test rows for {', '.join(problems.empty)}: "
            "build it with more documents, or score other benchmarks"
        )
    inputs = _inputs(config, scored, problems)
    key = stage_key(STAGE, VERSION, config.fingerprint(), inputs)
    directory = workspace.evaluation(key[:12])
    pairs = [(model.label, found) for model in scored for found in problems.sets]
    shards = tuple(
        Shard(
            index,
            (label, found.benchmark.name),
            units=found.requests(config.samples_per_problem),
        )
        for index, (label, found) in enumerate(pairs)
    )
    planned = StagePlan(STAGE, key, directory, shards, inputs, find_published(directory, key))
    if planned.published is None:
        _check_endpoints(config, scored, problems)
    return Survey(planned, scored, problems)


def _check_endpoints(
    config: ScoreConfig, scored: Sequence[ScoredModel], problems: Problems
) -> None:
    """What a later shard would fail on, before the first one has begun."""
    for model in (model for model in scored if model.endpoint is not None):
        config.calling(model.label).key()
        for found in problems.sets:
            if found.needs_likelihoods:
                raise UserError(
                    f"{found.benchmark.name} needs log-likelihoods, which an endpoint does not "
                    f"give: score model folders on it, or leave {model.label} or it out"
                )


def _inputs(
    config: ScoreConfig, scored: Sequence[ScoredModel], problems: Problems
) -> dict[str, str]:
    inputs = {f"model {model.label}": model.hash for model in scored}
    for found in problems.sets:
        inputs[f"benchmark {found.benchmark.name}"] = found.data_hash
        inputs[f"asked {found.benchmark.name}"] = found.asking(config.sampling())
        inputs[f"grader {found.benchmark.name}"] = found.grader_version
    if problems.dataset_key:
        inputs["dataset"] = problems.dataset_key
    libraries = ["lm-eval"]
    if any(model.path for model in scored):
        inputs["dtype"] = generation.best_dtype() if config.dtype == "auto" else config.dtype
        libraries += ["transformers", "torch"]
        libraries += ["vllm"] if config.engine == "vllm" else []
    inputs["simulator"] = verilog.tool_version()
    return inputs | {name: library_version(name) for name in libraries}


def journal_path(
    config: ScoreConfig,
    model: ScoredModel,
    problems: ProblemSet,
    sampling: Sampling,
    running: Running,
) -> Path:
    """Where these answers are, whichever evaluation asks for them.

    Another simulator, grader, model or benchmark beside them changes an evaluation's id, but no
    answer. Those of a folder also depend on what is computed together.
    """
    parts: list[object] = [ANSWERS_VERSION, model.hash, problems.asking(sampling)]
    if model.endpoint is not None:
        parts += [model.label, config.endpoint_api, library_version("lm-eval")]
    else:
        parts += [running.engine, running.dtype, running.batch_size, sampling.samples]
        parts += [library_version(name) for name in ("lm-eval", "transformers", "torch")]
    return Workspace(config.workspace).answers / f"{hash_json(parts)}.jsonl"
