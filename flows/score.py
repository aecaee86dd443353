"""Models and benchmarks -> scores with intervals, paired comparisons, a report.

python -m flows.score --workspace DIR                   a trained model against its base
python -m flows.score --workspace DIR --models base=FOLDER,tuned=FOLDER \\
    --benchmarks verilog_eval_v2_code_complete=FOLDER,closed_book
"""

from __future__ import annotations

import sys
from dataclasses import replace

from evaluation import score as stage
from evaluation.published import read_summary
from evaluation.score_config import ScoreConfig
from flows._cli import main, stage_door
from flows._scores import leaderboard_place, score_lines, score_rows
from flows._summary import Summary, summarise_stage
from workspace.stage import StageResult


def summarise(result: StageResult) -> Summary:
    """The stage's summary with the scores."""
    summary = summarise_stage("score")(result)
    return replace(
        summary,
        notes=score_lines(read_summary(result.directory)),
        places={**(summary.places or {}), **leaderboard_place(result.directory)},
    )


DOOR = replace(stage_door("score", ScoreConfig, stage, __doc__), summarise=summarise)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.score import SCORE, show_scores, update_leaderboard  # noqa: E402
from tasks.shards import StageStoppedError  # noqa: E402
from tasks.stage import run_stage  # noqa: E402
from tasks.stopping import stopped  # noqa: E402


@flow(**flow_options("score", "score {config.dataset}"))
def score(config: ScoreConfig) -> StageResult | State[StageResult]:
    """Score models on benchmarks, the first model as the baseline of the others."""
    try:
        result = run_stage(SCORE, config)
    except StageStoppedError as error:
        return stopped(str(error))
    update_leaderboard(config.workspace)
    show_scores(result, score_rows(read_summary(result.directory)))
    return result
