from __future__ import annotations

from pathlib import Path

import pytest

from training.train import TrainConfig
from training.trainers.grpo import completions_per_rank
from training.trainers.sft import rows_per_rank
from workspace.config import read_yaml

RECIPES = sorted((Path(__file__).parents[2] / "training" / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_its_ranks_can_share_a_step(path: Path) -> None:
    config = TrainConfig.parse({**read_yaml(path), "workspace": "w"}, origin=str(path))
    ranks = config.nodes * config.processes_per_node
    assert rows_per_rank(config.sft, ranks) >= 1
    assert completions_per_rank(config.rlvr, ranks) >= config.rlvr.generations


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 2
