"""Weights handed from the trainer to the engine that samples its answers: bounded and checked.

A broadcast that one side never joins waits for ever, and an engine that was asleep may keep old
weights without a word (both have happened: huggingface/trl issues 2923, 5142 and 5312). So the
hand-over has a time limit after which the process dies with the stacks of its threads; every tensor
is summed on its way out, and the engine's tensors are held against these sums.

Adapters are merged outside of the model, one weight at a time: TRL adds them to the frozen weights
in place and takes them off again, which in 16 bits leaves other weights than there were.

The engine is an interface: anything that gives its tensors by name. vLLM's names and fused tensors
are translated by `expected`. Only the side of transformers and TRL has run where this was written;
vLLM needs a GPU.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from workspace.errors import UserError

CHUNK = 1 << 24  # elements whose products are in memory at once
_STRIDE = 2 * 0x9E3779B1  # between the factors of neighbouring words
_WRAP = 1 << 64
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_MAY_BE_PADDED = ("embed_tokens.weight", "lm_head.weight")  # to a round number of rows

NamedTensors = Iterable[tuple[str, Any]]
Tensors = Callable[[], Mapping[str, Any]]


class SyncError(RuntimeError):
    """The engine does not have the trainer's weights. Another attempt begins with fresh ones."""


class Checksum(NamedTuple):
    """Of a tensor's bits and their places. Not against forgery."""

    weighted: int  # words times a factor of their place, modulo 2 ** 64
    plain: int  # words, modulo 2 ** 64
    words: int

    def then(self, other: Checksum) -> Checksum:
        """Of this tensor with `other` after it."""
        moved = other.weighted + self.words * _STRIDE * other.plain
        return Checksum(
            (self.weighted + moved) % _WRAP,
            (self.plain + other.plain) % _WRAP,
            self.words + other.words,
        )


class Handed(NamedTuple):
    """A tensor that was handed over. `sums`: by the types of number that the engine has."""

    shape: tuple[int, ...]
    sums: dict[Any, Checksum]

    def then(self, other: Handed) -> Handed:
        """This tensor with the rows of `other` after it."""
        shape = (self.shape[0] + other.shape[0], *self.shape[1:])
        return Handed(shape, {kind: self.sums[kind].then(other.sums[kind]) for kind in self.sums})


class CheckedSync:
    """Called in place of an engine's own hand-over.

    What `sync` hands over must go through `watched` of this object; `theirs` gives the engine's
    tensors.
    """

    def __init__(self, sync: Callable[[], None], theirs: Tensors, *, timeout_s: float) -> None:
        self._sync = sync
        self._theirs = theirs
        self._timeout_s = timeout_s
        self._kinds: set[Any] = set()
        self._handed: dict[str, Handed] = {}
        self.compared = 0  # tensors of the engine, in the last hand-over

    def __call__(self) -> None:
        with time_limit(self._timeout_s):
            self._kinds = {tensor.dtype for tensor in self._theirs().values()}
            self._handed = {}
            self._sync()
            self.compared = compare(self._handed, self._theirs())

    def watched(self, tensors: NamedTensors) -> Iterator[tuple[str, Any]]:
        """The same tensors, each summed as it passes."""
        for name, tensor in tensors:
            self._handed[name] = handed(tensor, self._kinds)
            yield name, tensor


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


def compare(ours: Mapping[str, Handed], theirs: Mapping[str, Any]) -> int:
    """Compare every tensor of both sides; returns how many the engine has.

    Raises `SyncError` naming the first that differs, or that only one side knows.
    """
    seen: set[str] = set()
    unknown = []
    for name, have in theirs.items():
        parts = parts_of(name, ours)
        if not parts:
            unknown.append(name)
            continue
        seen.update(parts)
        want = expected(parts, ours)
        if name.endswith(_MAY_BE_PADDED):
            have = have[: want.shape[0]]
        if tuple(have.shape) != want.shape:
            raise SyncError(f"{name}: {tuple(have.shape)} in the engine, {want.shape} here")
        if checksum(have) != want.sums.get(have.dtype):
            raise SyncError(f"{name}: the engine's weights are not the trainer's after the sync")
    if unknown:
        raise SyncError(
            f"{len(unknown)} tensor(s) of the engine have no counterpart here, like {unknown[0]}: "
            "its names are not known; set rlvr.rollouts to transformers"
        )
    missing = [name for name in ours if name not in seen]
    if missing or not theirs:
        raise SyncError(
            f"{len(missing)} tensor(s) handed over are not in the engine"
            + (f", like {missing[0]}" if missing else ", which gives none")
        )
    return len(theirs)


def parts_of(name: str, ours: Mapping[str, Handed]) -> tuple[str, ...]:
    """Names of our tensors that the engine holds, joined, under `name`; none when not known.

    vLLM joins the projections that read the same input, and a tied output is its input table.
    """
    if name in ours:
        return (name,)
    for fused, parts in _FUSED.items():
        if f".{fused}." in name:
            found = tuple(name.replace(f".{fused}.", f".{part}.") for part in parts)
            return found if all(part in ours for part in found) else ()
    table = "model.embed_tokens.weight"
    return (table,) if name == "lm_head.weight" and table in ours else ()


def expected(parts: tuple[str, ...], ours: Mapping[str, Handed]) -> Handed:
    """What the engine should hold of `parts`, one after the other."""
    whole, *rest = [ours[part] for part in parts]
    for part in rest:
        whole = whole.then(part)
    return whole


def handed(tensor: Any, kinds: Iterable[Any]) -> Handed:
    """What `compare` needs to know of a tensor; `kinds`: the engine's types of number."""
    # A tensor is converted as the engine's copy of it is.
    return Handed(tuple(tensor.shape), {kind: checksum(tensor.to(kind)) for kind in kinds})


def checksum(tensor: Any) -> Checksum:
    """Computed where the tensor lies, in integers, so that a CPU and any GPU agree."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    words = tensor.detach().contiguous().view(kinds[tensor.element_size()]).reshape(-1)
    weighted = plain = 0
    for start in range(0, words.numel(), CHUNK):
        part = words[start : start + CHUNK].to(torch.int64) + 1
        place = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
        # Odd factors: a changed word changes the sum (which wraps around at 64 bits).
        weighted += int((part * (place * _STRIDE + 1)).sum().item())
        plain += int(part.sum().item())
    return Checksum(weighted % _WRAP, plain % _WRAP, words.numel())


def merged_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights of a model with adapters, merged, by the names that it has without them.

    One at a time, and none is written to: the frozen weights stay the bits that were read.
    """
    from peft.tuners.lora import LoraLayer

    whole = model.get_base_model()
    adapted = {
        f"{name}.base_layer.weight": module
        for name, module in whole.named_modules()
        if isinstance(module, LoraLayer)
    }
    for name, tensor in whole.named_parameters():
        if ".lora_" in name:
            continue
        layer = adapted.get(name)
        merged = tensor.data if layer is None else _merged(tensor.data, layer)
        yield name.replace(".base_layer.", "."), merged


def _merged(weight: Any, layer: Any) -> Any:
    """As PEFT merges, but for the place: the sum in the wider type, then in the weight's own."""
    import torch

    with torch.no_grad():
        for adapter in layer.active_adapters:
            weight = (weight + layer.get_delta_weight(adapter)).to(weight.dtype)
    return weight


def check_vllm(trainer: Any, *, timeout_s: float) -> CheckedSync:
    """Put a checked hand-over in place of that of TRL's trainer; returns it.

    Raises `UserError` for an engine whose tensors cannot be read in this process, `RuntimeError`
    when this release of TRL hands its weights over elsewhere.
    """
    generation = trainer.vllm_generation
    if generation.mode != "colocate":
        raise UserError(
            f"vLLM as a {generation.mode} gives none of its weights away, so that they cannot be "
            "held against the trainer's: only a colocated engine is used"
        )
    if not hasattr(generation, "_iter_named_params"):
        raise RuntimeError("this release of TRL hands its weights to vLLM elsewhere")

    def theirs() -> Mapping[str, Any]:
        worker = generation.llm.llm_engine.model_executor.driver_worker
        return dict(worker.model_runner.model.named_parameters())

    model = trainer.accelerator.unwrap_model(trainer.model)
    adapted = hasattr(model, "merge_adapter")
    ours = partial(merged_parameters, model) if adapted else generation._iter_named_params
    checked = CheckedSync(generation.sync_weights, theirs, timeout_s=timeout_s)
    generation._iter_named_params = lambda: checked.watched(ours())
    generation.sync_weights = checked
    return checked
