"""How a trainer learns that it should stop, and how all ranks agree on the step.

Sources: the launcher's file (`training.cluster.job.STOP_FILE`) seen by rank 0, SIGTERM or SIGUSR2
to any rank, and a rank itself, whose memory fills up. Ranks compare flags after every step, so all
of them checkpoint the same one.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from training.cluster.job import STOP_FILE


class StopRequest:
    """Create early: a signal that arrives during imports is then remembered, not deadly."""

    def __init__(self, attempt_dir: Path) -> None:
        self._file = attempt_dir / STOP_FILE
        self._signalled = False

    def listen(self) -> None:
        """Install the signal handlers (main thread only)."""
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, self._on_signal)

    def request(self) -> None:
        """Ask from inside this process."""
        self._signalled = True

    def seen_here(self) -> bool:
        """Whether this rank knows of a request."""
        return self._signalled or self._file.exists()

    def agreed(self) -> bool:
        """Whether any rank knows of one. All ranks must call it at the same step."""
        return any_rank(self.seen_here())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True


def any_rank(flag: bool) -> bool:
    """Whether `flag` is set on any rank. All ranks must call it at the same step."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return flag
    value = _on_device(float(flag))
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return bool(value.item())


def of_rank_zero(number: float) -> float:
    """Rank 0's number, on every rank. All ranks must call it at the same step."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return number
    value = _on_device(number)
    dist.broadcast(value, src=0)
    return float(value.item())


def _on_device(number: float) -> Any:
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return torch.tensor([number], dtype=torch.float64, device=device)
