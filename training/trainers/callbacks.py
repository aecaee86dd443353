"""What is added to the Hugging Face trainers: safe checkpoints, stop at a step border, metrics.

`make_callbacks` imports transformers; call it inside a trainer process.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from training import checkpoints, metrics
from training.trainers.spec import TrainSpec
from training.trainers.stopping import StopRequest
from workspace.errors import UserError
from workspace.memory import trim_heap

TRIM_EVERY_STEPS = 4
_OWN_FIELDS = {"loss", "learning_rate", "grad_norm", "epoch", "num_tokens", "step_time"}


class Progress:
    """What the callbacks saw, for the trainer's end."""

    def __init__(self) -> None:
        self.stopped = False
        self.tokens = 0
        self.last: dict[str, float] = {}


class Callbacks(NamedTuple):
    progress: Progress
    callbacks: list[Any]


def make_callbacks(spec: TrainSpec, stop: StopRequest, *, epochs: float) -> Callbacks:
    """The callbacks in the order in which they must run. `epochs`: passes when all is done."""
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    progress = Progress()

    class StopAtStepBorder(TrainerCallback):  # type: ignore[misc]
        """Checkpoint and leave the loop when any rank was asked to."""

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            if state.global_step >= state.max_steps:
                # The model itself is published next; a checkpoint would cost three times its size.
                control.should_save = False
            elif stop.agreed():
                progress.stopped = True
                control.should_save = True
                control.should_training_stop = True

    class CompleteCheckpoints(TrainerCallback):  # type: ignore[misc]
        """Mark a save complete once every rank has written its part, then tidy up."""

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            wait_for_all_ranks()
            if not state.is_world_process_zero:
                return
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            checkpoints.complete(
                folder,
                step=state.global_step,
                attempt=spec.attempt,
                world_size=args.world_size,
                attempts=spec.attempt_dir.parent,
            )
            checkpoints.prune(spec.checkpoints, keep=spec.keep_checkpoints, attempt=spec.attempt)

    class WriteMetrics(TrainerCallback):  # type: ignore[misc]
        """Append each step's figures to the attempt's metrics file."""

        def __init__(self) -> None:
            self._since = time.monotonic()
            self._tokens_seen = 0

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._since = time.monotonic()
            # GRPO counts on from the checkpoint, SFT from zero; this is what either starts with.
            self._tokens_seen = int(state.num_input_tokens_seen)

        def on_log(
            self,
            args: TrainingArguments,
            state: TrainerState,
            control: TrainerControl,
            logs: dict[str, float],
            **_: Any,
        ) -> None:
            if "loss" not in logs:
                return
            if not math.isfinite(logs["loss"]):
                # Every rank sees the same mean and leaves; going on from the last checkpoint
                # would walk the same rows into the same hole.
                raise UserError(
                    f"the {spec.stage} loss is {logs['loss']} at step {state.global_step}: the "
                    f"training diverged. Lower {spec.stage}.learning_rate."
                )
            if not state.is_world_process_zero:
                return
            now = time.monotonic()
            seen = int(logs.get("num_tokens", 0))
            step = metrics.StepMetrics(
                stage=spec.stage,
                attempt=spec.attempt,
                step=state.global_step,
                total_steps=state.max_steps,
                epoch=epochs * state.global_step / state.max_steps,
                loss=float(logs["loss"]),
                learning_rate=float(logs.get("learning_rate", 0.0)),
                grad_norm=float(logs.get("grad_norm", 0.0)),
                tokens=seen - self._tokens_seen,
                seconds=now - self._since,
                extra=_finite_extras(logs),
            )
            self._since, self._tokens_seen = now, seen
            progress.tokens += step.tokens
            progress.last = {"loss": step.loss, **step.extra}
            metrics.append(spec.attempt_dir / metrics.METRICS_NAME, step)

    class ReturnFreeMemory(TrainerCallback):  # type: ignore[misc]
        """Give the heap's free pages back now and then: steps of other lengths fragment it."""

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            if not spec.use_gpu and state.global_step % TRIM_EVERY_STEPS == 0:
                trim_heap()

    added = [StopAtStepBorder(), CompleteCheckpoints(), WriteMetrics(), ReturnFreeMemory()]
    return Callbacks(progress, added)


def wait_for_all_ranks() -> None:
    """A barrier; nothing with one rank."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def _finite_extras(logs: dict[str, float]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in logs.items()
        if name not in _OWN_FIELDS and isinstance(value, (int, float)) and math.isfinite(value)
    }
