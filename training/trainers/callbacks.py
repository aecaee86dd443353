"""What is added to the Hugging Face trainers: safe checkpoints, stop at a step border, metrics.

`make_callbacks` imports transformers; call it inside a trainer process.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from training import checkpoints, metrics, phases
from training.memory_watch import MemoryWatch
from training.mfu import mfu_of
from training.trainers import model_io
from training.trainers.beats import beating
from training.trainers.limits import HourLimit, evaluations_without_gain
from training.trainers.save_interval import SAVE_INTERVAL_NAME, SaveSchedule
from training.trainers.spec import TrainSpec
from training.trainers.stopping import StopRequest, of_rank_zero
from workspace.errors import UserError
from workspace.memory import HeapTrimmer

_OWN_FIELDS = {"loss", "learning_rate", "grad_norm", "epoch", "num_tokens", "step_time"}


class Progress:
    """What the callbacks saw, for the trainer's end."""

    def __init__(self) -> None:
        self.stopped = False
        self.ended_by = "budget"
        self.steps = 0
        self.tokens = 0
        self.last: dict[str, float] = {}
        self.save_stall_s = 0.0  # by saves since the last line of metrics


class Callbacks(NamedTuple):
    progress: Progress
    callbacks: list[Any]


def make_callbacks(spec: TrainSpec, stop: StopRequest, *, epochs: float) -> Callbacks:
    """The callbacks in the order in which they must run. `epochs`: passes when all is done."""
    progress = Progress()
    memory = MemoryWatch(spec.attempt_dir, rank=rank(), settings=spec.memory, gpu=spec.use_gpu)
    added = [
        _free_memory(spec),  # before the watch: what is free is not held
        _watching(memory, stop),
        _stopping(spec, stop, progress),
        _early_end(spec, progress),
        _saving(spec, progress),
        _metrics(spec, progress, memory, epochs),
        beating(use_gpu=spec.use_gpu),
    ]
    return Callbacks(progress, added)


def _watching(memory: MemoryWatch, stop: StopRequest) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class WatchMemory(TrainerCallback):  # type: ignore[misc]
        """Tell a leak, and ask for a new start before the memory's limit."""

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            memory.after_step(state.global_step, state.max_steps)
            if memory.wants_restart:
                stop.request()

    return WatchMemory()


def _stopping(spec: TrainSpec, stop: StopRequest, progress: Progress) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class StopAtStepBorder(TrainerCallback):  # type: ignore[misc]
        """Leave the loop when any rank was asked to, or when hours or tokens are used up."""

        def __init__(self) -> None:
            self._hours = HourLimit(spec)

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._hours.start()

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            progress.steps = state.global_step
            if state.global_step >= state.max_steps:
                return
            if stop.agreed():
                progress.stopped = True
                control.should_training_stop = True
            elif self._hours.is_up():
                progress.ended_by = "hours"
                control.should_training_stop = True
            elif _tokens_are_used_up(spec, state.num_input_tokens_seen):
                control.should_training_stop = True

    return StopAtStepBorder()


def _tokens_are_used_up(spec: TrainSpec, seen: int) -> bool:
    """Whether rlvr has `seen` its budget; the other stages plan their steps by theirs.

    TRL gathers the number from all ranks, so that all of them leave, and checkpoints hold it.
    """
    budget = spec.rlvr.token_budget if spec.stage == "rlvr" else 0
    return 0 < budget <= seen


def _early_end(spec: TrainSpec, progress: Progress) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class EndWithoutGain(TrainerCallback):  # type: ignore[misc]
        """Keep the best weights, and end after `patience` evaluations without a lower loss."""

        def on_evaluate(
            self,
            args: TrainingArguments,
            state: TrainerState,
            control: TrainerControl,
            model: Any = None,
            **_: Any,
        ) -> None:
            if not spec.keeps_best:
                return
            # A checkpoint holds the history, so that a resumed run counts on.
            losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
            behind = evaluations_without_gain(losses)
            if behind == 0 and state.is_world_process_zero:
                model_io.keep_best(spec, model)
            if behind >= spec.evaluation.patience and not progress.stopped:
                progress.ended_by = "patience"
                control.should_training_stop = True

    return EndWithoutGain()


def _saving(spec: TrainSpec, progress: Progress) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class SaveInTime(TrainerCallback):  # type: ignore[misc]
        """Save when it is due; mark a save complete once every rank has written its part."""

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._schedule = SaveSchedule(
                spec.checkpoint_every_steps,
                spec.mtbf_s,
                spec.stage_dir / SAVE_INTERVAL_NAME,
                writes=state.is_world_process_zero,
                agree=of_rank_zero,
            )

        def on_step_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._step_began = time.monotonic()

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._save_began = time.monotonic()
            due = self._schedule.is_due(state.global_step, self._save_began - self._step_began)
            if control.should_training_stop:
                # The model itself is published next, unless the run is to go on; a checkpoint
                # would cost three times its size. Hours that are used up cannot be trained again.
                due = progress.stopped or progress.ended_by == "hours"
            control.should_save = due

        def on_evaluate(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._save_began = time.monotonic()

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            wait_for_all_ranks()
            if state.is_world_process_zero:
                checkpoints.complete(
                    Path(args.output_dir) / f"checkpoint-{state.global_step}",
                    step=state.global_step,
                    attempt=spec.attempt,
                    world_size=args.world_size,
                    attempts=spec.attempt_dir.parent,
                    about=_about(spec, state.global_step),
                )
                checkpoints.prune(
                    spec.checkpoints, keep=spec.keep_checkpoints, attempt=spec.attempt
                )
            stalled_s = time.monotonic() - self._save_began
            if state.is_world_process_zero:
                phases.append(spec.attempt_dir, "checkpoint", stalled_s)
            progress.save_stall_s += stalled_s
            self._schedule.saved(state.global_step, stalled_s)

    return SaveInTime()


def _metrics(spec: TrainSpec, progress: Progress, memory: MemoryWatch, epochs: float) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class WriteMetrics(TrainerCallback):  # type: ignore[misc]
        """Append each step's figures to the attempt's metrics file."""

        def __init__(self) -> None:
            self._since = self._idle_since = time.monotonic()
            self._data_wait_s = self._evaluating_s = 0.0
            self._tokens_seen = 0
            self._held: metrics.StepMetrics | None = None

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._mfu = mfu_of(spec, args.world_size)
            self._since = self._idle_since = time.monotonic()
            if state.is_world_process_zero:
                phases.append(spec.attempt_dir, "load", phases.process_age_s())
            # GRPO counts on from the checkpoint, SFT from zero; this is what either starts with.
            self._tokens_seen = int(state.num_input_tokens_seen)

        def on_step_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            # The trainer does nothing but fetch the batch since the last callback.
            self._data_wait_s += time.monotonic() - self._idle_since

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._idle_since = time.monotonic()

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._idle_since = time.monotonic()

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
            now, ended = time.monotonic(), time.time()
            self._idle_since = now
            seen = int(logs.get("num_tokens", 0))
            tokens, seconds = seen - self._tokens_seen, now - self._since
            at_work_s = seconds - progress.save_stall_s - self._evaluating_s
            step = metrics.StepMetrics(
                stage=spec.stage,
                attempt=spec.attempt,
                step=state.global_step,
                total_steps=state.max_steps,
                epoch=epochs * state.global_step / state.max_steps,
                loss=float(logs["loss"]),
                learning_rate=float(logs.get("learning_rate", 0.0)),
                grad_norm=float(logs.get("grad_norm", 0.0)),
                tokens=tokens,
                seconds=seconds,
                data_wait_s=round(self._data_wait_s, 6),
                checkpoint_s=round(progress.save_stall_s, 6),
                mfu=self._mfu(tokens, at_work_s),
                memory=memory.usage.as_metrics(),
                extra=_finite_extras(logs),
                time=ended,
            )
            self._since, self._tokens_seen = now, seen
            self._data_wait_s = self._evaluating_s = progress.save_stall_s = 0.0
            progress.tokens += step.tokens
            if control.should_evaluate:
                self._held = step  # its line waits for the evaluation, which comes next
            else:
                self._write(step)

        def on_evaluate(
            self,
            args: TrainingArguments,
            state: TrainerState,
            control: TrainerControl,
            metrics: dict[str, float],
            **_: Any,
        ) -> None:
            self._evaluating_s = time.monotonic() - self._idle_since
            if state.is_world_process_zero:
                phases.append(spec.attempt_dir, "evaluation", self._evaluating_s)
            self._idle_since = time.monotonic()
            if self._held is not None:
                loss = {"eval_loss": float(metrics["eval_loss"])}
                self._write(replace(self._held, extra={**self._held.extra, **loss}))
                self._held = None

        def _write(self, step: metrics.StepMetrics) -> None:
            progress.last = {"loss": step.loss, **step.extra}
            metrics.append(spec.attempt_dir / metrics.METRICS_NAME, step)

    return WriteMetrics()


def _about(spec: TrainSpec, step: int) -> dict[str, Any]:
    """What a checkpoint's manifest says of the samples and of what may change the last bits."""
    import torch

    return {
        "format": "trl",
        "stage": spec.stage,
        "seed": spec.seed,
        "rows_per_step": spec.rows_per_step,
        "cursor": step * spec.rows_per_step,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
    }


def _free_memory(spec: TrainSpec) -> Any:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    heap = HeapTrimmer()

    class ReturnFreeMemory(TrainerCallback):  # type: ignore[misc]
        """Give the heap's free pages back now and then: steps of other lengths fragment it."""

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            if not spec.use_gpu:
                heap.between_rounds()

    return ReturnFreeMemory()


def rank() -> int:
    """This process's, as torchrun says."""
    return int(os.environ.get("RANK", "0"))


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
