"""Each recipe loads, its ranks can share a step, and its comment says what the planner says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.parallelism import plan_of
from training.train import RECIPES, TrainConfig
from training.trainers.entry import rows_per_rank
from training.trainers.grpo import completions_per_rank
from workspace.config import read_yaml

PATHS = sorted(RECIPES.glob("*.yaml"))
PLANNED = re.compile(
    r"^# planned: (?P<model>\S+) (?P<stage>\w+): (?P<layout>[^,]+), (?P<gib>[\d.]+) GiB, "
    r"(?P<seconds>[\d.]+) s a step$",
    re.M,
)


def load(path: Path) -> TrainConfig:
    return TrainConfig.parse({**read_yaml(path), "workspace": "w"}, origin=str(path))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_loads_and_its_ranks_can_share_a_step(path: Path) -> None:
    config = load(path)
    ranks = config.nodes * config.processes_per_node
    for stage in config.run_stages:
        if stage == "rlvr":
            assert completions_per_rank(config.rlvr, ranks) >= config.rlvr.generations
        else:
            rows = getattr(config, stage).rows_per_step
            assert rows_per_rank(rows, f"{stage}.rows_per_step", ranks) >= 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_for_gpus_states_what_was_planned(path: Path) -> None:
    config = load(path)
    stated = list(PLANNED.finditer(path.read_text()))
    assert {match["stage"] for match in stated} == set(
        config.run_stages if config.gpus_per_node else ()
    )
    for match in stated:
        stage = match["stage"]
        layout = config.layout(stage, match["model"])  # type: ignore[arg-type]
        assert layout.ranks == config.nodes * config.processes_per_node
        planned = plan_of(
            config.parallelism,
            config.demand(stage),  # type: ignore[arg-type]
            match["model"],
            config.nodes,
            config.processes_per_node,
        )
        assert planned.layout.label == match["layout"]
        assert planned.memory.total == pytest.approx(float(match["gib"]), abs=0.06)
        assert planned.speed.seconds == pytest.approx(float(match["seconds"]), rel=0.01)
        assert planned.memory.total < 79.1


def test_the_recipes_that_the_docs_name_are_there() -> None:
    assert {path.stem for path in PATHS} >= {
        "tiny_cpu", "smollm2_cpu", "llama31_8b_sft_lora_1x8", "llama31_8b_sft_full_4x8",
        "llama2_13b_cpt_fsdp_4x8", "llama3_70b_external", "grpo_8b_vllm",
    }  # fmt: skip
