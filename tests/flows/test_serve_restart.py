"""Deployments over restarts of `python -m flows.serve`: whose word counts for what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from served import client_of, serving, user_environment

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NIGHTLY = """
sources: [/fsx/documents]
workspace: /fsx/workspaces/chips
train: {launcher: slurm, nodes: 4, slurm: {qos: night, reservation: chips}}
"""


def deploy(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m flows.deploy`, as the user whose server runs in `home`."""
    return subprocess.run(
        [sys.executable, "-m", "flows.deploy", *arguments],
        cwd=REPOSITORY,
        env=user_environment(home),
        capture_output=True,
        text=True,
    )


def test_a_restart_keeps_what_people_set_and_brings_the_rest_up_to_date(tmp_path: Path) -> None:
    configuration = tmp_path / "nightly.yaml"
    configuration.write_text(NIGHTLY)
    with serving(tmp_path) as (ui, said), client_of(ui) as client:
        assert "8 deployments made, 0 kept" in said
        set_in_the_page(client)
        made = deploy(
            tmp_path, "pipeline", "--config", str(configuration), "--deployment", "chips",
            "--cron", "0 22 * * *", "--timezone", "Europe/Berlin",
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        refused = deploy(tmp_path, "pipeline", "--config", str(configuration), "--cron", "at noon")
        assert refused.returncode == 2 and "--cron" in refused.stderr

    with serving(tmp_path) as (ui, said), client_of(ui) as client:
        assert "0 deployments made, 9 kept" in said
        assert "no longer fit" in said and "score" in said.partition("no longer fit")[2]
        pipeline = client.read_deployment_by_name("pipeline/pipeline")
        assert pipeline.parameters == {"config": {"sources": ["/mine"], "workspace": "/mine/W"}}
        assert sorted((s.slug or "", s.schedule.cron, s.active) for s in pipeline.schedules) == [
            ("", "30 5 * * *", True),
            ("nightly", "15 23 * * *", True),
        ]
        assert pipeline.description == "Documents to an evaluated model, skipping what is published"
        assert pipeline.entrypoint == "flows/pipeline.py:pipeline"
        assert client.read_deployment_by_name("reconcile/reconcile").schedules == []
        assert client.read_deployment_by_name("ingest/ingest").paused
        assert client.read_work_pool("dsm").concurrency_limit == 1

        score = client.read_deployment_by_name("score/score")
        assert score.parameters == {"config": {"workspace": "W", "of_an_old_version": 1}}
        assert score.parameter_openapi_schema["definitions"], "the form is the new one all the same"

        chips = client.read_deployment_by_name("pipeline/chips")
        assert chips.parameters["config"]["train"] == {
            "launcher": "slurm", "nodes": 4, "slurm": {"qos": "night", "reservation": "chips"},
        }  # fmt: skip
        [schedule] = chips.schedules
        assert (schedule.schedule.cron, schedule.schedule.timezone) == (
            "0 22 * * *", "Europe/Berlin",
        )  # fmt: skip
        assert schedule.active

        configuration.write_text(NIGHTLY.replace("nodes: 4", "nodes: 8"))
        again = deploy(
            tmp_path, "pipeline", "--config", str(configuration), "--deployment", "chips"
        )
        assert again.returncode == 0, again.stderr
        chips = client.read_deployment_by_name("pipeline/chips")
        assert chips.parameters["config"]["train"]["nodes"] == 8
        assert chips.schedules == [schedule], "without --cron it stays"


def set_in_the_page(client: SyncPrefectClient) -> None:
    """What a user's clicks send, and what a version with other flows would have left."""
    from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
    from prefect.client.schemas.schedules import CronSchedule

    pipeline = client.read_deployment_by_name("pipeline/pipeline")
    mine = {"config": {"sources": ["/mine"], "workspace": "/mine/W"}}
    client.update_deployment(
        pipeline.id,
        DeploymentUpdate(parameters=mine, description="old", entrypoint="flows/old.py:pipeline"),
    )
    [nightly] = pipeline.schedules
    assert not nightly.active
    client.update_deployment_schedule(
        pipeline.id, nightly.id, active=True, schedule=CronSchedule(cron="15 23 * * *")
    )
    client.create_deployment_schedules(pipeline.id, [(CronSchedule(cron="30 5 * * *"), True)])
    reconcile = client.read_deployment_by_name("reconcile/reconcile")
    client.delete_deployment_schedule(reconcile.id, reconcile.schedules[0].id)
    client.pause_deployment(client.read_deployment_by_name("ingest/ingest").id)
    client.update_work_pool("dsm", WorkPoolUpdate(concurrency_limit=1))
    client.update_deployment(
        client.read_deployment_by_name("score/score").id,
        DeploymentUpdate(
            parameters={"config": {"workspace": "W", "of_an_old_version": 1}},
            enforce_parameter_schema=False,
            parameter_openapi_schema={"type": "object", "properties": {}},
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nix",), "'nix' is no flow"),
        (("--cron", "0 1 * * *"), "name it first"),
        (("--timezone", "Europe/Berlin"), "name it first"),
        (("train",), "no Prefect server"),
    ],
)
def test_what_it_cannot_do_it_says(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = deploy(tmp_path, *arguments)
    assert done.returncode in (1, 2)
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("flow", ["train", "pipeline", "ingest", "reconcile"])
def test_no_setting_of_a_flow_is_hidden_by_a_flag_of_deploy(flow: str) -> None:
    import importlib

    config = importlib.import_module(f"flows.{flow}").DOOR.config
    assert not {"pool", "deployment", "cron", "timezone"} & set(config.model_fields)
