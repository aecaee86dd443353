"""torchtitan (0.2, TOML configuration): continued pre-training over four dimensions.

Each rank runs `python -m torchtitan.train`, which finds its rank as under torchrun. Weights are
read from and, in the end, written as safetensors. It resumes with its own data cursor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.external.data import link_parquet
from training.external.installed import module_cure
from training.external.offers import STAGES
from training.external.program import Rendered, Work, to_toml
from training.trainers.ability import DEGREES, Ability
from workspace.errors import UserError

# (model_type, layers, hidden size, vocabulary) -> name and flavour in torchtitan.
_FLAVOURS = {
    ("llama", 32, 4096, 128256): ("llama3", "8B"),
    ("llama", 80, 8192, 128256): ("llama3", "70B"),
    ("llama", 126, 16384, 128256): ("llama3", "405B"),
    ("qwen3", 28, 1024, 151936): ("qwen3", "0.6B"),
    ("qwen3", 28, 2048, 151936): ("qwen3", "1.7B"),
    ("qwen3", 36, 2560, 151936): ("qwen3", "4B"),
    ("qwen3", 36, 4096, 151936): ("qwen3", "8B"),
    ("qwen3", 40, 5120, 151936): ("qwen3", "14B"),
    ("qwen3", 64, 5120, 151936): ("qwen3", "32B"),
}


class Torchtitan:
    """Implements `training.external.program.Program`."""

    name = "torchtitan"
    stages = STAGES["torchtitan"]
    ability = Ability("torchtitan", DEGREES)
    is_driven = False

    def cure(self, folder: str, python: str) -> str:
        return module_cure("torchtitan", "pip install torchtitan", python)

    def write_data(self, work: Work) -> None:
        link_parquet(work.spec.data, work.train_file)
        if work.spec.eval_data:
            link_parquet(work.spec.eval_data, work.validation_file)

    def render(self, work: Work) -> Rendered:
        config = {**self._config(work), **work.spec.external.overrides}
        command = ("{python}", "-m", "torchtitan.train", "--job.config_file", "{files}/train.toml")
        return Rendered({"train.toml": to_toml(config)}, command)

    def newest_step(self, folder: Path) -> int:
        # The last save holds the weights alone, without `.metadata`.
        steps = (path.parent.name for path in folder.glob("checkpoint/step-*/.metadata"))
        return max((int(step.removeprefix("step-")) for step in steps), default=0)

    def export(self, folder: Path, step: int, target: Path) -> tuple[str, ...]:
        return ()

    def weights(self, folder: Path, step: int) -> Path:
        return folder / "checkpoint" / f"step-{step}"

    def _config(self, work: Work) -> dict[str, Any]:
        spec, settings, layout = work.spec, work.spec.cpt, work.spec.layout
        name, flavour = _flavour(work)
        replicas = layout.dp_shard * layout.dp_replicate
        # A pipeline cuts its batch into micro-batches itself; other layouts accumulate.
        local = settings.rows_per_step // replicas if layout.pp > 1 else spec.micro_batch
        config: dict[str, Any] = {
            "job.dump_folder": str(work.folder),
            "job.description": f"{work.run} {spec.stage}",
            "model.name": name,
            "model.flavor": flavour,
            "model.hf_assets_path": str(spec.parent),
            "optimizer.name": "AdamW",
            "optimizer.lr": settings.learning_rate,
            "optimizer.weight_decay": settings.weight_decay,
            "lr_scheduler.warmup_steps": max(1, round(settings.warmup_share * work.steps)),
            "lr_scheduler.decay_type": "cosine",
            "lr_scheduler.min_lr_factor": settings.final_rate_share,
            # A loader that reads any folder with a column `text`.
            "training.dataset": "c4_test",
            "training.dataset_path": str(work.train_file),
            "training.local_batch_size": local,
            "training.global_batch_size": settings.rows_per_step,
            "training.seq_len": settings.sequence_length,
            "training.max_norm": settings.max_grad_norm,
            "training.steps": work.steps,
            "training.seed": spec.seed,
            "training.mixed_precision_param": "bfloat16" if spec.precision == "bf16" else "float32",
            "parallelism.data_parallel_replicate_degree": layout.dp_replicate,
            "parallelism.data_parallel_shard_degree": layout.dp_shard,
            "parallelism.fsdp_reshard_after_forward": "always" if layout.zero == 3 else "never",
            "parallelism.tensor_parallel_degree": layout.tp,
            "parallelism.pipeline_parallel_degree": layout.pp,
            "parallelism.pipeline_parallel_microbatch_size": spec.micro_batch,
            "parallelism.context_parallel_degree": layout.cp,
            "checkpoint.enable": True,
            "checkpoint.folder": "checkpoint",
            "checkpoint.interval": spec.checkpoint_every_steps,
            "checkpoint.initial_load_path": str(spec.parent),
            "checkpoint.initial_load_in_hf": True,
            "checkpoint.last_save_model_only": True,
            "checkpoint.last_save_in_hf": True,
            "checkpoint.export_dtype": "float32",
            "checkpoint.async_mode": "async" if settings.async_save else "disabled",
            "checkpoint.keep_latest_k": max(2, spec.keep_checkpoints),
            "activation_checkpoint.mode": layout.activation_checkpointing,
            "compile.enable": True,
            "compile.components": ["model", "loss"],
        }
        if spec.eval_data:
            config |= {
                "validation.enable": True,
                "validation.dataset": "c4_test",
                "validation.dataset_path": str(work.validation_file),
                "validation.local_batch_size": local,
                "validation.seq_len": settings.sequence_length,
                "validation.freq": spec.evaluation.every_steps,
            }
        return config


def _flavour(work: Work) -> tuple[str, str]:
    overrides = work.spec.external.overrides
    if {"model.name", "model.flavor"} <= overrides.keys():
        return str(overrides["model.name"]), str(overrides["model.flavor"])
    config = work.architecture
    key = tuple(
        config.get(name)
        for name in ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    )
    known = {(str(kind), *numbers): found for (kind, *numbers), found in _FLAVOURS.items()}
    if key not in known:
        raise UserError(
            f"torchtitan has no configuration known here for a model of {key}; give "
            'external.overrides {"model.name": ..., "model.flavor": ...} as torchtitan calls it'
        )
    return known[key]
