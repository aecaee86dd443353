"""Each recipe loads, its ranks can share a step, and comment and docs say what the planner says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from training.parallelism import plan_of
from training.planner.search import Candidate
from training.train import RECIPES, TrainConfig
from training.trainers.entry import rows_per_rank
from training.trainers.grpo import completions_per_rank
from workspace.config import read_yaml
from workspace.errors import UserError
from workspace.flags import FlagParser

DOCS = Path(__file__).resolve().parents[2] / "docs" / "training.md"
PATHS = sorted(RECIPES.glob("*.yaml"))
PLANNED = re.compile(
    r"^# planned: (?P<model>\S+) (?P<stage>\w+): (?P<layout>[^,]+), (?P<gib>[\d.]+) GiB, "
    r"(?P<seconds>[\d.]+) s a step$",
    re.M,
)
FIGURE = re.compile(r"([\d.]+) (GiB|s)\b")


def table_of_docs() -> dict[str, dict[str, str]]:
    """The rows of the docs' table of recipes by the recipe's name."""
    text = DOCS.read_text(encoding="utf-8")
    columns = ("stages", "on", "layout", "memory", "step")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", text[text.index("### Recipes") :], re.M)
    cells = {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}
    known = {name: found for name, found in cells.items() if len(found) == len(columns)}
    return {name: dict(zip(columns, found, strict=True)) for name, found in known.items()}


DOCUMENTED = table_of_docs()


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
def test_the_command_line_notes_the_recipe(path: Path, tmp_path: Path) -> None:
    parser = FlagParser("train", TrainConfig, "", "", recipes=RECIPES)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    named = parser.parse(["--workspace", "w", "--recipe", path.stem]).config
    assert named.recipe == f"{path.stem}@{digest}"
    assert named.fingerprint() == load(path).fingerprint(), "the same run as without the note"
    own = tmp_path / "own.yaml"
    own.write_bytes(path.read_bytes())
    assert parser.parse(["--workspace", "w", "--recipe", str(own)]).config == named.model_copy(
        update={"recipe": f"own.yaml@{digest}"}
    )


def test_without_a_recipe_none_is_noted_and_none_can_be_claimed() -> None:
    parser = FlagParser("train", TrainConfig, "", "", recipes=RECIPES)
    assert parser.parse(["--workspace", "w"]).config.recipe == ""
    assert "NAME@HASH" not in parser.format_help()
    with pytest.raises(UserError, match="give --recipe"):
        TrainConfig.parse({"workspace": "w", "recipe": "smollm2_cpu"}, origin="c.yaml")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_for_gpus_states_what_was_planned(path: Path) -> None:
    config = load(path)
    stated = list(PLANNED.finditer(path.read_text()))
    assert {match["stage"] for match in stated} == set(
        config.run_stages if config.gpus_per_node else ()
    )
    for match in stated:
        layout = config.layout(match["stage"], match["model"])  # type: ignore[arg-type]
        assert layout.ranks == config.nodes * config.processes_per_node
        planned = planned_by(config, match)
        assert planned.layout.label == match["layout"]
        assert planned.memory.total == pytest.approx(float(match["gib"]), abs=0.06)
        assert planned.speed.seconds == pytest.approx(float(match["seconds"]), rel=0.01)
        assert planned.memory.total < 79.1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_docs_state_what_is_planned_for_a_recipe(path: Path) -> None:
    config, row = load(path), DOCUMENTED[path.stem]
    planned = [planned_by(config, match) for match in PLANNED.finditer(path.read_text())]
    assert len(planned) == bool(config.gpus_per_node), "the table has one figure for each recipe"
    for found in planned:
        assert row["on"] == f"{config.nodes} × {config.gpus_per_node}"
        assert row["layout"] == found.layout.label
        memory, seconds = FIGURE.match(row["memory"]), FIGURE.match(row["step"])
        assert memory and seconds and (memory[2], seconds[2]) == ("GiB", "s")
        assert found.memory.total == pytest.approx(float(memory[1]), abs=0.06)
        assert found.speed.seconds == pytest.approx(float(seconds[1]), rel=0.01)
        stage = config.run_stages[0]
        demand = config.demand(stage)
        size = f"{demand.rows_per_step} × {demand.sequence_length} tokens"
        assert row["step"].endswith("+ sampling" if stage == "rlvr" else f" for {size}")


def planned_by(config: TrainConfig, match: re.Match[str]) -> Candidate:
    """What the planner says about the stage of a `# planned:` line."""
    return plan_of(
        config.parallelism,
        config.demand(match["stage"]),  # type: ignore[arg-type]
        match["model"],
        config.nodes,
        config.processes_per_node,
    )


def test_the_docs_list_every_recipe_and_no_other() -> None:
    assert sorted(DOCUMENTED) == [path.stem for path in PATHS]


def test_slow_ranks_are_not_promised_to_be_replaced_where_none_is_seen() -> None:
    assert TrainConfig(workspace=Path("W"), replace_stragglers=True).replace_stragglers
    with pytest.raises(ValidationError, match="replace_stragglers: on GPUs"):
        TrainConfig(workspace=Path("W"), replace_stragglers=True, gpus_per_node=8)
