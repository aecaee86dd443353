"""Weights handed from the trainer to the engine that samples its answers: bounded and checked.

A broadcast that one side never joins waits for ever, and an engine that was asleep may keep old
weights without a word (both have happened: huggingface/trl issues 2923, 5142 and 5312). So the
hand-over has a time limit after which the process dies with the stacks of its threads, and after it
a checksum of every tensor is compared on both sides.

The engine is an interface: anything that gives its tensors by name. vLLM's names and fused tensors
are translated by `expected_tensor`. Only the side of transformers has run where this was written;
vLLM needs a GPU.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CHUNK = 1 << 24  # elements whose products are in memory at once
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_MAY_BE_PADDED = ("embed_tokens.weight", "lm_head.weight")  # to a round number of rows

Tensors = Callable[[], Mapping[str, Any]]


class SyncError(RuntimeError):
    """The engine does not have the trainer's weights. Another attempt begins with fresh ones."""


class CheckedSync:
    """Called in place of an engine's own hand-over.

    `ours` is a context in which the trainer's tensors stand merged; `theirs` gives the engine's
    (None: it cannot be asked, and only the time is bounded).
    """

    def __init__(
        self,
        sync: Callable[[], None],
        ours: Callable[[], contextlib.AbstractContextManager[Mapping[str, Any]]],
        theirs: Tensors | None,
        *,
        timeout_s: float,
    ) -> None:
        self._sync = sync
        self._ours = ours
        self._theirs = theirs
        self._timeout_s = timeout_s
        self.compared = 0  # tensors, in the last hand-over

    def __call__(self) -> None:
        with time_limit(self._timeout_s):
            self._sync()
            if self._theirs is not None:
                with self._ours() as tensors:
                    self.compared = compare(tensors, self._theirs())


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End the process with exit code 1, and all its stacks on standard error, after `seconds`.

    A watchdog in C: a thread stuck in a collective holds the interpreter's lock, and no exception
    would reach it.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> int:
    """Compare every tensor of the engine; returns how many. Raises `SyncError` naming the first."""
    unknown = []
    compared = 0
    for name, have in theirs.items():
        want = expected_tensor(name, ours)
        if want is None:
            unknown.append(name)
            continue
        if name.endswith(_MAY_BE_PADDED):
            have = have[: want.shape[0]]
        if tuple(have.shape) != tuple(want.shape):
            raise SyncError(f"{name}: {tuple(have.shape)} in the engine, {tuple(want.shape)} here")
        if checksum(have) != checksum(want.to(have.dtype)):
            raise SyncError(f"{name}: the engine's weights are not the trainer's after the sync")
        compared += 1
    if unknown:
        raise SyncError(
            f"{len(unknown)} tensor(s) of the engine have no counterpart here, like {unknown[0]}: "
            "its names are not known; set rlvr.rollouts to transformers"
        )
    return compared


def expected_tensor(name: str, ours: Mapping[str, Any]) -> Any:
    """What the engine should hold under `name`, None when that cannot be told.

    vLLM joins the projections that read the same input, and a tied output is its input table.
    """
    if name in ours:
        return ours[name]
    for fused, parts in _FUSED.items():
        if f".{fused}." in name:
            found = [ours.get(name.replace(f".{fused}.", f".{part}.")) for part in parts]
            if any(tensor is None for tensor in found):
                return None
            import torch

            return torch.cat([tensor for tensor in found if tensor is not None])
    if name == "lm_head.weight":
        return ours.get("model.embed_tokens.weight")
    return None


def checksum(tensor: Any) -> int:
    """64 bits of a tensor's bits and their places, computed where the tensor lies.

    Integer arithmetic, so that a CPU and any GPU agree. Not against forgery.
    """
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    words = tensor.detach().contiguous().view(kinds[tensor.element_size()]).reshape(-1)
    total = 0
    for start in range(0, words.numel(), CHUNK):
        part = words[start : start + CHUNK].to(torch.int64)
        place = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
        # Odd factors: a changed word changes the sum (which wraps around at 64 bits).
        total += int(((part + 1) * (place * 0x9E3779B1 * 2 + 1)).sum().item())
    return total % (1 << 64)


@contextlib.contextmanager
def merged_weights(model: Any) -> Iterator[Mapping[str, Any]]:
    """The tensors of a transformers model by its own names, adapters merged meanwhile."""
    if not hasattr(model, "merge_adapter"):
        yield dict(model.named_parameters())
        return
    model.merge_adapter()
    try:
        whole = model.get_base_model()
        yield {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in whole.named_parameters()
            if ".lora_" not in name
        }
    finally:
        model.unmerge_adapter()


def check_vllm(trainer: Any, *, timeout_s: float) -> CheckedSync:
    """Put a checked hand-over in place of that of TRL's trainer; returns it.

    A colocated engine's tensors are read in this process. A server gives none away, so that there
    only the time is bounded.
    """
    generation = trainer.vllm_generation
    theirs = None
    if generation.mode == "colocate":

        def theirs() -> Mapping[str, Any]:
            worker = generation.llm.llm_engine.model_executor.driver_worker
            return dict(worker.model_runner.model.named_parameters())

    model = trainer.accelerator.unwrap_model(trainer.model)
    checked = CheckedSync(
        generation.sync_weights, lambda: merged_weights(model), theirs, timeout_s=timeout_s
    )
    generation.sync_weights = checked
    return checked
