"""NeMo RL: fine-tuning and preferences over Ray, from a checkout and started by uv.

Our YAML stands on the checkout's own `examples/configs/<stage>.yaml`. GRPO there needs an
environment that is part of NeMo RL's code, so that stage is not offered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from training.external.data import as_messages, as_ranked, write_jsonl
from training.external.installed import checkout_cure
from training.external.offers import STAGES
from training.external.program import Rendered, Work, nest
from training.trainers.ability import Ability

_ADDRESS = "https://github.com/NVIDIA-NeMo/RL"


class NemoRl:
    """Implements `training.external.program.Program`."""

    name = "nemo_rl"
    stages = STAGES["nemo_rl"]
    # Its DTensor workers shard over all ranks that tp and cp leave.
    ability = Ability(
        "nemo_rl", ("dp_shard", "tp", "cp"), zero=(3,), checkpointing=("none", "full")
    )
    is_driven = True

    def cure(self, folder: str, python: str) -> str:
        return checkout_cure("NeMo RL", _ADDRESS, "examples/run_sft.py", folder)

    def write_data(self, work: Work) -> None:
        convert = as_ranked if work.spec.stage == "dpo" else as_messages
        write_jsonl(work.spec.data, _jsonl(work.train_file), convert)
        # It validates on something even when it never does (val_period 0).
        unseen = work.spec.eval_data or work.spec.data
        write_jsonl(unseen, _jsonl(work.validation_file), convert)

    def render(self, work: Work) -> Rendered:
        spec = work.spec
        checkout = Path(spec.external.folder).expanduser()
        config = {
            "defaults": str(checkout / "examples" / "configs" / f"{spec.stage}.yaml"),
            **nest({**self._config(work), **spec.external.overrides}),
        }
        script = str(checkout / "examples" / f"run_{spec.stage}.py")
        command = ("uv", "run", script, "--config", "{files}/train.yaml")
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        return Rendered({"train.yaml": text}, command)

    def newest_step(self, folder: Path) -> int:
        # A checkpoint is written as tmp_step_N and renamed.
        steps = [path.name.removeprefix("step_") for path in folder.glob("checkpoints/step_*")]
        return max((int(step) for step in steps if step.isdigit()), default=0)

    def export(self, folder: Path, step: int, target: Path) -> tuple[str, ...]:
        saved = folder / "checkpoints" / f"step_{step}"
        return (
            "uv",
            "run",
            "examples/converters/convert_dcp_to_hf.py",
            f"--config={saved / 'config.yaml'}",
            f"--dcp-ckpt-path={saved / 'policy' / 'weights'}",
            f"--hf-ckpt-path={target}",
        )

    def weights(self, folder: Path, step: int) -> Path:
        return folder / "checkpoints" / f"step_{step}" / "policy" / "weights"

    def _config(self, work: Work) -> dict[str, Any]:
        spec, stage = work.spec, work.spec.stage
        settings = spec.dpo if stage == "dpo" else spec.sft
        kind = "PreferenceDataset" if stage == "dpo" else "openai_format"
        cluster, every = spec.layout, spec.evaluation.every_steps if spec.eval_data else 0
        config: dict[str, Any] = {
            f"{stage}.max_num_epochs": -(-work.steps * settings.rows_per_step // work.rows) + 1,
            f"{stage}.max_num_steps": work.steps,
            f"{stage}.val_period": every,
            f"{stage}.val_at_start": False,
            f"{stage}.seed": spec.seed,
            "checkpointing.enabled": True,
            "checkpointing.checkpoint_dir": str(work.folder / "checkpoints"),
            "checkpointing.metric_name": None,
            "checkpointing.keep_top_k": spec.keep_checkpoints,
            "checkpointing.save_period": spec.checkpoint_every_steps,
            "policy.model_name": str(spec.parent),
            "policy.tokenizer.name": str(spec.parent),
            "policy.tokenizer.chat_template": "default",
            "policy.train_global_batch_size": settings.rows_per_step,
            "policy.train_micro_batch_size": spec.micro_batch,
            "policy.max_total_sequence_length": settings.max_length,
            "policy.precision": "bfloat16" if spec.precision == "bf16" else "float32",
            "policy.max_grad_norm": settings.max_grad_norm,
            "policy.dtensor_cfg.enabled": True,
            "policy.dtensor_cfg.tensor_parallel_size": cluster.tp,
            "policy.dtensor_cfg.context_parallel_size": cluster.cp,
            "policy.dtensor_cfg.activation_checkpointing": (
                cluster.activation_checkpointing != "none"
            ),
            "policy.optimizer.kwargs.lr": settings.learning_rate,
            "data.train.dataset_name": kind,
            "data.train.data_path": str(_jsonl(work.train_file)),
            "data.validation.dataset_name": kind,
            "data.validation.data_path": str(_jsonl(work.validation_file)),
            "logger.log_dir": str(work.folder / "logs"),
            "logger.wandb_enabled": False,
            "logger.tensorboard_enabled": False,
            "cluster.gpus_per_node": work.gpus_per_node,
            "cluster.num_nodes": work.nodes,
        }
        if stage == "dpo":
            config["dpo.reference_policy_kl_penalty"] = spec.dpo.beta
        else:
            config["policy.optimizer.kwargs.weight_decay"] = spec.sft.weight_decay
            config["data.train.chat_key"] = config["data.validation.chat_key"] = "messages"
        return config


def _jsonl(path: Path) -> Path:
    return path.with_suffix(".jsonl")
