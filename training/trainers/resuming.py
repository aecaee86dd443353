"""Which checkpoint an attempt goes on from: the newest complete one whose bytes are as written."""

from __future__ import annotations

from collections.abc import Callable

from training import checkpoints
from training.trainers.ranks import Ranks
from training.trainers.spec import TrainSpec


def newest_intact(
    spec: TrainSpec, ranks: Ranks, check: Callable[[checkpoints.Checkpoint], None] | None = None
) -> checkpoints.Checkpoint | None:
    """The checkpoint to load, the same on all ranks; None when there is none. All must call it.

    Rank 0 first removes what broken saves left, before they fill the disk. A checkpoint whose
    content changed on the disk is set aside, and the one before is taken. `check` is asked on rank
    0 before a checkpoint is read, and raises for one that may not be gone on from.
    """
    while (found := ranks.on_first(lambda: _newest(spec, check))) is not None:
        damaged = _damaged(found, ranks)
        if not damaged:
            return found
        if ranks.is_first:
            print(f"{found.path} is damaged ({', '.join(damaged)}): set aside", flush=True)
            checkpoints.set_aside(found)
    return None


def _newest(
    spec: TrainSpec, check: Callable[[checkpoints.Checkpoint], None] | None
) -> checkpoints.Checkpoint | None:
    checkpoints.prune(spec.checkpoints, keep=spec.keep_checkpoints, attempt=spec.attempt)
    found = checkpoints.newest_complete(spec.checkpoints)
    if found is not None and check is not None:
        check(found)
    return found


def _damaged(found: checkpoints.Checkpoint, ranks: Ranks) -> list[str]:
    """Files whose content changed since they were written; each rank reads some of them."""
    names = sorted(found.manifest()["sha256"])[ranks.rank :: ranks.world_size]
    parts = ranks.together(lambda: checkpoints.damaged_files(found, names))
    return [name for part in parts for name in part]
