"""Models + benchmarks -> scores with intervals, every answer, a report.

    config = ScoreConfig(workspace=Path("workspace"))
    result = run_score(config)                  # result.directory: evaluations/<id>

In: models from the registry, folders or endpoints (`evaluation.models`); problems from
`datasets/<name>/rows` (kind test), public benchmarks, your own files or lm-eval
(`evaluation.problems`). Out: `evaluations/<id>/` with `results.json`, `samples.parquet`,
`report.html` and the manifest; the scores of registered models also go into the registry and onto
their cards (`workspace.model_card`). A shard is one model on one benchmark; its answers are kept as
they come, so a killed run continues.

The id derives from everything that decides a score: problems, weights, settings, and the versions
of graders, simulator and libraries. Not covered: promotion (`evaluation.gate`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from evaluation.evaluation_files import Settings, without_verdict, write_evaluation
from evaluation.journal import Journal
from evaluation.models import ScoredModel
from evaluation.results import BenchmarkResult
from evaluation.score_config import ScoreConfig
from evaluation.shard import Running, ShardResult, run_shard
from evaluation.survey import STAGE, Survey, journal_path, take_survey
from workspace import model_card, registry
from workspace.locking import stage_lock
from workspace.manifest import Manifest, write_manifest
from workspace.paths import Workspace
from workspace.progress import Progress, quiet
from workspace.stage import Shard, ShardReport, StagePlan, StageResult, run


def plan(config: ScoreConfig) -> StagePlan:
    """What is to be scored. Raises `MissingInputError` without a data set or a model."""
    return take_survey(config).plan


def process(config: ScoreConfig, shard: Shard, progress: Progress = quiet) -> ShardReport:
    """Generate and grade one model's answers to one benchmark."""
    survey = take_survey(config)
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
        rejects=without_verdict([result]),
        seconds=result.seconds,
    )


def _run(
    config: ScoreConfig, survey: Survey, shard: Shard, advance: Callable[[int], None]
) -> ShardResult:
    label, name = shard.items
    model = next(model for model in survey.models if model.label == label)
    sampling = config.sampling(chat=model.is_chat)
    running = Running(
        engine=config.engine,
        batch_size=config.batch_size,
        dtype=survey.plan.inputs.get("dtype", ""),
        threads=config.workers,
        calling=config.calling(label),
    )
    folder = survey.plan.work / f"{shard.index:03d}-{name}"
    found = survey.problem_set(name)
    journal = Journal(journal_path(config, model, found, sampling, running))
    return run_shard(folder, journal, found, model, sampling, running, advance)


def publish(config: ScoreConfig, plan: StagePlan) -> Manifest:
    """Merge the shards, which must be done, into results, samples and the report."""
    survey = take_survey(config)
    workspace = Workspace(config.workspace)
    done = {shard.items: _run(config, survey, shard, lambda n: None) for shard in plan.shards}
    settings = Settings(
        config.fingerprint(), config.output_settings(), config.dataset, config.ks, config.seed
    )
    manifest, results = write_evaluation(
        workspace, plan, survey.models, survey.problems, done, settings
    )
    _record_scores(workspace, survey.models, results, plan.directory.name, manifest.created)
    write_manifest(plan.directory, manifest)
    shutil.rmtree(plan.work, ignore_errors=True)
    return manifest


def _record_scores(
    workspace: Workspace,
    scored: Sequence[ScoredModel],
    results: Sequence[BenchmarkResult],
    evaluation: str,
    date: str,
) -> None:
    """Each metric of a registered model goes into the registry and onto the model's card."""
    for model in scored:
        if model.name:
            scores = {
                f"{result.name}/{metric}": registry.Score(
                    value=round(score.value, 6),
                    low=round(score.low, 6),
                    high=round(score.high, 6),
                    problems=score.problems,
                    title=result.title,
                    evaluation=evaluation,
                    date=date,
                    data_hash=result.data_hash,
                    grader_version=result.grader_version,
                    tool_versions=result.tool_versions,
                )
                for result in results
                for metric, score in result.scores[model.label].items()
            }
            version = registry.record_scores(workspace, model.name, model.version, scores)
            model_card.write_scores(workspace, version)


def run_score(config: ScoreConfig, progress: Progress = quiet) -> StageResult:
    """Plan, process and publish in this process, with the stage's lock held."""
    with stage_lock(Workspace(config.workspace), STAGE):
        return run(config, plan, process, publish, progress)
