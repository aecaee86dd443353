"""What a device costs."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from workspace import publish
from workspace.config import StageConfig, setting
from workspace.errors import CorruptWorkspaceError

PRICES_NAME = "prices.json"


class PriceTable(StageConfig):
    """Prices of an hour, as a YAML file or as `prices` of a training's configuration:

        currency: USD
        per_gpu_hour: 2.0          # of a type that is not listed
        by_gpu: {h100: 2.5}        # by the type in the job's gres, gpu:h100:8
        per_cpu_hour: 0.04         # of a core, for jobs without GPUs

    Nodes are paid while a job holds them, spares and stalls included; the queue costs nothing.
    """

    currency: str = setting(
        "USD", position=1, min_length=1, max_length=8, description="shown beside amounts",
        affects_output=False,
    )  # fmt: skip
    per_gpu_hour: float = setting(
        0.0, position=2, ge=0, description="of a GPU that by_gpu does not list",
        affects_output=False,
    )  # fmt: skip
    by_gpu: dict[str, float] = setting(
        {}, position=3, description="of a GPU, by the type in the job's gres", affects_output=False
    )
    per_cpu_hour: float = setting(
        0.0, position=4, ge=0, description="of a core, for jobs without GPUs",
        affects_output=False,
    )  # fmt: skip

    def per_hour(self, gpu: str | None) -> float:
        """Of one device: `gpu` is its type, "" for an unknown one, None for a CPU core."""
        if gpu is None:
            return self.per_cpu_hour
        return self.by_gpu.get(gpu, self.per_gpu_hour)


def write_prices(run: Path, prices: PriceTable) -> None:
    """Keep the prices that a run was started with in its folder; none when there are none."""
    if prices != PriceTable():
        publish.write_text(run / PRICES_NAME, prices.model_dump_json(indent=2) + "\n")


def read_prices(run: Path) -> PriceTable | None:
    """The prices that the run in folder `run` was started with, if any."""
    path = run / PRICES_NAME
    try:
        return PriceTable.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise CorruptWorkspaceError(f"{path}: {error}") from error
