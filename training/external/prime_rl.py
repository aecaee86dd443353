"""prime-rl: fine-tuning, each rank a process of its trainer, configured in TOML.

Its reinforcement learning takes environments packaged for its `verifiers` library, which this
project does not make, so that stage is not offered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.external.data import link_parquet
from training.external.installed import module_cure
from training.external.offers import STAGES
from training.external.program import Rendered, Work, to_toml
from training.trainers.ability import Ability


class PrimeRl:
    """Implements `training.external.program.Program`."""

    name = "prime_rl"
    stages = STAGES["prime_rl"]
    # It shards over all ranks that dp_replicate and cp leave.
    ability = Ability(
        "prime_rl", ("dp_shard", "dp_replicate", "cp"), zero=(3,), checkpointing=("none",)
    )
    is_driven = False

    def cure(self, folder: str, python: str) -> str:
        install = "uv sync --all-extras in a clone of https://github.com/PrimeIntellect-ai/prime-rl"
        return module_cure("prime_rl", install, python)

    def write_data(self, work: Work) -> None:
        link_parquet(work.spec.data, work.train_file)

    def render(self, work: Work) -> Rendered:
        config = {**self._config(work), **work.spec.external.overrides}
        command = ("{python}", "-m", "prime_rl.trainer.sft.train", "@", "{files}/train.toml")
        return Rendered({"train.toml": to_toml(config)}, command)

    def newest_step(self, folder: Path) -> int:
        steps = [path.name.removeprefix("step_") for path in folder.glob("checkpoints/step_*")]
        return max((int(step) for step in steps if step.isdigit()), default=0)

    def export(self, folder: Path, step: int, target: Path) -> tuple[str, ...]:
        return ()

    def weights(self, folder: Path, step: int) -> Path:
        return folder / "weights" / f"step_{step}"

    def _config(self, work: Work) -> dict[str, Any]:
        spec, settings, layout = work.spec, work.spec.sft, work.spec.layout
        config: dict[str, Any] = {
            "max_steps": work.steps,
            "output_dir": str(work.folder),
            "model.name": str(spec.parent),
            "model.dp_replicate": layout.dp_replicate,
            "model.cp": layout.cp,
            "data.type": "sft",
            "data.name": str(work.train_file),
            "data.splits": ["train"],
            "data.batch_size": settings.rows_per_step,
            "data.micro_batch_size": spec.micro_batch,
            "data.seq_len": settings.max_length,
            "data.pack_function": "stack" if settings.max_length % 256 == 0 else "cat",
            "data.seed": spec.seed,
            "optim.type": "adamw",
            "optim.lr": settings.learning_rate,
            "optim.weight_decay": settings.weight_decay,
            "optim.max_norm": settings.max_grad_norm,
            "ckpt.interval": spec.checkpoint_every_steps,
            "ckpt.keep_last": spec.keep_checkpoints,
        }
        if self.newest_step(work.folder):
            config["ckpt.resume_step"] = -1  # the newest
        return config
