"""Measured links between nodes in the place of a cluster's description.

    srun ... python -m training.cluster.health.bandwidth --save workspace/links.json
    links = read_links(Path("workspace/links.json"))
    links.require_recent(datetime.now(UTC))
    machine = with_links(machine, links)

The figure is that of the slowest node that was not named as slow, each by its median over its
partners, because a ring is as fast as its slowest link. It is what collectives reached, one GPU of
each node at a time, so that the planner takes no share of it off for their overhead. A measurement
of other GPUs, of fewer nodes than planned, or older than `MAX_AGE_DAYS` is refused: what it says of
these nodes now is not known.

Jobs measure as well, before they train (`training.cluster.link_check`): `kept_links` finds among
what they kept what suits a plan. Nobody asked for those, so what does not suit is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from training.planner.hardware import Machine, gpu_of_device
from workspace.config import describe_validation_error
from workspace.errors import UserError

MAX_AGE_DAYS: Final = 30
AGAIN: Final = (
    "measure again: srun --nodes N --ntasks-per-node 1 python -m "
    "training.cluster.health.bandwidth --save FILE"
)


class Links(BaseModel):
    """What `training.cluster.health.bandwidth.document` makes, as far as it is used here."""

    model_config = ConfigDict(frozen=True)
    origin: str = Field("", exclude=True, description="the file, for errors")
    measured: AwareDatetime
    devices: tuple[str, ...] = Field(description="GPUs of the nodes as the driver calls them")
    nodes: dict[str, float] = Field(min_length=2, description="GB/s, median over the partners")
    slow: tuple[str, ...] = ()

    @property
    def fabric_gbytes(self) -> float:
        """GB/s in one direction of a GPU to other nodes."""
        return min(speed for node, speed in self.nodes.items() if node not in self.slow)

    @property
    def day(self) -> str:
        return self.measured.astimezone(UTC).date().isoformat()

    def require_recent(self, today: datetime) -> None:
        """Raise `UserError` when what was measured may not hold any more."""
        age = today - self.measured
        if age > timedelta(days=MAX_AGE_DAYS):
            raise UserError(
                f"{self.origin}: links measured on {self.day}, {age.days} days ago (at most "
                f"{MAX_AGE_DAYS}): {AGAIN}, or remove the file"
            )
        if age < -timedelta(days=1):
            raise UserError(f"{self.origin}: links measured on {self.day}, which is yet to come")


def read_links(path: Path) -> Links:
    """A measurement. Raises `UserError` for a file that is missing or none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"measured links {path}: {error}") from error
    try:
        found = Links.model_validate_json(text)
    except ValidationError as error:
        raise UserError(
            f"{describe_validation_error(error, str(path))}\nNot a measurement of links: {AGAIN}"
        ) from error
    if not all(speed > 0 for speed in found.nodes.values()):
        raise UserError(f"{path}: nodes: a bandwidth must be above 0: {AGAIN}")
    return found.model_copy(update={"origin": str(path)})


def kept_links(folder: Path, gpu: str, nodes: int, today: datetime) -> Links | None:
    """Of the measurements in `folder`, the one of the fewest nodes that are at least `nodes`, with
    GPUs of the type `gpu`, not older than `MAX_AGE_DAYS`; None without such a one."""
    suiting = []
    for path in sorted(folder.glob("*-nodes.json")):
        links = read_links(path)
        types = {known.name if (known := gpu_of_device(name)) else name for name in links.devices}
        recent = today - links.measured <= timedelta(days=MAX_AGE_DAYS)
        if types == {gpu} and recent and len(links.nodes) >= nodes:
            suiting.append(links)
    return min(suiting, key=lambda links: len(links.nodes), default=None)


def with_links(machine: Machine, links: Links) -> Machine:
    """`machine` with the measured bandwidth between its nodes. Raises `UserError` for others'."""
    if not links.devices:
        raise UserError(f"{links.origin}: links were measured without GPUs: {AGAIN}")
    others = [name for name in links.devices if not _is(machine, name)]
    if others:
        raise UserError(
            f"{links.origin}: links were measured between {', '.join(others)}, not between nodes "
            f"of {machine.gpu.name}: {AGAIN}, or leave it out"
        )
    if len(links.nodes) < machine.nodes:
        raise UserError(
            f"{links.origin}: links were measured between {len(links.nodes)} nodes, fewer than the "
            f"{machine.nodes} of the plan, which may lie further apart: {AGAIN}, or leave it out"
        )
    return machine.model_copy(
        update={"fabric_gbytes": links.fabric_gbytes, "fabric_measured": links.day}
    )


def with_links_of_one(machines: Sequence[Machine], links: Links) -> list[Machine]:
    """Kinds of nodes, of which `links` were measured on one. Raises `UserError` when on none."""
    mine = [machine for machine in machines if any(_is(machine, name) for name in links.devices)]
    if not mine:
        with_links(machines[0], links)  # says why not
    return [with_links(one, links) if one in mine else one for one in machines]


def _is(machine: Machine, device: str) -> bool:
    gpu = gpu_of_device(device)
    return gpu is not None and gpu.name == machine.gpu.name
