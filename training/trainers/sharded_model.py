"""A model whose weights, gradients and optimizer states are spread over the ranks (FSDP2).

Weights stay in fp32; with `precision: bf16` each layer computes in bf16 and gradients are added up
in fp32. Rank 0 reads the parent's files and sends each rank its part, so that only one process of
the job ever holds the whole model.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from training.trainers.ability import FSDP
from training.trainers.model_io import load_model
from training.trainers.ranks import Ranks
from training.trainers.schedule import Schedule
from training.trainers.shared_settings import Checkpointing, ParallelLayout
from training.trainers.spec import TrainSpec
from workspace.errors import UserError


def load_sharded(spec: TrainSpec, ranks: Ranks) -> Any:
    """The parent's weights, sharded.

    Raises `UserError` for a layout that FSDP cannot do, or sequences longer than the model's.
    """
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(spec.parent, local_files_only=True, trust_remote_code=False)
    positions = getattr(config, "max_position_embeddings", None)
    if spec.stage == "cpt" and positions and spec.cpt.sequence_length > positions:
        raise UserError(
            f"cpt.sequence_length is {spec.cpt.sequence_length}, but {spec.parent} was made for "
            f"{positions} positions: lower it"
        )
    whole = load_model(spec) if ranks.is_first else None
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, trust_remote_code=False
        )
    if whole is not None:
        model.generation_config = whole.generation_config
    model.train()
    checkpoint_activations(model, spec.layout.activation_checkpointing)
    shard(model, spec, ranks)
    model.to_empty(device=ranks.device)
    set_model_state_dict(
        model,
        whole.state_dict() if whole is not None else {},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    _send_buffers(model, whole)
    return model


def shard(model: Any, spec: TrainSpec, ranks: Ranks) -> None:
    """Spread each transformer block, and then what is left, over the ranks."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if spec.precision == "bf16" else torch.float32,
        reduce_dtype=torch.float32,
    )
    wrap = partial(
        fully_shard,
        mesh=_mesh(spec.layout, ranks),
        mp_policy=policy,
        # ZeRO-2 keeps the weights gathered between forward and backward; FSDP2 has no ZeRO-1, since
        # it never leaves gradients whole.
        reshard_after_forward=spec.layout.zero >= 3,
    )
    for module in [*blocks(model), model]:
        wrap(module)
        # The loss is divided by the step's tokens already: gradients are to be added up.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def blocks(model: Any) -> list[Any]:
    """The transformer blocks, by the class that the model says must not be split."""
    names = set(model._no_split_modules or ())
    # Sharding puts "FSDP" before the name of a class.
    found = [m for m in model.modules() if type(m).__name__.removeprefix("FSDP") in names]
    if not found:
        raise UserError(
            f"{type(model).__name__} does not name its blocks (_no_split_modules), so that its "
            "weights cannot be sharded: use backend trl or external"
        )
    return found


def _mesh(layout: ParallelLayout, ranks: Ranks) -> Any:
    """Copies of groups that share the weights (HSDP), or one group of all.

    A job that lost nodes has fewer ranks than its layout: it shards over those it has.
    """
    from torch.distributed.device_mesh import init_device_mesh

    refusal = FSDP.refusal(layout)
    if refusal:
        raise UserError(f"parallelism: the fsdp trainer {refusal}")
    copies = layout.dp_replicate if layout.ranks == ranks.world_size else 1
    kind = ranks.device.type
    if copies == 1:
        return init_device_mesh(kind, (ranks.world_size,), mesh_dim_names=("dp_shard",))
    return init_device_mesh(
        kind,
        (copies, ranks.world_size // copies),
        mesh_dim_names=("dp_replicate", "dp_shard"),
    )


def make_optimizer(model: Any, schedule: Schedule) -> Any:
    """A new AdamW over the sharded weights; matrices alone decay."""
    import torch

    parameters = list(model.parameters())
    matrices = [weight for weight in parameters if weight.ndim >= 2]
    vectors = [weight for weight in parameters if weight.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": schedule.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=schedule.peak_rate,
        fused=True,  # one call for all weights: a fifth of the time of the loop over them on a CPU
    )


def checkpoint_activations(model: Any, which: Checkpointing) -> None:
    """Compute activations again in the backward pass: all of a block's, or the cheap ones."""
    if which == "none":
        return
    arguments: dict[str, Any] = {"use_reentrant": False}
    if which == "selective":
        from torch.utils.checkpoint import create_selective_checkpoint_contexts

        arguments["context_fn"] = partial(
            create_selective_checkpoint_contexts, _costly_operations()
        )
    model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments)


def _costly_operations() -> list[Any]:
    """Matrix products and attention: what selective checkpointing keeps."""
    import torch

    aten = torch.ops.aten
    return [
        aten.mm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_efficient_attention.default,
    ]


def _send_buffers(model: Any, whole: Any | None) -> None:
    """Fill the buffers, which no state dict holds (rotary frequencies), from rank 0."""
    import torch
    import torch.distributed as dist

    known = dict(whole.named_buffers()) if whole is not None else {}
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in known:
                buffer.copy_(known[name])
            dist.broadcast(buffer, src=0)


class Whole:
    """The gathered model on rank 0, with the one method that publishing needs."""

    def __init__(self, model: Any, weights: dict[str, Any]) -> None:
        self._model = model
        self._weights = weights

    def save_pretrained(self, folder: Path) -> None:
        """Write Hugging Face safetensors, which any trainer loads."""
        self._model.save_pretrained(folder, state_dict=self._weights)


def gather(model: Any) -> Whole:
    """All weights, one after the other, into the memory of rank 0's host. All ranks call it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    weights = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    # Tied weights have two names there; transformers ties them again when it loads.
    own = {name for name, _ in model.named_parameters()} | {n for n, _ in model.named_buffers()}
    return Whole(model, {name: weights[name] for name in weights if name in own})
