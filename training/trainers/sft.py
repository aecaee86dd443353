"""Supervised fine-tuning with TRL.

    python -m training.trainers.sft SPEC.json          (one rank; more through torchrun)

In: a model folder and `views/trl_sft` (prompt, completion). Out: `<stage>/model/`, checkpoints,
`metrics.jsonl`, `result.json` last. All weights are trained; they are kept in fp32 and the
arithmetic is bf16 (`precision: bf16`), because pure bf16 weights lose AdamW's small updates: on
SmolLM2-135M they learned 150 facts to 40 % where fp32 weights reached 88 %.
"""

from __future__ import annotations

import sys
from typing import Any

from training.trainers import entry
from training.trainers.bounded_sft import make_bounded_trainer
from training.trainers.callbacks import Callbacks, make_callbacks, wait_for_all_ranks
from training.trainers.model_io import load_model, load_tokenizer
from training.trainers.rows import TokenRows, read_view, tokenize_rows
from training.trainers.sample_order import StepPlan, plan_steps
from training.trainers.settings import SftSettings
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from workspace.errors import UserError


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Train to the end, or return None with a checkpoint written when a stop was asked for."""
    rows = read_view(spec.data, ("prompt", "completion"))
    tokenizer = load_tokenizer(spec.parent)
    tokens = usable_rows(spec, tokenizer, rows)
    plan = plan_steps(
        [len(row.input_ids) for row in tokens.rows],
        rows_per_step=spec.sft.rows_per_step,
        epochs=spec.sft.epochs,
        token_budget=spec.sft.token_budget,
        seed=spec.seed,
    )
    callbacks = make_callbacks(spec, stop, epochs=plan.epochs)
    trainer = make_trainer(spec, tokenizer, tokens, plan, callbacks)
    trainer.train(resume_from_checkpoint=entry.resume_path(spec))
    if callbacks.progress.stopped:
        wait_for_all_ranks()
        return None
    outcome = StageOutcome(
        stage="sft",
        attempt=spec.attempt,
        steps=plan.steps,
        rows=len(tokens.rows),
        rejects=tokens.rejects,
        tokens=callbacks.progress.tokens,
        last=callbacks.progress.last,
    )
    if trainer.is_world_process_zero():
        entry.publish_model(spec, trainer.model, tokenizer, outcome)
    wait_for_all_ranks()
    return outcome


def usable_rows(spec: TrainSpec, tokenizer: Any, rows: list[dict[str, Any]]) -> TokenRows:
    """The rows as tokens. Raises `UserError` when none can be used."""
    tokens = tokenize_rows(tokenizer, rows, spec.sft.max_length)
    if not tokens.rows:
        raise UserError(
            f"no row of {', '.join(map(str, spec.data)) or 'the SFT view'} can be trained on "
            f"(left out: {tokens.rejects}); max_length is {spec.sft.max_length}"
        )
    return tokens


def rows_per_rank(settings: SftSettings, world_size: int) -> int:
    """Rows of one step that a rank trains on."""
    if settings.rows_per_step % world_size:
        raise UserError(
            f"sft.rows_per_step is {settings.rows_per_step}, which {world_size} ranks cannot share "
            "evenly; choose a multiple"
        )
    return settings.rows_per_step // world_size


def make_trainer(
    spec: TrainSpec,
    tokenizer: Any,
    tokens: TokenRows,
    plan: StepPlan,
    callbacks: Callbacks,
) -> Any:
    """TRL's trainer over the planned order."""
    from datasets import Dataset
    from trl import SFTConfig

    rows = Dataset.from_dict(
        {
            "input_ids": [row.input_ids for row in tokens.rows],
            "labels": [row.labels for row in tokens.rows],
        }
    )
    settings = spec.sft
    return make_bounded_trainer(
        settings.tokens_per_forward,
        model=load_model(spec.parent, spec.seed),
        args=SFTConfig(
            **entry.common_arguments(spec),
            max_steps=plan.steps,
            per_device_train_batch_size=rows_per_rank(settings, entry.world_size()),
            gradient_accumulation_steps=1,  # a step is split by tokens instead
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            warmup_steps=round(settings.warmup_share * plan.steps),
            lr_scheduler_type="linear",
            # The plan is the order: the trainer walks it from front to back, once.
            train_sampling_strategy="sequential",
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
        ),
        train_dataset=rows.select(plan.order),
        processing_class=tokenizer,
        callbacks=callbacks.callbacks,
    )


if __name__ == "__main__":
    sys.exit(entry.main(train))
