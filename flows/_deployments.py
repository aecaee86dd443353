"""The deployments of `prefect.yaml` on a server: new ones are made, known ones brought up to date.

What people set in the page stays: parameters, schedules and whether they are active, pauses,
limits, the work pool's settings. `prefect deploy --all` would put back those of the file each time
(Prefect 3.9). All else (entrypoint, description, tags, form, folder of the code) is the file's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    DeploymentUpdate,
    WorkPoolCreate,
)
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from workspace.config import read_yaml
from workspace.environment import CHECKOUT

_TAG: Final = "dsm"
_PAGE: Final = 200  # deployments that the API lists at once


@dataclass(frozen=True)
class Shipped:
    """A deployment as `prefect.yaml` has it."""

    name: str
    description: str
    entrypoint: str
    tags: list[str]
    parameters: dict[str, Any]
    schedules: list[dict[str, Any]]

    @cached_property
    def flow(self) -> Flow[Any, Any]:
        """Its flow, as a worker loads it."""
        path, _, name = self.entrypoint.partition(":")
        return load_flow_from_entrypoint(f"{CHECKOUT / path}:{name}")

    def code(self) -> dict[str, Any]:
        """The fields that follow the code, whoever made the deployment."""
        return {
            "entrypoint": self.entrypoint,
            "version": self.flow.version,
            "parameter_openapi_schema": parameter_schema(self.flow).model_dump(exclude_unset=True),
            "pull_steps": [
                {"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}
            ],
        }


class Registered(NamedTuple):
    """What `register` did."""

    new: list[str]
    known: list[str]
    unfit: list[str]  # have parameters that the flow no longer takes: name and reason


def shipped() -> list[Shipped]:
    """Every deployment of `prefect.yaml`."""
    return [
        Shipped(
            given["name"],
            given["description"],
            given["entrypoint"],
            given["tags"],
            given["parameters"],
            given["schedules"],
        )
        for given in read_yaml(CHECKOUT / "prefect.yaml")["deployments"]
    ]


def of_flow(flow: str) -> Shipped:
    """The deployment of `prefect.yaml` for the flow of a module."""
    return next(one for one in shipped() if Path(one.entrypoint.partition(":")[0]).stem == flow)


def make_pool(client: SyncPrefectClient, pool: str) -> None:
    """Make the work pool unless it is there."""
    try:
        client.read_work_pool(pool)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(
            WorkPoolCreate(name=pool, type=ProcessWorker.type, base_job_template=template)
        )


def register(client: SyncPrefectClient, pool: str) -> Registered:
    """Every deployment of `prefect.yaml`, and the code of those made by `set_up` beside them."""
    done = Registered([], [], [])
    for one in shipped():
        known = _known(client, one.flow.name, one.name)
        name = f"{one.flow.name}/{one.name}"
        if known is None:
            _create(client, one, one.name, pool, one.parameters, _schedules(one))
            done.new.append(name)
        else:
            own = {"description": one.description, "tags": one.tags, "work_pool_name": pool}
            done.known.append(name)
            done.unfit.extend(_update(client, known, {**one.code(), **own}))
        for other in _others(client, one):
            done.known.append(f"{one.flow.name}/{other.name}")
            done.unfit.extend(_update(client, other, one.code()))
    return done


def set_up(
    client: SyncPrefectClient,
    one: Shipped,
    name: str,
    pool: str,
    settings: dict[str, Any],
    cron: CronSchedule | None,
) -> bool:
    """Give the deployment `name` of `one`'s flow these settings, and `cron` as its only schedule.

    Without `cron` a deployment keeps the schedules it has, and a new one has none. Returns whether
    it is new.
    """
    parameters = {"config": settings}
    schedules = [DeploymentScheduleCreate(schedule=cron, active=True, slug="own")] if cron else []
    known = _known(client, one.flow.name, name)
    if known is None:
        _create(client, one, name, pool, parameters, schedules)
        return True
    change = {**one.code(), "enforce_parameter_schema": True, "parameters": parameters}
    client.update_deployment(known.id, DeploymentUpdate(**change))
    if cron is not None:
        for schedule in known.schedules:
            client.delete_deployment_schedule(known.id, schedule.id)
        client.create_deployment_schedules(known.id, schedules)
    return False


def _known(client: SyncPrefectClient, flow: str, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(f"{flow}/{name}")
    except ObjectNotFound:
        return None


def _others(client: SyncPrefectClient, one: Shipped) -> list[DeploymentResponse]:
    """Ours of the same flow that `prefect.yaml` does not name."""
    same_flow = FlowFilter(name=FlowFilterName(any_=[one.flow.name]))
    return [
        found
        for found in client.read_deployments(flow_filter=same_flow, limit=_PAGE)
        if found.name != one.name and found.entrypoint == one.entrypoint and _TAG in found.tags
    ]


def _schedules(one: Shipped) -> list[DeploymentScheduleCreate]:
    return [
        DeploymentScheduleCreate(
            schedule=CronSchedule(cron=given["cron"], timezone=given["timezone"]),
            active=given["active"],
            slug=given["slug"],
        )
        for given in one.schedules
    ]


def _create(
    client: SyncPrefectClient,
    one: Shipped,
    name: str,
    pool: str,
    parameters: dict[str, Any],
    schedules: list[DeploymentScheduleCreate],
) -> None:
    client.create_deployment(
        flow_id=client.create_flow_from_name(one.flow.name),
        name=name,
        description=one.description,
        tags=one.tags,
        work_pool_name=pool,
        parameters=parameters,
        schedules=schedules,
        enforce_parameter_schema=True,
        **one.code(),
    )


def _update(
    client: SyncPrefectClient, known: DeploymentResponse, change: dict[str, Any]
) -> list[str]:
    """Bring it up to date; returns why its parameters no longer fit, if they do not.

    Those are kept: their owner corrects them in the new form. Until then its runs fail and say why.
    """
    try:
        client.update_deployment(
            known.id, DeploymentUpdate(**change, enforce_parameter_schema=True)
        )
    except PrefectHTTPStatusError as error:
        if error.response.status_code != HTTPStatus.CONFLICT:
            raise
        client.update_deployment(
            known.id, DeploymentUpdate(**change, enforce_parameter_schema=False)
        )
        return [f"{known.name}: {error.response.json().get('detail', error)}"]
    return []
