"""Published training runs as the planner's inputs: one CSV row -> what ran, and what was measured.

    table = read_runs(Path("published_runs.csv"))
    table.runs          # rows that say enough, as jobs, layouts and machines
    table.unjudged      # all others, each with its line and the reason

Columns that a row leaves empty are filled with the plainest reading, which `Run.assumed` names:
one micro-batch a step, no accumulation, the lightest activation checkpointing and the plainest
optimizer that fit the GPU's memory.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from training.planner.hardware import Gpu, Machine, find_gpu
from training.planner.layout import (
    Arithmetic,
    AttentionKernel,
    Checkpointing,
    Job,
    Layout,
    Method,
    Sharding,
)
from training.planner.shape import ModelShape, named_shape
from training.planner.software import Habits, habits_of
from training.planner.unstated import fill_in
from workspace.errors import UserError

ChoiceT = TypeVar("ChoiceT")

COLUMNS: Final = (
    "source", "model", "params", "gpus", "gpu_type", "seq_len", "global_batch", "micro_batch",
    "tp", "pp", "dp", "cp", "zero_stage_or_fsdp", "precision", "activation_ckpt",
    "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_mem_gib",
)  # fmt: skip
_OPTIONAL: Final = ("nodes", "interconnect", "ep", "vp", "stage", "notes", "url")
_LARGEST_FILE_BYTES: Final = 64 << 20
_LARGEST: Final = 1e15
_USUAL_VOCAB: Final = 51_200
_OVER_MEMORY: Final = 1.1  # tables print GB for GiB
_OVER_PEAK: Final = 1.5  # PaLM's formula counts both halves of causal attention
_SHARDING: Final[tuple[tuple[str, Sharding], ...]] = (
    (r"full.?shard|zero-?3|^fsdp2?$|hsdp", "zero3"),
    (r"shard.?grad|zero-?2|grads sharded", "zero2"),
    (r"zero-?1|distributed optimizer|param-gather", "zero1"),
    (r"^$|none|zero-?0|ddp", "none"),
)
_ARITHMETIC: Final[tuple[tuple[str, Arithmetic], ...]] = (
    (r"row.?wise", "bf16"),  # scaled by rows, Hopper's 8-bit products gain next to nothing
    (r"nvfp4|fp4", "nvfp4"),
    (r"mxfp8", "mxfp8"),
    (r"fp8|float8", "fp8"),
    (r"^$|bf16|fp16|bfloat16|16", "bf16"),
    (r"fp32|float32|tf32", "fp32"),
)
_WHOLE_LOOP: Final = re.compile(r"(?i)^rl (grpo|swe|ppo|dapo)|end-to-end rl")


class Unjudged(NamedTuple):
    """A row that cannot be compared."""

    line: int
    source: str
    model: str
    reason: str


@dataclass(frozen=True)
class Run:
    """A published run."""

    line: int
    source: str
    model: str
    shape: ModelShape
    job: Job
    layout: Layout
    machine: Machine
    tokens_per_second_per_gpu: float | None
    peak_gib: float | None
    url: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def is_sixteen_bit(self) -> bool:
        return self.job.arithmetic == "bf16"


@dataclass
class RunTable:
    """A read table; every row is in one of the two lists."""

    runs: list[Run] = field(default_factory=list)
    unjudged: list[Unjudged] = field(default_factory=list)


class _RowError(Exception):
    """Why a row cannot be judged."""


def read_runs(path: Path) -> RunTable:
    """Read a table. Raises `UserError` when it is missing, no CSV, or lacks columns."""
    table = RunTable()
    for line, row in _rows(path):
        source, model = row["source"].strip(), row["model"].strip()
        try:
            table.runs.append(_run(line, row))
        except _RowError as error:
            table.unjudged.append(Unjudged(line, source, model, str(error)))
    return table


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise UserError(f"{path} is larger than 64 MiB: not a table of runs")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = header
        if not header:
            raise UserError(f"{path} is empty: its first line has to name the columns")
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise UserError(f"{path}: the header lacks {', '.join(missing)}")
        for row in reader:
            names = (*COLUMNS, *_OPTIONAL)
            yield reader.line_num, {name: (row.get(name) or "").strip() for name in names}
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not CSV: {error}") from error


def _run(line: int, row: dict[str, str]) -> Run:
    if _WHOLE_LOOP.search(row["stage"]) or "end-to-end rl" in row["notes"].lower():
        raise _RowError("its figure is of a whole reinforcement-learning loop, not of the trainer")
    if "cumulative" in row["notes"].lower():
        raise _RowError("its settings depend on the rows before it and are not stated in it")
    gpu = _gpu(row)
    gpus = _whole(row, "gpus")
    shape = _shape(row)
    assumed: list[str] = []
    layout = _layout(row, gpus, shape.layers, assumed)
    job, layout = _job(row, layout, assumed)
    machine = _machine(row, gpu, gpus)
    run = Run(
        line=line,
        source=row["source"],
        model=row["model"],
        shape=shape,
        job=job,
        layout=layout,
        machine=machine,
        tokens_per_second_per_gpu=_throughput(row, shape, job, gpu),
        peak_gib=_number(row, "peak_mem_gib"),
        url=row["url"],
    )
    if run.tokens_per_second_per_gpu is None and run.peak_gib is None:
        raise _RowError("it has neither a throughput nor a peak memory")
    _require_possible(run)
    job, layout = fill_in(run, row, assumed)
    return replace(run, job=job, layout=layout, assumed=tuple(assumed))


def _require_possible(run: Run) -> None:
    """Refuse figures in another unit than their column's: no GPU can have reached them."""
    gpu, job = run.machine.gpu, run.job
    if run.peak_gib and run.peak_gib > _OVER_MEMORY * gpu.memory_gib:
        raise _RowError(f"peak_mem_gib {run.peak_gib:g} is more than the GPU has")
    if run.tokens_per_second_per_gpu is None:
        return
    flops = run.shape.model_flops_per_token(job.seq_len, frozen=job.method != "full")
    if run.tokens_per_second_per_gpu * flops > _OVER_PEAK * 1e12 * max(gpu.tflops.values()):
        raise _RowError(
            f"{run.tokens_per_second_per_gpu:g} tokens/s are more than the GPU can compute"
        )


def _number(row: dict[str, str], name: str) -> float | None:
    text = row[name]
    if not text or text.lower() in ("nan", "none", "n/a"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise _RowError(f"{name} is no number: {text[:40]!r}") from None
    if not 0 < value < _LARGEST:
        raise _RowError(f"{name} is out of range: {text[:40]!r}")
    return value


def _count(row: dict[str, str], name: str) -> int | None:
    value = _number(row, name)
    if value is None:
        return None
    if value != int(value):
        raise _RowError(f"{name} is no whole number: {row[name][:40]!r}")
    return int(value)


def _whole(row: dict[str, str], name: str) -> int:
    value = _count(row, name)
    if value is None:
        raise _RowError(f"{name} is not stated")
    return value


def _gpu(row: dict[str, str]) -> Gpu:
    try:
        return find_gpu(row["gpu_type"].partition("/")[0])
    except UserError:
        raise _RowError(f"GPU {row['gpu_type'][:40]!r} is not in gpus.yaml") from None


def _shape(row: dict[str, str]) -> ModelShape:
    shape = named_shape(row["model"])
    if shape is not None:
        if shape.positions:
            # Learned positions are as many as the sequence is long.
            return shape.model_copy(update={"positions": _whole(row, "seq_len")})
        return shape
    size = _number(row, "params")
    if size is None:
        raise _RowError("the model's shape is not known and its parameters are not stated")
    if re.search(r"(?i)\bmoe\b|a\d+(\.\d+)?b\b|\dx\d+b", f"{row['model']} {row['notes']}"):
        raise _RowError("a mixture of experts whose shape is not known")
    vocab = re.search(r"\bvocab(?:ulary)? (\d{3,7})\b", row["notes"])
    return usual_shape(
        row["model"],
        size,
        vocab=int(vocab[1]) if vocab else _USUAL_VOCAB,
        stages=_count(row, "pp") or 1,
    )


def usual_shape(
    name: str, parameters: float, *, vocab: int = _USUAL_VOCAB, stages: int = 1
) -> ModelShape:
    """A dense GPT of that size with hidden = 128 · layers, as published ones nearly have.

    From N = 12 · layers · hidden² (the 175 B model has 96 layers of 12,288). Layers are shared
    evenly by the `stages` of a pipeline, without which it would wait for the fullest.
    """
    hidden = max(128, 128 * round((parameters * 128 / 12) ** (1 / 3) / 128))
    layers = max(1, round((parameters - vocab * hidden) / (12 * hidden**2 * stages))) * stages
    if layers > 2000 or hidden > 1 << 17:
        raise _RowError(f"{parameters:.3g} parameters are more than any dense model has")
    return ModelShape(
        name=name or "model",
        layers=layers,
        hidden=hidden,
        heads=hidden // 128,
        kv_heads=hidden // 128,
        head_dim=128,
        ffn=4 * hidden,
        vocab=vocab,
        gated=False,
        tied=True,
    )


def _layout(row: dict[str, str], gpus: int, layers: int, assumed: list[str]) -> Layout:
    sizes = {name: _count(row, name) for name in ("tp", "pp", "cp", "dp", "ep", "vp")}
    if sizes["vp"] is None and "interleaved" in row["notes"].lower():
        sizes["vp"] = 2
    elif sizes["vp"] is None and habits_of(row["source"]).interleaved:
        pieces = sizes["vp"] = _pieces(layers, sizes["pp"] or 1)
        if pieces > 1:
            assumed.append(f"interleaved in {pieces} pieces a stage")
    if sizes["tp"] is None and sizes["dp"] is None and gpus > 1:
        raise _RowError("its layout (tp, pp, dp) is not stated")
    tp, pp, cp = (sizes[name] or 1 for name in ("tp", "pp", "cp"))
    dp = sizes["dp"] or max(1, gpus // (tp * pp * cp))
    if dp * tp * pp * cp != gpus:
        raise _RowError(f"dp {dp} x tp {tp} x pp {pp} x cp {cp} is not its {gpus} GPUs")
    micro = _count(row, "micro_batch")
    return Layout(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=sizes["ep"] or 1,
        virtual_stages=sizes["vp"] or 1,
        micro_batch=micro or 1,
        sharding=_first(row["zero_stage_or_fsdp"], _SHARDING, "sharding"),
        checkpointing=_checkpointing(row["activation_ckpt"], habits_of(row["source"])),
    )


def _pieces(layers: int, stages: int) -> int:
    """Pieces of a pipeline stage that an interleaved schedule runs in turn: equal ones, of two
    layers or more.

    A stage with the embedding or the output layer has a layer less (Llama 3: 126 layers are 16
    stages of 8), so that the others' number counts.
    """
    if stages == 1:
        return 1
    held = math.ceil(layers / stages)
    return max(n for n in range(1, 5) if n == 1 or (held % n == 0 and held >= 2 * n))


def _first(text: str, choices: tuple[tuple[str, ChoiceT], ...], what: str) -> ChoiceT:
    text = text.strip().lower()
    for pattern, value in choices:
        if re.search(pattern, text):
            return value
    raise _RowError(f"{what} {text[:40]!r} is not understood")


def _checkpointing(text: str, habits: Habits) -> Checkpointing:
    text = text.lower()
    if not text:
        return habits.checkpointing
    if re.search(r"selective|\bop\b", text):
        # What is meant by it is the software's choice.
        return "alternate" if habits.checkpointing == "alternate" else "selective"
    if "offload" in text:
        return "offload"
    return "full" if re.search(r"full|recompute|true", text) else "none"


def _job(row: dict[str, str], layout: Layout, assumed: list[str]) -> tuple[Job, Layout]:
    seq_len = _count(row, "seq_len") or habits_of(row["source"]).seq_len
    if seq_len is None:
        raise _RowError("seq_len is not stated")
    if not row["seq_len"]:
        assumed.append(f"sequences of {seq_len}, the software's usual ones")
    if seq_len > 1 << 24:
        raise _RowError(f"seq_len {seq_len} is out of range")
    stage = row["stage"].lower()
    method: Method = "qlora" if "qlora" in stage else "lora" if "lora" in stage else "full"
    rank = re.search(r"r=(\d{1,4})\b", stage)
    job = Job(
        seq_len=seq_len,
        global_batch=_batch(row, layout, seq_len, assumed),
        arithmetic=_first(row["precision"], _ARITHMETIC, "precision"),
        method=method,
        lora_rank=int(rank[1]) if rank else 16,
        attention=_attention(row),
        # A reward needs the answers' own probabilities, which are taken piece by piece.
        loss="chunked"
        if stage.startswith("rl") or "chunked" in row["notes"].lower()
        else habits_of(row["source"]).loss,
        stack=row["source"].lower(),
        fused=habits_of(row["source"]).fused or "compile" in row["notes"].lower(),
        async_tensor=habits_of(row["source"]).fused
        or re.search(r"(?i)async.?tp", row["notes"]) is not None,
        fused_experts=_fuses_experts(row["notes"]),
        looped_experts=_loops_experts(row),
        # The engine that samples answers gets the new weights after each step.
        publishes_weights=stage.startswith("rl"),
    )
    if layout.pp > 1 and layout.micro_batches(job) < layout.pp and layout.micro_batch > 1:
        assumed.append("the stated micro-batch is a replica's batch, piped in a piece a stage")
        layout = replace(layout, micro_batch=max(1, layout.micro_batch // layout.pp))
    return job, layout


def _fuses_experts(notes: str) -> bool:
    """NeMo's containers have the fused kernels since 26.06."""
    release = re.search(r"\b(\d\d)\.(\d\d)(?:\.\d+)? NeMo", notes)
    return release is not None and (int(release[1]), int(release[2])) >= (26, 6)


def _loops_experts(row: dict[str, str]) -> bool:
    """Where attention still runs an older GPU's kernel on Blackwell, experts have none either."""
    older = _attention(row) in ("triton", "flash2")
    return older and _gpu(row).family.startswith("blackwell")


def _batch(row: dict[str, str], layout: Layout, seq_len: int, assumed: list[str]) -> int:
    text = row["global_batch"]
    tokens = re.fullmatch(r"(?i)([\d.]{1,12})\s*([kmb])?\s*tokens", text)
    if tokens:
        try:
            unit = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}[(tokens[2] or "").lower()]
            return max(1, round(float(tokens[1]) * unit / seq_len))
        except ValueError:
            raise _RowError(f"global_batch is no number: {text[:40]!r}") from None
    batch = _count(row, "global_batch")
    smallest = layout.dp * layout.micro_batch
    if batch is None:
        assumed.append("one micro-batch a step")
        return smallest * (4 * layout.pp if layout.pp > 1 else 1)
    return batch


def _attention(row: dict[str, str]) -> AttentionKernel | None:
    named = re.search(r"\bfa(2|3)\b|flash.?attention.?(2|3)", row["notes"].lower())
    if named:
        return "flash3" if "3" in named[0] else "flash2"
    return habits_of(row["source"]).attention


def _machine(row: dict[str, str], gpu: Gpu, gpus: int) -> Machine:
    nodes = _count(row, "nodes") or math.ceil(gpus / gpu.gpus_per_node)
    per_node = max(1, math.ceil(gpus / nodes))
    is_rack = gpu.domain > gpu.gpus_per_node
    return Machine(
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=per_node,
        memory_gib=gpu.memory_gib,
        link_gbytes=gpu.link_gbytes,
        fabric_gbytes=_fabric(row["interconnect"], gpu.gpus_per_node) or gpu.fabric_gbytes,
        domain=gpu.domain if is_rack else per_node,
    )


def _fabric(text: str, gpus_per_node: int) -> float | None:
    """GB/s of a GPU to other nodes, as stated."""
    found = re.search(r"(?:(\d{1,2}) ?x ?)?(\d{2,5}) ?Gb/?p?s[^;,]{0,40}", text)
    if not found:
        return None
    total = float(found[2]) * float(found[1] or 1) / 8
    whole_node = found[1] or "per node" in found[0]
    return total / gpus_per_node if whole_node else total


def _throughput(row: dict[str, str], shape: ModelShape, job: Job, gpu: Gpu) -> float | None:
    """Tokens/s of a GPU: stated, or from TFLOPS or MFU by PaLM's formula."""
    stated = _number(row, "tokens_per_s_per_gpu")
    if stated is not None:
        return stated
    tflops, mfu = _number(row, "tflops_per_gpu"), _number(row, "mfu")
    if tflops is None and mfu is not None and job.arithmetic == "bf16":
        tflops = mfu / 100 * gpu.tflops["bf16"]
    if tflops is None:
        return None
    if "4x forward" in row["activation_ckpt"]:
        tflops *= 3 / 4  # hardware FLOPs, the recomputed forward pass among them
    return tflops * 1e12 / shape.model_flops_per_token(job.seq_len)
