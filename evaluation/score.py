"""Models + a data set's test rows -> scores with intervals, every answer, a report.

    config = ScoreConfig(workspace=Path("workspace"))
    result = run_score(config)                  # result.directory: evaluations/<id>

In: `datasets/<name>/rows` (kind test), models from the registry or folders. Out:
`evaluations/<id>/` with `results.json`, `samples.parquet`, `report.html` and the manifest; the
scores of registered models also go into the registry. A shard is one model on one benchmark; its
answers are kept as they come, so a killed run continues.

The id derives from everything that decides a score: rows, weights, settings, and the versions of
the simulator and of the libraries. Not covered: promotion gates, models behind an endpoint.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version as library_version
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import field_validator

from evaluation import generation, models
from evaluation.benchmarks import BENCHMARKS
from evaluation.models import ScoredModel
from evaluation.problems import SAMPLES, Problems, read_problems
from evaluation.publication import sample_rows, summary_of
from evaluation.report import write_report
from evaluation.results import BenchmarkResult, summarise
from evaluation.shard import Sampling, ShardResult, run_shard
from evaluation.verifiers import sandbox, verilog
from workspace import publish as atomic
from workspace import registry
from workspace.config import StageConfig, setting
from workspace.errors import MissingInputError
from workspace.locking import stage_lock
from workspace.manifest import (
    Manifest,
    code_version,
    describe_file,
    find_published,
    now,
    require_manifest,
    stage_key,
    write_manifest,
)
from workspace.paths import Workspace
from workspace.progress import Progress, quiet
from workspace.stage import Shard, ShardReport, StagePlan, StageResult, run

STAGE = "evaluation"
VERSION = "2"

_DEFAULT_BENCHMARKS = tuple(BENCHMARKS)


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
        description="NAME, NAME:VERSION, base:NAME or model folders; the first is the baseline",
        affects_output=False,
    )
    benchmarks: tuple[str, ...] = setting(
        _DEFAULT_BENCHMARKS, position=4, description=f"of {', '.join(_DEFAULT_BENCHMARKS)}"
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

    @field_validator("benchmarks")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - BENCHMARKS.keys())
        if unknown or not value:
            raise ValueError(f"benchmarks are {', '.join(BENCHMARKS)}, not {', '.join(unknown)}")
        return tuple(name for name in BENCHMARKS if name in value)

    @field_validator("ks")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("each k of pass@k is 1 or more")
        return tuple(sorted({1, *value}))


def plan(config: ScoreConfig) -> StagePlan:
    """What is to be scored. Raises `MissingInputError` without a data set or a model."""
    workspace = Workspace(config.workspace)
    dataset = require_manifest(workspace.dataset(config.dataset), made_by="build_datasets")
    scored = _models(config)
    dtype = generation.best_dtype() if config.dtype == "auto" else config.dtype
    inputs = {
        "dataset": dataset.key,
        **{f"model {model.label}": model.hash for model in scored},
        "dtype": dtype,
        "simulator": verilog.tool_version(),
        **{name: library_version(name) for name in ("lm-eval", "transformers", "torch")},
    }
    key = stage_key(STAGE, VERSION, config.fingerprint(), inputs)
    directory = workspace.evaluation(key[:12])
    problems = _problems(config)
    pairs = [
        (model.label, name)
        for model in scored
        for name, rows in problems.by_benchmark.items()
        if rows
    ]
    if not pairs:
        raise MissingInputError(
            f"data set {config.dataset!r} has no test rows for {', '.join(config.benchmarks)}: "
            "build it with more documents, or score other benchmarks"
        )
    shards = tuple(
        Shard(index, pair, units=len(problems.by_benchmark[pair[1]]) * _samples(config, pair[1]))
        for index, pair in enumerate(pairs)
    )
    return StagePlan(STAGE, key, directory, shards, inputs, find_published(directory, key))


def process(config: ScoreConfig, shard: Shard, progress: Progress = quiet) -> ShardReport:
    """Generate and grade one model's answers to one benchmark."""
    planned = plan(config)
    if planned.published is not None:
        return ShardReport(shard.index)
    label, name = shard.items
    with progress(f"{label} on {name}", shard.units, "answers") as advance:
        result = _run(config, planned, shard, advance)
    graded = [one for answers in result.answers.values() for one in answers]
    return ShardReport(
        shard.index,
        counts={"answers": len(graded), "passed": sum(one.passed for one in graded)},
        rejects=_without_verdict([result]),
        seconds=result.seconds,
    )


def _run(
    config: ScoreConfig, planned: StagePlan, shard: Shard, advance: Callable[[int], None]
) -> ShardResult:
    label, name = shard.items
    model = next(model for model in _models(config) if model.label == label)
    sampling = Sampling(
        samples=_samples(config, name),
        ks=config.ks,
        temperature=config.temperature,
        seed=config.seed,
        batch_size=config.batch_size,
        dtype=planned.inputs["dtype"],
        threads=config.workers,
    )
    folder = planned.work / f"{shard.index:03d}-{name}"
    rows = _problems(config).by_benchmark[name]
    return run_shard(folder, BENCHMARKS[name], model, rows, sampling, advance)


def publish(config: ScoreConfig, plan: StagePlan) -> Manifest:
    """Merge the shards, which must be done, into results, samples and the report."""
    problems = _problems(config)
    scored = _models(config)
    done = {shard.items: _run(config, plan, shard, lambda n: None) for shard in plan.shards}
    results = [
        summarise(
            name,
            rows,
            {model.label: done[model.label, name].answers for model in scored},
            ks=config.ks,
            seed=config.seed,
            seconds={model.label: round(done[model.label, name].seconds, 1) for model in scored},
        )
        for name, rows in problems.by_benchmark.items()
        if rows
    ]
    samples = sample_rows(Workspace(config.workspace), problems, scored, done)
    summary = summary_of(config.dataset, plan, scored, results)
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


def _manifest(
    config: ScoreConfig,
    plan: StagePlan,
    problems: Problems,
    done: Mapping[tuple[str, ...], ShardResult],
    answers: int,
) -> Manifest:
    folder = plan.directory
    rows = {name: len(found) for name, found in problems.by_benchmark.items()}
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


def _models(config: ScoreConfig) -> list[ScoredModel]:
    wanted = config.models or (f"base:{config.name}", config.name)
    return models.resolve(Workspace(config.workspace), wanted)


def _problems(config: ScoreConfig) -> Problems:
    folder = Workspace(config.workspace).dataset(config.dataset)
    return read_problems(folder, config.benchmarks, limit=config.limit, seed=config.seed)


def _samples(config: ScoreConfig, benchmark: str) -> int:
    return config.samples_per_problem if BENCHMARKS[benchmark].sampled else 1


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
