"""Reinforcement learning with verified rewards: TRL's GRPO, rewards from the verifiers.

    python -m training.trainers.grpo SPEC.json         (one rank; more through torchrun)

In: a model folder and `views/trl_grpo` (prompt, verifier, ground_truth). Out: as `sft`. An answer
without a verdict (a tool is missing or failed) counts neither as right nor as wrong: its reward is
None, TRL leaves it out of the group's mean and gives it no advantage, and the metrics say how many
there were (`no_verdict_rate`). Answers are sampled by the trainer's own model, or by vLLM
(`rlvr.rollouts`), whose weights are compared with the trainer's after each hand-over
(`weight_sync`).
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from training.data.reward import VerifiedReward
from training.data.verdict_pool import VerdictPool, default_workers
from training.external.installed import require_module
from training.rollouts import RolloutLog
from training.trainers import entry
from training.trainers.callbacks import Callbacks, make_callbacks, rank
from training.trainers.model_io import adapter_config, load_model, load_tokenizer
from training.trainers.rows import prompt_tokens, read_view
from training.trainers.sample_order import forward_passes, shuffled_passes
from training.trainers.settings import RlvrSettings
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_head import score_labelled_tokens_only
from training.trainers.trl_ledger import Fed, ledger_callback, with_places
from training.trainers.weight_sync import check_vllm
from workspace.errors import UserError

REQUIRED = ("prompt", "verifier", "ground_truth")


class Prompts(NamedTuple):
    rows: list[dict[str, Any]]
    rejects: dict[str, int]


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Train to the end, or return None with a checkpoint written when a stop was asked for."""
    if spec.rlvr.rollouts == "vllm":
        require_module("vllm", "rlvr.rollouts is vllm", "take transformers", sys.executable)
    rows = read_view(spec.data, REQUIRED)
    tokenizer = load_tokenizer(spec.parent)
    prompts = usable_prompts(spec, tokenizer, rows)
    steps = spec.rlvr.planned_steps(len(prompts.rows))
    wanted = steps * spec.rlvr.prompts_per_step
    order = shuffled_passes(len(prompts.rows), wanted, spec.seed)
    callbacks = make_callbacks(spec, stop, epochs=wanted / len(prompts.rows))
    pool = VerdictPool(default_workers(), spec.rlvr.verifier_timeout_s)
    rows = [prompts.rows[row] for row in order]
    fed = Fed()
    callbacks.callbacks.insert(
        0,
        ledger_callback(
            spec,
            fed,
            order,
            rows_per_step=spec.rlvr.prompts_per_step,
            samples=len(prompts.rows),
        ),
    )
    trainer = make_trainer(spec, tokenizer, rows, callbacks, make_reward(spec, pool, steps), fed)
    try:
        entry.run_trainer(spec, trainer, fed)
        return entry.finish(
            spec,
            callbacks.progress,
            trainer,
            load_tokenizer(spec.parent),
            rows=len(prompts.rows),
            rejects=prompts.rejects,
        )
    finally:
        pool.close()


def usable_prompts(spec: TrainSpec, tokenizer: Any, rows: list[dict[str, Any]]) -> Prompts:
    """The rows whose prompt fits. Raises `UserError` when there are none."""
    limit = spec.rlvr.max_prompt_tokens
    kept = [row for row in rows if len(prompt_tokens(tokenizer, row["prompt"])) <= limit]
    rejects = {"too_long": len(rows) - len(kept)} if len(kept) < len(rows) else {}
    if not kept:
        raise UserError(
            f"no row of {', '.join(map(str, spec.data)) or 'the GRPO view'} has a prompt of at "
            f"most {limit} tokens (rlvr.max_prompt_tokens)"
        )
    return Prompts(kept, rejects)


def make_reward(spec: TrainSpec, pool: VerdictPool, steps: int) -> VerifiedReward:
    """The reward in a stage of `steps`; rank 0 keeps some of the answers that it is asked about."""
    log = RolloutLog(spec.attempt_dir, group=spec.rlvr.generations, total_steps=steps)
    record = log.record if rank() == 0 else lambda *asked: None
    return VerifiedReward(pool, spec.rlvr.generations, record)


def make_trainer(
    spec: TrainSpec,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    callbacks: Callbacks,
    reward: VerifiedReward,
    fed: Fed,
) -> Any:
    """TRL's trainer over all `rows` in turn; `fed` learns which are answered."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    score_labelled_tokens_only()

    class NotingGrpoTrainer(GRPOTrainer):  # type: ignore[misc]
        """Says which prompts it samples answers to."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
            return super()._generate_and_score_completions(fed.note_prompts(inputs))

    settings = spec.rlvr
    share = completions_per_rank(settings)
    passes = forward_passes(share, spec.rows_per_forward)
    trainer = NotingGrpoTrainer(
        model=load_model(spec),
        peft_config=adapter_config(spec),
        reward_funcs=[reward],
        args=GRPOConfig(
            **entry.common_arguments(spec),
            max_steps=len(rows) // settings.prompts_per_step,
            per_device_train_batch_size=share // passes,
            gradient_accumulation_steps=passes,
            num_generations=settings.generations,
            max_completion_length=settings.max_new_tokens,
            temperature=settings.temperature,
            learning_rate=settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            lr_scheduler_type="constant",
            beta=0.0,  # no reference model: it would double the memory
            shuffle_dataset=False,  # `rows` are in the planned order, which a resume can walk on
            **rollout_arguments(settings),
        ),
        train_dataset=with_places(Dataset.from_list(rows)),
        processing_class=tokenizer,
        callbacks=callbacks.callbacks,
    )
    if settings.rollouts == "vllm":
        check_vllm(trainer, timeout_s=settings.sync_timeout_s)
    return trainer


def rollout_arguments(settings: RlvrSettings) -> dict[str, Any]:
    """Arguments of `GRPOConfig` for what samples the answers."""
    if settings.rollouts == "transformers":
        return {"use_vllm": False}
    return {
        "use_vllm": True,
        "vllm_mode": settings.vllm_mode,
        "vllm_gpu_memory_utilization": settings.vllm_memory_share,
        "vllm_max_model_length": settings.max_prompt_tokens + settings.max_new_tokens,
        "vllm_tensor_parallel_size": 1,  # each rank's engine holds whole tensors to compare
    }


def completions_per_rank(settings: RlvrSettings, ranks: int | None = None) -> int:
    """Answers of one step that a rank samples: whole groups, so that it can compare them."""
    prompts = entry.rows_per_rank(settings.prompts_per_step, "rlvr.prompts_per_step", ranks)
    return prompts * settings.generations


if __name__ == "__main__":
    sys.exit(entry.main(train))
