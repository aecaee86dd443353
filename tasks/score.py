"""Tasks of scoring: one model on one benchmark a shard, then intervals, comparisons, a report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect import task

from evaluation import leaderboard, score
from evaluation.score_config import ScoreConfig
from tasks import artifacts
from tasks._markdown import code_cells
from tasks._options import task_options
from tasks.stage import stage_tasks
from workspace.paths import Workspace
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport, StageResult


def process(config: ScoreConfig, shard: Shard, advance: Advance) -> ShardReport:
    """Generate and grade one model's answers to one benchmark, counting each."""

    @contextmanager
    def counted(label: str, total: int, unit: str) -> Iterator[Advance]:
        yield advance

    return score.process(config, shard, counted)


SCORE = stage_tasks("score", score, unit="answers", process=process)


def show_scores(result: StageResult, rows: list[dict[str, object]]) -> None:
    """The scores of every model as a table on the run's page."""
    artifacts.show_table(
        "score",
        "scores",
        code_cells(rows, "benchmark", "model"),
        "score: models by benchmark, with 95 % intervals",
    )


@task(**task_options("score", "leaderboard", "score leaderboard"))
def update_leaderboard(workspace: Path) -> None:
    """Write the table of all evaluations of the workspace anew."""
    leaderboard.write(Workspace(workspace))
