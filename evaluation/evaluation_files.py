"""All graded answers of an evaluation -> its folder: results, every answer, the report, manifest.

In: a plan without a published result, models, problems, and the answers of each model to each
benchmark. Out: `results.json`, `samples.parquet`, `report.html`, and the manifest, which the caller
writes as its last step. Whoever made the answers (`evaluation.score` asks models,
`evaluation.graded_elsewhere` is given theirs), a score has the same fields that say what it may be
compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as library_version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.benchmarks.problem_set import ProblemSet
from evaluation.models import ScoredModel
from evaluation.problems import SAMPLES, Problems
from evaluation.publication import sample_rows, summary_of
from evaluation.report import write_report
from evaluation.results import BenchmarkResult, Origin, summarise
from evaluation.shard import ENGINES, ShardResult
from evaluation.verifiers import sandbox, table_program, verilog
from workspace import publish
from workspace.manifest import Manifest, code_version, describe_file, now
from workspace.paths import Workspace
from workspace.stage import StagePlan

Done = Mapping[tuple[str, ...], ShardResult]  # by model's label and benchmark's name


@dataclass(frozen=True)
class Settings:
    """How answers were made and are summarised."""

    fingerprint: str
    recorded: Mapping[str, Any]  # what the manifest keeps of them
    dataset: str
    ks: tuple[int, ...]
    seed: int
    asked_by_lm_eval: bool = True


def write_evaluation(
    workspace: Workspace,
    plan: StagePlan,
    scored: Sequence[ScoredModel],
    problems: Problems,
    done: Done,
    settings: Settings,
) -> tuple[Manifest, list[BenchmarkResult]]:
    """Write the files. Returns the manifest, not yet written, and the results by benchmark."""
    results = [
        summarise(
            found.benchmark,
            found.rows,
            {model.label: done[model.label, found.benchmark.name].answers for model in scored},
            ks=settings.ks,
            seed=settings.seed,
            seconds={
                model.label: round(done[model.label, found.benchmark.name].seconds, 1)
                for model in scored
            },
            origin=_origin(found, plan, settings),
        )
        for found in problems.sets
    ]
    samples = sample_rows(workspace, problems, scored, done)
    dataset = settings.dataset if problems.dataset_key else ""
    summary = summary_of(dataset, plan, scored, results)
    folder = plan.directory
    publish.write_json(folder / "results.json", summary.model_dump(mode="json"))
    with publish.atomic_path(folder / "samples.parquet") as path:
        pq.write_table(pa.Table.from_pylist(samples, schema=SAMPLES), path, compression="zstd")
    write_report(folder / "report.html", summary, samples)
    return _manifest(plan, problems, done, settings, len(samples)), results


def _origin(problems: ProblemSet, plan: StagePlan, settings: Settings) -> Origin:
    tools = {"lm-eval": library_version("lm-eval")} if settings.asked_by_lm_eval else {}
    tools |= {name: plan.inputs[name] for name in ENGINES if name in plan.inputs}
    if problems.is_simulated:
        tools["simulator"] = verilog.tool_version()
    if problems.is_simulated or table_program.KIND in problems.verifiers:
        tools["sandbox"] = sandbox.level()
    return Origin(problems.data_hash, problems.grader_version, tools, problems.prepare())


def _manifest(
    plan: StagePlan, problems: Problems, done: Done, settings: Settings, answers: int
) -> Manifest:
    folder = plan.directory
    rows = {found.benchmark.name: len(found.rows) for found in problems.sets}
    rejects = without_verdict(done.values())
    if problems.without_benchmark:
        rejects["no_benchmark"] = problems.without_benchmark
    return Manifest(
        stage=plan.stage,
        key=plan.key,
        fingerprint=settings.fingerprint,
        settings=dict(settings.recorded),
        inputs=plan.inputs,
        code_version=code_version(),
        counts_in={f"problems {name}": count for name, count in rows.items()},
        counts_out={"answers": answers},
        rejects=rejects,
        notes={
            "models": sorted({label for label, *_ in done}),
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


def without_verdict(results: Iterable[ShardResult]) -> dict[str, int]:
    """Answers without a verdict, by reason."""
    counts = Counter(
        one.outcome
        for result in results
        for answers in result.answers.values()
        for one in answers
        if one.score is None
    )
    return dict(sorted(counts.items()))
