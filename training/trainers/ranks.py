"""This process among the ranks of its job, and agreement between them.

`start` reads what torchrun or the node agent put into the environment; a single process needs
neither. `joined` is for a trainer that has made its group itself. Imports torch; call it inside a
trainer process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

Result = TypeVar("Result")
_PATIENCE = timedelta(hours=12)


@dataclass(frozen=True)
class Ranks:
    """`talk` is a group of its own for objects and checkpoints: they may be written by another
    thread while the ranks train, and two threads in one gloo group break its connections."""

    rank: int
    world_size: int
    device: Any  # torch.device
    talk: Any  # gloo process group

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def gather(self, value: Result) -> list[Result]:
        """Everybody's value, in order of rank."""
        import torch.distributed as dist

        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self.talk)
        return gathered

    def together(self, work: Callable[[], Result]) -> list[Result]:
        """Everybody's result of `work`; an error of any rank is raised on all of them."""
        try:
            outcome: tuple[Any, BaseException | None] = (work(), None)
        except Exception as error:
            outcome = (None, _portable(error))
        outcomes = self.gather(outcome)
        for _, failed in outcomes:
            if failed is not None:
                raise failed
        return [result for result, _ in outcomes]

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Rank 0's result of `work`, which the others wait for."""
        return self.together(lambda: work() if self.is_first else None)[0]  # type: ignore[return-value]


def start(*, use_gpu: bool) -> Ranks:
    """Join the job's ranks."""
    import torch
    import torch.distributed as dist

    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if use_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    alone = {} if world_size > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("cpu:gloo,cuda:nccl" if use_gpu else "gloo", **alone)
    # One rank may prepare data for hours; a dead one is noticed by its closed connection.
    return Ranks(rank, world_size, device, dist.new_group(backend="gloo", timeout=_PATIENCE))


def joined() -> Ranks:
    """This process in the group that a trainer has made; alone where there is none.

    All ranks must call it. Its tensors, if any, are on the CPU.
    """
    import torch
    import torch.distributed as dist

    cpu = torch.device("cpu")
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks(0, 1, cpu, None)
    talk = dist.new_group(backend="gloo", timeout=_PATIENCE)
    return Ranks(dist.get_rank(), dist.get_world_size(), cpu, talk)


def make_deterministic(*, use_gpu: bool) -> None:
    """The same operations in the same order give the same bits, on the same kind of machine."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Some CUDA kernels have no such form; on CPUs every kernel that a model needs has one.
    torch.use_deterministic_algorithms(True, warn_only=use_gpu)
    # It would also fill every new buffer of gathered weights; each is written before it is read.
    torch.utils.deterministic.fill_uninitialized_memory = False


def _portable(error: Exception) -> Exception:
    """An error that can be sent to other ranks."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
