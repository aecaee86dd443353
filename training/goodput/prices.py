"""What a device costs."""

from __future__ import annotations

from pydantic import Field

from workspace.config import StageConfig


class PriceTable(StageConfig):
    """Prices of an hour, as a YAML file:

        currency: USD
        per_gpu_hour: 2.0          # of a type that is not listed
        by_gpu: {h100: 2.5}        # by the type in the job's gres, gpu:h100:8
        per_cpu_hour: 0.04         # of a core, for jobs without GPUs

    Nodes are paid while a job holds them, spares and stalls included; the queue costs nothing.
    """

    currency: str = Field("USD", min_length=1, max_length=8)
    per_gpu_hour: float = Field(0.0, ge=0, description="of a GPU that `by_gpu` does not list")
    by_gpu: dict[str, float] = Field({}, description="by the type in the job's gres")
    per_cpu_hour: float = Field(0.0, ge=0, description="of a core, for jobs without GPUs")

    def per_hour(self, gpu: str | None) -> float:
        """Of one device: `gpu` is its type, "" for an unknown one, None for a CPU core."""
        if gpu is None:
            return self.per_cpu_hour
        return self.by_gpu.get(gpu, self.per_gpu_hour)
