"""prefect.yaml: every flow has a deployment whose form is ordered, described and bounded."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.deploy import Parser
from workspace.config import StageConfig
from workspace.flags import FlagParser

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FLOWS = sorted(
    path.stem
    for path in (REPOSITORY / "flows").glob("[a-z]*.py")
    if path.stem not in ("serve", "deploy")
)
FILE: dict[str, Any] = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text(encoding="utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = FILE["deployments"]


def name_of(deployment: dict[str, Any]) -> str:
    return str(deployment["name"])


def load(deployment: dict[str, Any]) -> Any:
    """The flow of a deployment, as a worker loads it."""
    from prefect.flows import load_flow_from_entrypoint

    path, _, name = deployment["entrypoint"].partition(":")
    return load_flow_from_entrypoint(f"{REPOSITORY / path}:{name}")


def test_every_flow_has_a_deployment() -> None:
    assert sorted(d["entrypoint"].split("/")[1].split(".")[0] for d in DEPLOYMENTS) == FLOWS


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
class TestDeployment:
    def test_its_form_is_ordered_described_and_bounded(self, deployment: dict[str, Any]) -> None:
        schema = load(deployment).parameters.model_dump()
        for model in schema["definitions"].values():
            fields = model.get("properties", {})
            positions = [field["position"] for field in fields.values()]
            assert len(set(positions)) == len(positions), model["title"]
            for name, field in fields.items():
                where = f"{model['title']}.{name}"
                assert field.get("description"), where
                assert _is_bounded(field), where

    def test_its_schedules_are_named_and_off(self, deployment: dict[str, Any]) -> None:
        for schedule in deployment["schedules"]:
            assert schedule["slug"]
            assert schedule["active"] is False


def _is_bounded(field: dict[str, Any]) -> bool:
    """A number has a lower bound; other kinds need none."""
    kinds = [field, *field.get("anyOf", [])]
    numbers = [kind for kind in kinds if kind.get("type") in ("integer", "number")]
    return all("minimum" in kind or "exclusiveMinimum" in kind for kind in numbers)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flows_door_and_its_form_are_the_same_model(name: str) -> None:
    module = importlib.import_module(f"flows.{name}")
    (parameter,) = getattr(module, name).parameters.properties
    assert parameter == "config"
    assert issubclass(module.DOOR.config, StageConfig)


def test_the_nightly_configuration_of_the_docs_loads_and_reaches_sbatch() -> None:
    from flows._pipeline import PipelineConfig

    docs = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(# nightly\.yaml.*?)```", docs, re.DOTALL)
    config = PipelineConfig.parse(yaml.safe_load(text), origin="docs/slurm.md").for_train()
    slurm = config.slurm
    assert (config.nodes, slurm.qos, slurm.constraint, slurm.reservation) == (
        4, "night", "h100&ib", "chips",
    )  # fmt: skip


def test_the_deploy_lines_of_the_docs_are_understood(tmp_path: Path) -> None:
    """Each is parsed as given, up to the server that is not there."""
    from prefect.client.schemas.schedules import CronSchedule

    docs = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ *python -m flows\.deploy (.+)$", docs, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        flow, *rest = shlex.split(line)
        options, settings = Parser().parse_known_args(rest)
        CronSchedule(cron=options.cron, timezone=options.timezone)
        door = importlib.import_module(f"flows.{flow}").DOOR
        parser = FlagParser("x", door.config, "", "", can_preview=False, recipes=door.recipes)
        nightly = tmp_path / "nightly.yaml"
        nightly.write_text("sources: [/d]\nworkspace: /w\n")
        parser.parse([str(nightly) if word == "nightly.yaml" else word for word in settings])
