"""The score stage over small Verilog sets, for its tests: settings, results, canned answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from scoring_inputs import (
    STEP,
    STEP_RIGHT,
    STEP_SET,
    STEP_WRONG,
)

from evaluation.score_config import ScoreConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, completion

V2 = "verilog_eval_v2_code_complete"


def config_of(
    tmp_path: Path, source: Path, url: str, name: str = STEP_SET, **settings: Any
) -> ScoreConfig:
    chosen: dict[str, Any] = {
        "models": (f"base={url}#base", f"tuned={url}#tuned"),
        "benchmarks": (f"{name}={source}",),
        "samples_per_problem": 2,
        "ks": (1, 2),
        "request_tries": 2,
        **settings,
    }
    return ScoreConfig(workspace=tmp_path / "ws", **chosen)


def results_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def samples_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "samples.parquet").to_pylist()
    return rows


def steps(problems: int) -> list[str]:
    """The names of the problems of `write_step_benchmark`."""
    return [STEP.replace("001", f"{number:03d}") for number in range(1, problems + 1)]


def problem_number(body: dict[str, Any]) -> int:
    return int(body["messages"][-1]["content"].split()[1])


def by_model(body: dict[str, Any], number: int) -> Answer:
    """`tuned` is always right; `base` is right once in problem 1, never else."""
    lucky = problem_number(body) == 1 and body["seed"] % 2 == 0
    return completion(STEP_RIGHT if body["model"] == "tuned" or lucky else STEP_WRONG)
