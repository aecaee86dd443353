"""Direct preference optimisation with TRL.

    python -m training.trainers.dpo SPEC.json          (one rank; more through torchrun)

In: a model folder and `views/trl_dpo` (prompt, chosen, rejected; the verifier accepted the one and
refused the other). Out: as `sft`. Without adapters the model that it starts from stays in memory as
the reference, in fp32; with adapters the frozen weights are the reference.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from training.trainers import entry
from training.trainers.held_out_answers import Question
from training.trainers.model_io import adapter_config, load_model, load_tokenizer
from training.trainers.planned_run import PlannedRun, plan_run
from training.trainers.rows import IGNORED, read_view, tokenize_row, with_evaluation
from training.trainers.sample_order import forward_passes
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_head import score_labelled_tokens_only
from training.trainers.trl_ledger import carrying_places, with_places
from workspace.errors import UserError

REQUIRED = ("prompt", "chosen", "rejected")


class Pair(NamedTuple):
    """A prompt and two answers as tokens."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]

    @property
    def length(self) -> int:
        """Tokens of both sequences."""
        return 2 * len(self.prompt) + len(self.chosen) + len(self.rejected)

    @property
    def longest(self) -> int:
        return len(self.prompt) + max(len(self.chosen), len(self.rejected))


class Pairs(NamedTuple):
    rows: list[Pair]
    rejects: dict[str, int]


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Train to the end, or return None with a checkpoint written when a stop was asked for."""
    rows = read_view(spec.data, REQUIRED)
    tokenizer = load_tokenizer(spec.parent)
    pairs = usable_pairs(spec, tokenizer, rows)
    learned, held = with_evaluation(
        spec, pairs.rows, lambda unseen: usable_pairs(spec, tokenizer, unseen).rows
    )
    questions = (Question(pair.prompt, pair.chosen) for pair in held)
    lengths = [pair.length for pair in learned]
    run = plan_run(spec, stop, spec.dpo, lengths, tokenizer, questions)
    trainer = make_trainer(spec, tokenizer, learned, held, run)
    entry.run_trainer(spec, trainer, run.fed)
    return entry.finish(
        spec,
        run.callbacks.progress,
        trainer,
        tokenizer,
        rows=len(learned),
        rejects=pairs.rejects,
    )


def usable_pairs(spec: TrainSpec, tokenizer: Any, rows: list[dict[str, Any]]) -> Pairs:
    """The rows as tokens. Raises `UserError` when none can be used."""
    pairs = tokenize_pairs(tokenizer, rows, spec.dpo.max_length)
    if not pairs.rows:
        raise UserError(
            f"no pair of {', '.join(map(str, spec.data)) or 'the DPO view'} can be trained on "
            f"(left out: {pairs.rejects}); max_length is {spec.dpo.max_length}"
        )
    return pairs


def tokenize_pairs(tokenizer: Any, rows: Iterable[dict[str, Any]], max_length: int) -> Pairs:
    """Both answers after the prompt, as the chat template has them.

    Left out: `too_long` (a cut answer would teach stopping in the middle), `no_answer` (one of the
    answers is empty), `same` (the two are the same tokens).
    """
    kept: list[Pair] = []
    rejects: Counter[str] = Counter()
    for row in rows:
        pair = _tokenize(tokenizer, row)
        if not pair.chosen or not pair.rejected:
            rejects["no_answer"] += 1
        elif pair.chosen == pair.rejected:
            rejects["same"] += 1
        elif pair.longest > max_length:
            rejects["too_long"] += 1
        else:
            kept.append(pair)
    return Pairs(kept, dict(sorted(rejects.items())))


def _tokenize(tokenizer: Any, row: dict[str, Any]) -> Pair:
    chosen = tokenize_row(tokenizer, row["prompt"], row["chosen"])
    rejected = tokenize_row(tokenizer, row["prompt"], row["rejected"])
    # Where the answers begin: tokens may merge over the border in one of the two.
    start = min(chosen.labels.count(IGNORED), rejected.labels.count(IGNORED))
    return Pair(chosen.input_ids[:start], chosen.input_ids[start:], rejected.input_ids[start:])


def make_trainer(
    spec: TrainSpec,
    tokenizer: Any,
    rows: list[Pair],
    held: list[Pair],
    run: PlannedRun,
) -> Any:
    """TRL's trainer over the planned order of `rows`; `held` are evaluated on."""
    from trl import DPOConfig, DPOTrainer

    score_labelled_tokens_only()

    class TokenizedDpoTrainer(DPOTrainer):  # type: ignore[misc]
        """Takes rows that are tokens already."""

        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def training_step(
            self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
        ) -> Any:
            run.fed.note(inputs)
            return super().training_step(model, inputs, num_items_in_batch)

    settings = spec.dpo
    share = entry.rows_per_rank(settings.rows_per_step, "dpo.rows_per_step")
    passes = forward_passes(share, spec.rows_per_forward)
    adapter = adapter_config(spec)
    trainer = TokenizedDpoTrainer(
        model=load_model(spec),
        ref_model=load_model(spec) if adapter is None else None,
        peft_config=adapter,
        args=DPOConfig(
            **entry.common_arguments(spec),
            max_steps=run.plan.steps,
            per_device_train_batch_size=share // passes,
            per_device_eval_batch_size=share // passes,
            gradient_accumulation_steps=passes,
            learning_rate=settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            warmup_steps=round(settings.warmup_share * run.plan.steps),
            lr_scheduler_type="linear",
            beta=settings.beta,
            # The plan is the order: the trainer walks it from front to back, once.
            train_sampling_strategy="sequential",
            max_length=None,
        ),
        train_dataset=with_places(_as_dataset(rows).select(run.plan.order)),
        eval_dataset=_as_dataset(held) if held else None,
        processing_class=tokenizer,
        callbacks=run.callbacks.callbacks,
    )
    trainer.data_collator = carrying_places(trainer.data_collator)
    return trainer


def _as_dataset(rows: list[Pair]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "prompt_ids": [row.prompt for row in rows],
            "chosen_ids": [row.chosen for row in rows],
            "rejected_ids": [row.rejected for row in rows],
        }
    )


if __name__ == "__main__":
    sys.exit(entry.main(train))
