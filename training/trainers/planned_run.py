"""What the TRL trainers over a fixed set of rows begin with: the order, and who watches it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from training.trainers.callbacks import Callbacks, make_callbacks
from training.trainers.held_out_answers import HeldOutAnswers, Question, answering
from training.trainers.sample_order import StepPlan, plan_steps
from training.trainers.settings import DpoSettings, SftSettings
from training.trainers.spec import TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_ledger import Fed, ledger_callback


class PlannedRun(NamedTuple):
    """`fed` learns which rows reach the model."""

    plan: StepPlan
    callbacks: Callbacks
    fed: Fed


def plan_run(
    spec: TrainSpec,
    stop: StopRequest,
    settings: SftSettings | DpoSettings,
    lengths: Sequence[int],
    tokenizer: Any,
    questions: Iterable[Question],
) -> PlannedRun:
    """Plan the steps over rows of `lengths` tokens, their ledger, and whom evaluations ask what."""
    plan = plan_steps(
        lengths,
        rows_per_step=settings.rows_per_step,
        epochs=settings.epochs,
        token_budget=settings.token_budget,
        seed=spec.seed,
    ).at_most(settings.max_steps)
    callbacks = make_callbacks(spec, stop, epochs=plan.epochs)
    fed = Fed()
    ledger = ledger_callback(
        spec,
        fed,
        plan.order,
        rows_per_step=settings.rows_per_step,
        samples=len(lengths),
    )
    callbacks.callbacks.insert(0, ledger)
    if spec.evaluates:
        asked = HeldOutAnswers(spec, tokenizer, questions, total_steps=plan.steps)
        callbacks.callbacks.insert(0, answering(asked))
    return PlannedRun(plan, callbacks, fed)
