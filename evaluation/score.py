"""Models + benchmarks -> scores with intervals, every answer, a report.

    config = ScoreConfig(workspace=Path("workspace"))
    result = run_score(config)                  # result.directory: evaluations/<id>

In: models from the registry, folders or endpoints (`evaluation.models`); problems from
`datasets/<name>/rows` (kind test), public benchmarks, your own files or lm-eval
(`evaluation.problems`). Out: `evaluations/<id>/` with `results.json`, `samples.parquet`,
`report.html` and the manifest; the scores of registered models also go into the registry. A shard
is one model on one benchmark; its answers are kept as they come, so a killed run continues.

The id derives from everything that decides a score: problems, weights, settings, and the versions
of graders, simulator and libraries. Not covered: promotion (`evaluation.gate`).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version as library_version
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import field_validator

from evaluation import generation, models
from evaluation.benchmarks import DEFAULT_BENCHMARKS
from evaluation.benchmarks.problem_set import ProblemSet
from evaluation.benchmarks.tasks import Sampling
from evaluation.benchmarks.verilog.public_set import PUBLIC
from evaluation.endpoint import Api, Calling
from evaluation.journal import Journal
from evaluation.models import ScoredModel
from evaluation.problems import SAMPLES, Problems, parse_wanted, read_problem_sets
from evaluation.publication import sample_rows, summary_of
from evaluation.report import write_report
from evaluation.results import BenchmarkResult, Origin, summarise
from evaluation.shard import Engine, Running, ShardResult, run_shard
from evaluation.verifiers import sandbox, verilog
from workspace import publish as atomic
from workspace import registry
from workspace.config import StageConfig, hash_json, setting
from workspace.errors import MissingInputError, UserError
from workspace.locking import stage_lock
from workspace.manifest import (
    Manifest,
    code_version,
    describe_file,
    find_published,
    now,
    stage_key,
    write_manifest,
)
from workspace.paths import Workspace
from workspace.progress import Progress, quiet
from workspace.stage import Shard, ShardReport, StagePlan, StageResult, run

STAGE = "evaluation"
VERSION = "2"
ANSWERS_VERSION = "1"  # raise it when the same request may be answered otherwise


class ScoreConfig(StageConfig):
    """Which models on which benchmarks, with how many samples."""

    workspace: Path = setting(
        position=0,
        description="folder with the published data set and the models",
        affects_output=False,
    )
    dataset: str = setting(
        "dsm", position=1, description="data set whose test rows are asked", affects_output=False
    )
    name: str = setting(
        "dsm",
        position=2,
        description="registered model to score when `models` is empty, against its base model",
        affects_output=False,
    )
    models: tuple[str, ...] = setting(
        (),
        position=3,
        description="NAME, NAME:VERSION, base:NAME, model folders or http://HOST/v1#MODEL, each "
        "also as LABEL=...; the first is the baseline",
        affects_output=False,
    )
    benchmarks: tuple[str, ...] = setting(
        DEFAULT_BENCHMARKS,
        position=4,
        description="of the data set: open_book, closed_book, table_qa, rtl_completion; in "
        f"upstream's files, as NAME=DIR: {', '.join(PUBLIC)}; your own: NAME=FILE.jsonl; lm-eval "
        "tasks: NAME, or NAME=DIR with their YAML",
        affects_output=False,  # what they hold is among the inputs
    )
    limit: int | None = setting(
        None, position=5, ge=1, description="problems of each benchmark (default: all)"
    )
    samples_per_problem: int = setting(
        4, position=6, ge=1, le=1000, description="answers drawn per problem for pass@k"
    )
    ks: tuple[int, ...] = setting((1, 4), position=7, description="the k of pass@k")
    temperature: float = setting(
        0.6, position=8, ge=0, le=2, description="of answers drawn for pass@k"
    )
    seed: int = setting(0, position=9, ge=0, description="of sampling, choice and intervals")
    batch_size: int = setting(32, position=10, ge=1, le=4096, description="prompts at a time")
    dtype: Literal["auto", "bfloat16", "float32"] = setting(
        "auto", position=11, description="weights' type; auto takes what is fast on this machine"
    )
    workers: int = setting(
        0,
        position=12,
        ge=0,
        le=1024,
        description="processor threads of a model, 0 for all cores",
        affects_output=False,
    )
    max_answer_tokens: int | None = setting(
        None,
        position=13,
        ge=1,
        le=131_072,
        description="most tokens of an answer (default: each benchmark's own; raise it for models "
        "that reason first)",
    )
    engine: Engine = setting(
        "transformers", position=14, description="what computes the answers of model folders"
    )
    endpoint_api: Api = setting(
        "chat",
        position=15,
        description="form of endpoints: chat; completions of plain text; or chat_fixed for models "
        "that take no temperature and count max_completion_tokens",
    )
    api_key_env: tuple[str, ...] = setting(
        (),
        position=16,
        description="environment variable that holds the endpoints' key; LABEL=VARIABLE for one",
        affects_output=False,
    )
    concurrency: int = setting(
        4, position=17, ge=1, le=256, description="requests at a time", affects_output=False
    )
    request_timeout_s: int = setting(
        300, position=18, ge=1, le=7200, description="seconds for an answer", affects_output=False
    )
    request_tries: int = setting(
        5,
        position=19,
        ge=1,
        le=20,
        description="tries of a request that fails in passing (lost connection, 429, 5xx)",
        affects_output=False,
    )

    @field_validator("benchmarks")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_wanted(text).name for text in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not value:
            raise ValueError(f"{twice[0]} is there twice" if twice else "name at least one")
        return value

    @field_validator("ks")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("each k of pass@k is 1 or more")
        return tuple(sorted({1, *value}))


class _Survey(NamedTuple):
    """What is scored, read once for each step of the stage."""

    plan: StagePlan
    models: list[ScoredModel]
    problems: Problems

    def problem_set(self, name: str) -> ProblemSet:
        return next(found for found in self.problems.sets if found.benchmark.name == name)


def plan(config: ScoreConfig) -> StagePlan:
    """What is to be scored. Raises `MissingInputError` without a data set or a model."""
    return _survey(config).plan


def _survey(config: ScoreConfig) -> _Survey:
    workspace = Workspace(config.workspace)
    problems = read_problem_sets(
        workspace, config.dataset, config.benchmarks, limit=config.limit, seed=config.seed
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
    return _Survey(planned, scored, problems)


def _check_endpoints(
    config: ScoreConfig, scored: Sequence[ScoredModel], problems: Problems
) -> None:
    """What a later shard would fail on, before the first one has begun."""
    for model in (model for model in scored if model.endpoint is not None):
        _calling(config, model.label).key()
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
        inputs[f"asked {found.benchmark.name}"] = found.asking(_sampling(config))
        inputs[f"grader {found.benchmark.name}"] = found.grader_version
    if problems.dataset_key:
        inputs["dataset"] = problems.dataset_key
    libraries = ["lm-eval"]
    if any(model.path for model in scored):
        inputs["dtype"] = generation.best_dtype() if config.dtype == "auto" else config.dtype
        libraries += ["transformers", "torch"]
    inputs["simulator"] = verilog.tool_version()
    return inputs | {name: library_version(name) for name in libraries}


def process(config: ScoreConfig, shard: Shard, progress: Progress = quiet) -> ShardReport:
    """Generate and grade one model's answers to one benchmark."""
    survey = _survey(config)
    if survey.plan.published is not None:
        return ShardReport(shard.index)
    if shard.index == 0:
        for found in survey.problems.sets:
            found.prepare()  # what cannot be graded is said before anything is generated
    label, name = shard.items
    with progress(f"{label} on {name}", shard.units, "answers") as advance:
        result = _run(config, survey, shard, advance)
    graded = [one for answers in result.answers.values() for one in answers]
    return ShardReport(
        shard.index,
        counts={"answers": len(graded), "passed": sum(one.passed for one in graded)},
        rejects=_without_verdict([result]),
        seconds=result.seconds,
    )


def _run(
    config: ScoreConfig, survey: _Survey, shard: Shard, advance: Callable[[int], None]
) -> ShardResult:
    label, name = shard.items
    model = next(model for model in survey.models if model.label == label)
    sampling = _sampling(config, chat=model.is_chat)
    running = Running(
        engine=config.engine,
        batch_size=config.batch_size,
        dtype=survey.plan.inputs.get("dtype", ""),
        threads=config.workers,
        calling=_calling(config, label),
    )
    folder = survey.plan.work / f"{shard.index:03d}-{name}"
    found = survey.problem_set(name)
    journal = Journal(_journal_path(config, model, found, sampling, running))
    return run_shard(folder, journal, found, model, sampling, running, advance)


def _journal_path(
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


def _sampling(config: ScoreConfig, *, chat: bool = True) -> Sampling:
    return Sampling(
        samples=config.samples_per_problem,
        ks=config.ks,
        temperature=config.temperature,
        seed=config.seed,
        max_answer_tokens=config.max_answer_tokens,
        chat=chat,
    )


def _calling(config: ScoreConfig, label: str) -> Calling:
    """How the endpoint of a model is asked. Its own key's variable comes before the common one."""
    pairs = (text.rpartition("=") for text in config.api_key_env)
    by_label = {name: variable for name, _, variable in pairs}
    return Calling(
        api=config.endpoint_api,
        api_key_env=by_label.get(label, by_label.get("", "")),
        concurrency=config.concurrency,
        timeout_s=config.request_timeout_s,
        max_tries=config.request_tries,
    )


def publish(config: ScoreConfig, plan: StagePlan) -> Manifest:
    """Merge the shards, which must be done, into results, samples and the report."""
    survey = _survey(config)
    scored, problems = survey.models, survey.problems
    done = {shard.items: _run(config, survey, shard, lambda n: None) for shard in plan.shards}
    results = [
        summarise(
            found.benchmark,
            found.rows,
            {model.label: done[model.label, found.benchmark.name].answers for model in scored},
            ks=config.ks,
            seed=config.seed,
            seconds={
                model.label: round(done[model.label, found.benchmark.name].seconds, 1)
                for model in scored
            },
            origin=_origin(found),
        )
        for found in problems.sets
    ]
    samples = sample_rows(Workspace(config.workspace), problems, scored, done)
    summary = summary_of(config.dataset if problems.dataset_key else "", plan, scored, results)
    folder = plan.directory
    atomic.write_json(folder / "results.json", summary.model_dump(mode="json"))
    with atomic.atomic_path(folder / "samples.parquet") as path:
        pq.write_table(pa.Table.from_pylist(samples, schema=SAMPLES), path, compression="zstd")
    write_report(folder / "report.html", summary, samples)
    _record_scores(Workspace(config.workspace), scored, results)
    manifest = _manifest(config, plan, problems, done, len(samples))
    write_manifest(folder, manifest)
    shutil.rmtree(plan.work, ignore_errors=True)
    return manifest


def _origin(problems: ProblemSet) -> Origin:
    tools = {"lm-eval": library_version("lm-eval")}
    if problems.benchmark.sampled:
        tools |= {"simulator": verilog.tool_version(), "sandbox": sandbox.level()}
    return Origin(problems.data_hash, problems.grader_version, tools, problems.prepare())


def _manifest(
    config: ScoreConfig,
    plan: StagePlan,
    problems: Problems,
    done: Mapping[tuple[str, ...], ShardResult],
    answers: int,
) -> Manifest:
    folder = plan.directory
    rows = {found.benchmark.name: len(found.rows) for found in problems.sets}
    rejects = _without_verdict(done.values())
    if problems.without_benchmark:
        rejects["no_benchmark"] = problems.without_benchmark
    return Manifest(
        stage=STAGE,
        key=plan.key,
        fingerprint=config.fingerprint(),
        settings=config.output_settings(),
        inputs=plan.inputs,
        code_version=code_version(),
        counts_in={f"problems {name}": count for name, count in rows.items()},
        counts_out={"answers": answers},
        rejects=rejects,
        notes={
            "models": sorted({shard.items[0] for shard in plan.shards}),
            "sandbox": sandbox.level(),
        },
        seconds=round(sum(result.seconds for result in done.values()), 1),
        created=now(),
        files=[
            describe_file(folder, folder / "results.json"),
            describe_file(folder, folder / "samples.parquet", answers),
            describe_file(folder, folder / "report.html"),
        ],
    )


def _record_scores(
    workspace: Workspace, scored: Sequence[ScoredModel], results: Sequence[BenchmarkResult]
) -> None:
    """Each metric of a registered model goes into the registry as `<benchmark>/<metric>`."""
    for model in scored:
        if model.name:
            scores = {
                f"{result.name}/{metric}": round(score.value, 6)
                for result in results
                for metric, score in result.scores[model.label].items()
            }
            registry.record_scores(workspace, model.name, model.version, scores)


def run_score(config: ScoreConfig, progress: Progress = quiet) -> StageResult:
    """Plan, process and publish in this process, with the stage's lock held."""
    with stage_lock(Workspace(config.workspace), STAGE):
        return run(config, plan, process, publish, progress)


def _without_verdict(results: Iterable[ShardResult]) -> dict[str, int]:
    """Answers without a verdict, by reason."""
    counts = Counter(
        one.outcome
        for result in results
        for answers in result.answers.values()
        for one in answers
        if one.score is None
    )
    return dict(sorted(counts.items()))
