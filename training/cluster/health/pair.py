"""One node's part of all-reduces between two: what a node agent starts for `link_check`.

    python -m training.cluster.health.pair

In: a `Task` as a line of JSON for each. Out, a line of JSON for each:
`{"gbytes": 21.5, "device": "NVIDIA H100 80GB HBM3"}`, or `{"unseen": why}` where this node cannot
take part in the first place (no torch, no GPU), which says nothing of the link, or `{"dead": why}`
when the two did not meet or the exchange failed.

Over NCCL with the node's first GPU, over gloo without, each with the interfaces that the ranks use
(`NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME`).
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from training.cluster.health.bandwidth import time_all_reduce


class Task(BaseModel):
    """`address` and `port` are where rank 0 listens for rank 1."""

    model_config = ConfigDict(frozen=True)
    rank: int
    address: str
    port: int
    gpu: bool
    mib: int
    repeats: int
    timeout_s: float


def exchange(task: Task) -> dict[str, Any]:
    """Meet the other node and measure; the line to print."""
    try:
        import torch
        import torch.distributed as dist

        if task.gpu:
            torch.cuda.set_device(0)
        device = torch.cuda.get_device_name() if task.gpu else ""
        data = torch.ones(task.mib << 18, device="cuda" if task.gpu else "cpu")
    except Exception as error:  # whatever it is, the link has not been tried
        return {"unseen": f"{type(error).__name__}: {error}"[:300]}
    try:
        dist.init_process_group(
            "nccl" if task.gpu else "gloo",
            init_method=f"tcp://{task.address}:{task.port}",
            rank=task.rank,
            world_size=2,
            timeout=timedelta(seconds=task.timeout_s),
        )
        seconds = time_all_reduce(data, None, task.repeats, task.gpu)
        dist.destroy_process_group()
    except (RuntimeError, OSError, ValueError) as error:
        return {"dead": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    return {"gbytes": data.nbytes / seconds / 1e9, "device": device}


def main() -> None:
    """Answer until there are no more tasks."""
    for line in sys.stdin:
        print(json.dumps(exchange(Task.model_validate_json(line))), flush=True)


if __name__ == "__main__":
    main()
