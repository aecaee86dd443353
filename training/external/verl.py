"""verl: fine-tuning by its FSDP engine, GRPO over Ray with vLLM.

The reward is this project's (`training.external.verl_reward`), read from `views/verl_rl`. Settings
go over as Hydra overrides, one an argument.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from training.external.data import link_parquet
from training.external.installed import module_cure
from training.external.offers import STAGES
from training.external.program import Rendered, Work
from training.trainers.ability import Ability
from training.trainers.settings import StageName
from workspace.errors import UserError

_PLAIN = re.compile(r"[A-Za-z0-9_./@-]+")
_SAVED = ["model", "optimizer", "extra", "hf_model"]


class Verl:
    """Implements `training.external.program.Program`."""

    name = "verl"
    stages = STAGES["verl"]
    # Told the size of a sharded group (fsdp_size), it makes as many copies as the ranks allow.
    ability = Ability(
        "verl", ("dp_shard", "dp_replicate"), zero=(3,), checkpointing=("none", "full")
    )

    def __init__(self, stage: StageName) -> None:
        self.is_driven = stage == "rlvr"

    def cure(self, folder: str, python: str) -> str:
        missing = module_cure("verl", "pip install verl", python)
        if not missing and self.is_driven:
            missing = module_cure("vllm", "pip install verl[vllm]", python)
        return missing

    def write_data(self, work: Work) -> None:
        link_parquet(work.spec.data, work.train_file)
        if work.spec.eval_data:
            link_parquet(work.spec.eval_data, work.validation_file)

    def render(self, work: Work) -> Rendered:
        config = self._rlvr(work) if self.is_driven else self._sft(work)
        config |= work.spec.external.overrides
        words = [f"{name}={hydra_value(value)}" for name, value in config.items()]
        module = "verl.trainer.main_ppo" if self.is_driven else "verl.trainer.sft_trainer"
        listing = "\n".join(words) + "\n"
        return Rendered({"overrides.txt": listing}, ("{python}", "-m", module, *words))

    def newest_step(self, folder: Path) -> int:
        try:
            name = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
            return int(name.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0

    def export(self, folder: Path, step: int, target: Path) -> tuple[str, ...]:
        return ()

    def weights(self, folder: Path, step: int) -> Path:
        saved = folder / "checkpoints" / f"global_step_{step}"
        return (saved / "actor" if self.is_driven else saved) / "huggingface"

    def _trainer(self, work: Work) -> dict[str, Any]:
        spec = work.spec
        return {
            "trainer.default_local_dir": str(work.folder / "checkpoints"),
            "trainer.project_name": work.run,
            "trainer.experiment_name": spec.stage,
            "trainer.logger": ["console"],
            "trainer.total_training_steps": work.steps,
            "trainer.save_freq": spec.checkpoint_every_steps,
            "trainer.resume_mode": "auto",
            "trainer.nnodes": work.nodes,
            "trainer.n_gpus_per_node": work.gpus_per_node,
        }

    def _sft(self, work: Work) -> dict[str, Any]:
        spec, settings, layout = work.spec, work.spec.sft, work.spec.layout
        return {
            "data.train_files": _parquet(work.train_file),
            "data.val_files": _parquet(work.validation_file) if spec.eval_data else None,
            "data.messages_key": "messages",
            "data.train_batch_size": settings.rows_per_step,
            "data.micro_batch_size_per_gpu": spec.micro_batch,
            "data.use_dynamic_bsz": True,
            "data.max_token_len_per_gpu": max(spec.tokens_per_forward, settings.max_length),
            "data.max_length": settings.max_length,
            "data.truncation": "error",
            "model.path": str(spec.parent),
            "model.enable_gradient_checkpointing": layout.activation_checkpointing != "none",
            "optim.lr": settings.learning_rate,
            "optim.weight_decay": settings.weight_decay,
            "optim.clip_grad": settings.max_grad_norm,
            "optim.lr_warmup_steps_ratio": settings.warmup_share,
            "engine.strategy": "fsdp2",
            "engine.fsdp_size": layout.dp_shard,
            "checkpoint.save_contents": _SAVED,
            **self._trainer(work),
            "trainer.total_epochs": _whole_epochs(work),
            "trainer.seed": spec.seed,
            "trainer.test_freq": spec.evaluation.every_steps if spec.eval_data else -1,
            "trainer.max_ckpt_to_keep": spec.keep_checkpoints,
        }

    def _rlvr(self, work: Work) -> dict[str, Any]:
        spec, settings, layout = work.spec, work.spec.rlvr, work.spec.layout
        actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
        return {
            "algorithm.adv_estimator": "grpo",
            "data.train_files": _parquet(work.train_file),
            # verl insists on a file; nothing is validated (test_freq).
            "data.val_files": _parquet(work.train_file),
            "data.train_batch_size": settings.prompts_per_step,
            "data.max_prompt_length": settings.max_prompt_tokens,
            "data.max_response_length": settings.max_new_tokens,
            "data.filter_overlong_prompts": True,
            "data.truncation": "error",
            "actor_rollout_ref.model.path": str(spec.parent),
            "actor_rollout_ref.model.enable_gradient_checkpointing": (
                layout.activation_checkpointing != "none"
            ),
            f"{actor}.optim.lr": settings.learning_rate,
            f"{actor}.grad_clip": settings.max_grad_norm,
            f"{actor}.ppo_mini_batch_size": settings.prompts_per_step,
            f"{actor}.ppo_micro_batch_size_per_gpu": spec.micro_batch,
            f"{actor}.use_kl_loss": False,
            f"{actor}.fsdp_config.fsdp_size": layout.dp_shard,
            f"{actor}.checkpoint.save_contents": _SAVED,
            f"{rollout}.name": "vllm",
            f"{rollout}.n": settings.generations,
            f"{rollout}.temperature": settings.temperature,
            f"{rollout}.tensor_model_parallel_size": 1,  # vLLM's own, whatever trains
            f"{rollout}.gpu_memory_utilization": settings.vllm_memory_share,
            f"{rollout}.log_prob_micro_batch_size_per_gpu": spec.micro_batch,
            "custom_reward_function.path": str(Path(__file__).with_name("verl_reward.py")),
            "custom_reward_function.name": "compute_score",
            # Arguments of the function, which verl's own configuration does not list.
            "++custom_reward_function.reward_kwargs.verifier_timeout_s": (
                settings.verifier_timeout_s
            ),
            **self._trainer(work),
            "trainer.total_epochs": _whole_epochs(work),
            "trainer.val_before_train": False,
            "trainer.test_freq": -1,
            "trainer.max_actor_ckpt_to_keep": spec.keep_checkpoints,
        }


def hydra_value(value: Any) -> str:
    """A value in Hydra's override grammar; texts that could mean something are quoted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(hydra_value(item) for item in value) + "]"
    if isinstance(value, dict):
        inner = ",".join(f"{name}:{hydra_value(item)}" for name, item in value.items())
        return "{" + inner + "}"
    text = str(value)
    if any(ord(character) < 32 for character in text):
        raise UserError(f"{text!r}: a setting of verl cannot hold control characters")
    if _PLAIN.fullmatch(text) and not re.fullmatch(r"(?i)null|true|false|[-+.\d].*", text):
        return text
    # Backslashes count only before a quote, where each is written twice.
    escaped = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", text)
    return "'" + re.sub(r"(\\+)$", lambda match: match[1] * 2, escaped) + "'"


def _parquet(folder: Path) -> str:
    return str(folder / "0000.parquet")


def _whole_epochs(work: Work) -> int:
    """Passes that hold all steps; `total_training_steps` ends the last one."""
    settings = work.spec.settings
    per_step = getattr(settings, "rows_per_step", 0) or work.spec.rlvr.prompts_per_step
    return -(-work.steps * per_step // max(1, work.rows)) + 1
