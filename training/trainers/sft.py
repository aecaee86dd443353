"""Supervised fine-tuning with TRL.

    python -m training.trainers.sft SPEC.json          (one rank; more through torchrun)

In: a model folder and `views/trl_sft` (prompt, completion). Out: `<stage>/model/`, checkpoints,
`metrics.jsonl`, `result.json` last. Weights that are trained are kept in fp32 and the arithmetic is
bf16 (`precision: bf16`), because pure bf16 weights lose AdamW's small updates: on SmolLM2-135M they
learned 150 facts to 40 % where fp32 weights reached 88 %.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from training.trainers import entry
from training.trainers.bounded_sft import make_bounded_trainer
from training.trainers.callbacks import Progress
from training.trainers.held_out_answers import of_rows
from training.trainers.model_io import adapter_config, load_model, load_tokenizer
from training.trainers.planned_run import PlannedRun, plan_run
from training.trainers.rows import TokenRow, TokenRows, read_view, tokenize_rows, with_evaluation
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_ledger import Fed, with_places
from workspace.errors import UserError


class Prepared(NamedTuple):
    """A trainer before its first step. `fed` learns which rows reach the model."""

    trainer: Any
    tokenizer: Any
    progress: Progress
    fed: Fed
    rows: int
    rejects: dict[str, int]


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Train to the end, or return None with a checkpoint written when a stop was asked for."""
    ready = prepare(spec, stop)
    entry.run_trainer(spec, ready.trainer, ready.fed)
    return entry.finish(
        spec,
        ready.progress,
        ready.trainer,
        ready.tokenizer,
        rows=ready.rows,
        rejects=ready.rejects,
    )


def prepare(spec: TrainSpec, stop: StopRequest) -> Prepared:
    """Read the rows, plan their order and make the trainer."""
    rows = read_view(spec.data, ("prompt", "completion"))
    tokenizer = load_tokenizer(spec.parent)
    tokens = usable_rows(spec, tokenizer, rows)
    learned, held = with_evaluation(
        spec, tokens.rows, lambda unseen: usable_rows(spec, tokenizer, unseen).rows
    )
    lengths = [len(row.input_ids) for row in learned]
    run = plan_run(spec, stop, spec.sft, lengths, tokenizer, of_rows(held))
    trainer = make_trainer(spec, tokenizer, learned, held, run)
    return Prepared(
        trainer, tokenizer, run.callbacks.progress, run.fed, len(learned), tokens.rejects
    )


def usable_rows(spec: TrainSpec, tokenizer: Any, rows: list[dict[str, Any]]) -> TokenRows:
    """The rows as tokens. Raises `UserError` when none can be used."""
    tokens = tokenize_rows(tokenizer, rows, spec.sft.max_length)
    if not tokens.rows:
        raise UserError(
            f"no row of {', '.join(map(str, spec.data)) or 'the SFT view'} can be trained on "
            f"(left out: {tokens.rejects}); max_length is {spec.sft.max_length}"
        )
    return tokens


def make_trainer(
    spec: TrainSpec,
    tokenizer: Any,
    rows: list[TokenRow],
    held: list[TokenRow],
    run: PlannedRun,
) -> Any:
    """TRL's trainer over the planned order of `rows`; `held` are evaluated on."""
    from trl import SFTConfig

    settings = spec.sft
    return make_bounded_trainer(
        spec.tokens_per_forward,
        run.fed,
        model=load_model(spec),
        peft_config=adapter_config(spec),
        args=SFTConfig(
            **entry.common_arguments(spec),
            max_steps=run.plan.steps,
            per_device_train_batch_size=entry.rows_per_rank(
                settings.rows_per_step, "sft.rows_per_step"
            ),
            per_device_eval_batch_size=max(1, spec.tokens_per_forward // settings.max_length),
            gradient_accumulation_steps=1,  # a step is split by tokens instead
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            warmup_steps=round(settings.warmup_share * run.plan.steps),
            lr_scheduler_type="linear",
            # The plan is the order: the trainer walks it from front to back, once.
            train_sampling_strategy="sequential",
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
        ),
        train_dataset=with_places(_as_dataset(rows).select(run.plan.order)),
        eval_dataset=_as_dataset(held) if held else None,
        processing_class=tokenizer,
        callbacks=run.callbacks.callbacks,
    )


def _as_dataset(rows: list[TokenRow]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [row.input_ids for row in rows],
            "labels": [row.labels for row in rows],
        }
    )


if __name__ == "__main__":
    sys.exit(entry.main(train))
