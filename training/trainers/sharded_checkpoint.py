"""Checkpoints of a sharded model: each rank writes its part, any number of ranks can read them.

    checkpoint-<step>/__<r>_0.distcp, .metadata    weights and optimizer states (torch DCP)
                      rank-<r>.pt                  its generators: torch, CUDA, Python, numpy
                      complete.json                the rest, see `training.checkpoints`

The learning rate and the sample order are functions of the step, so the step is all that is kept of
them. An asynchronous save copies the rank's part in memory, and a thread writes it while training
goes on; at most one is pending.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from training import checkpoints
from training.ledger import Ledger
from training.trainers.ranks import Ranks
from training.trainers.resuming import newest_intact
from training.trainers.spec import TrainSpec
from workspace import disk_faults, publish
from workspace.errors import UserError

FORMAT = "dcp"


class Trained(NamedTuple):
    """What a checkpoint holds, beside the generators."""

    model: Any
    optimizer: Any

    def state(self) -> dict[str, Any]:
        """This rank's part, by the parameters' names."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def take(self, state: dict[str, Any]) -> None:
        """Set weights and optimizer states."""
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


class Saver:
    """Writes the checkpoints of one rank. All ranks make the same calls."""

    def __init__(self, spec: TrainSpec, ranks: Ranks, trained: Trained, ledger: Ledger) -> None:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self._spec, self._ranks = spec, ranks
        self._trained, self._ledger = trained, ledger
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=spec.use_gpu,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )

    def save(self, step: int, about: Mapping[str, Any], *, wait: bool) -> float:
        """Save `step`; return when it is published (`wait`), or copied: the seconds it took.

        Raises `UserError` when the disk is full or read-only, also for the save before.
        """
        begun = time.monotonic()
        self.finish()
        state, generators = self._trained.state(), read_generators(self._spec.use_gpu)
        if wait:
            self._write(step, state, generators, about)
        else:
            copy = self._stager.stage(state)
            self._pending = self._thread.submit(self._write, step, copy, generators, about)
        return time.monotonic() - begun

    def finish(self) -> None:
        """Wait for the pending save. Raises what it raised, on all ranks."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    @property
    def is_saving(self) -> bool:
        """Whether a save is being written beside the training."""
        return self._pending is not None and not self._pending.done()

    @property
    def has_failed(self) -> bool:
        """Whether the pending save is over and went wrong; `finish` tells how."""
        pending = self._pending
        return pending is not None and pending.done() and pending.exception() is not None

    def close(self) -> None:
        """Wait for what is pending, whatever becomes of it."""
        self._thread.shutdown(wait=True)
        self._stager.close()

    def _write(
        self,
        step: int,
        state: dict[str, Any],
        generators: dict[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        spec, ranks = self._spec, self._ranks
        unfinished = checkpoints.unfinished_folder(spec.checkpoints, spec.attempt)
        folder = unfinished / f"checkpoint-{step}"
        try:
            ranks.on_first(lambda: folder.mkdir(parents=True, exist_ok=True))
            self._write_state(folder, state)
            hashes = ranks.together(lambda: self._write_own(folder, generators))
            known = {name: digest for part in hashes for name, digest in part.items()}
            ranks.on_first(lambda: self._publish(folder, step, known, about))
        # DCP's own error, which carries those of the ranks, is no Exception.
        except BaseException as error:
            fault = disk_faults.explain(error, folder, checkpoints.AGAIN)
            if fault is not None:
                raise fault from error
            # A newer attempt takes the folder away, in the middle of a save as well.
            checkpoints.require_current(spec.attempt_dir.parent, spec.attempt)
            raise

    def _write_state(self, folder: Path, state: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(
            state,
            storage_writer=dcp.FileSystemWriter(folder, sync_files=True),
            process_group=self._ranks.talk,
        )

    def _write_own(self, folder: Path, generators: dict[str, Any]) -> dict[str, str]:
        """Write this rank's generators; hash its files and put its ledger on the disk."""
        import torch

        rank = self._ranks.rank
        path = folder / _generators_name(rank)
        torch.save(generators, path)
        publish.fsync(path)
        self._ledger.flush()
        own = [*folder.glob(f"__{rank}_*.distcp"), path]
        if self._ranks.is_first:
            own.append(folder / ".metadata")
        return {file.name: checkpoints.hash_file(file) for file in own}

    def _publish(
        self, folder: Path, step: int, hashes: dict[str, str], about: Mapping[str, Any]
    ) -> None:
        spec = self._spec
        checkpoints.complete(
            folder,
            step=step,
            attempt=spec.attempt,
            world_size=self._ranks.world_size,
            attempts=spec.attempt_dir.parent,
            hashes=hashes,
            about={**about, "format": FORMAT},
        )
        checkpoints.prune(spec.checkpoints, keep=spec.keep_checkpoints, attempt=spec.attempt)


def resume(
    spec: TrainSpec, ranks: Ranks, trained: Trained, origin: Mapping[str, Any]
) -> checkpoints.Checkpoint | None:
    """Load the newest complete checkpoint that is intact; None when there is none.

    Raises `UserError` when its manifest differs from `origin`: the samples are others now.
    """
    expected = {"format": FORMAT, **origin}
    found = newest_intact(spec, ranks, lambda one: _require_origin(one, spec, expected))
    if found is not None:
        _load(found, spec, ranks, trained)
    return found


def _require_origin(
    found: checkpoints.Checkpoint, spec: TrainSpec, expected: Mapping[str, Any]
) -> None:
    manifest = found.manifest()
    changed = [name for name, value in expected.items() if manifest.get(name) != value]
    if changed:
        raise UserError(
            f"{found.path} was made by another trainer, or of other data or settings "
            f"({', '.join(changed)} changed): set them back, or remove {spec.checkpoints} to begin "
            "the stage again"
        )


def _load(found: checkpoints.Checkpoint, spec: TrainSpec, ranks: Ranks, trained: Trained) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    state = trained.state()
    dcp.load(state, storage_reader=dcp.FileSystemReader(found.path), process_group=ranks.talk)
    trained.take(state)
    path = found.path / _generators_name(ranks.rank)
    if path.exists():
        set_generators(torch.load(path, weights_only=True), spec.use_gpu)
    else:
        # More ranks than before: those without a past get a generator that nobody else has.
        seed_generators(spec.seed + found.step * 1_000_003 + ranks.rank)


def _generators_name(rank: int) -> str:
    return f"rank-{rank:04d}.pt"


def seed_generators(seed: int) -> None:
    """Seed every generator that a model may draw from."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # CUDA's as well


def read_generators(use_gpu: bool) -> dict[str, Any]:
    """The states of this process's generators, in types that `torch.load` takes as plain data."""
    import numpy
    import torch

    state: Any = numpy.random.get_state()
    name, keys, *rest = state
    states = {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
    }
    if use_gpu:
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_generators(states: dict[str, Any], use_gpu: bool) -> None:
    """Undo `read_generators`."""
    import numpy
    import torch

    version, inner, following = states["python"]
    random.setstate((version, tuple(inner), following))
    numpy.random.set_state(tuple(states["numpy"]))
    torch.set_rng_state(states["torch"])
    if use_gpu:
        torch.cuda.set_rng_state(states["cuda"])
