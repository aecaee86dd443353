"""What each step of the fsdp trainer does, as plain functions of its number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.trainers.sample_order import count_steps
from training.trainers.samples import Samples
from training.trainers.spec import TrainSpec


@dataclass(frozen=True)
class Schedule:
    """The stage's settings, in one form for `cpt` and `sft`."""

    steps: int
    rows_per_step: int  # over all ranks
    tokens_per_forward: int  # of one rank
    peak_rate: float
    warmup_steps: int
    final_rate_share: float
    is_cosine: bool
    weight_decay: float
    max_grad_norm: float
    async_save: bool

    def rate(self, step: int) -> float:
        """The learning rate of `step`, 1-based: as transformers' schedules have it."""
        done = step - 1
        if done < self.warmup_steps:
            return self.peak_rate * done / self.warmup_steps
        left = max(1, self.steps - self.warmup_steps)
        progress = (done - self.warmup_steps) / left
        share = (1 + math.cos(math.pi * progress)) / 2 if self.is_cosine else 1 - progress
        return self.peak_rate * (self.final_rate_share + (1 - self.final_rate_share) * share)

    def epochs(self, step: int, samples: int) -> float:
        """Passes over the samples after `step`."""
        return step * self.rows_per_step / samples


def schedule_of(spec: TrainSpec, samples: Samples) -> Schedule:
    """The schedule of a stage over these samples."""
    is_cpt = spec.stage == "cpt"
    settings = spec.cpt if is_cpt else spec.sft
    steps = count_steps(
        samples.lengths.tolist(),
        rows_per_step=settings.rows_per_step,
        epochs=settings.epochs,
        token_budget=settings.token_budget,
        seed=spec.seed,
    )
    if settings.max_steps:
        steps = min(steps, settings.max_steps)
    return Schedule(
        steps=steps,
        rows_per_step=settings.rows_per_step,
        tokens_per_forward=(
            spec.micro_batch * spec.cpt.sequence_length if is_cpt else spec.tokens_per_forward
        ),
        peak_rate=settings.learning_rate,
        warmup_steps=round(settings.warmup_share * steps),
        final_rate_share=spec.cpt.final_rate_share if is_cpt else 0.0,
        is_cosine=is_cpt,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        async_save=spec.cpt.async_save if is_cpt else True,
    )
