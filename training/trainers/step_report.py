"""What the fsdp trainer tells: metrics, the accountant's phases, services, the heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from training import metrics, phases
from training.cluster.heartbeat import Section, of_this_rank
from training.memory_watch import MemoryWatch
from training.mfu import mfu_of
from training.trainers.beats import ForwardClock
from training.trainers.ranks import Ranks
from training.trainers.reporting import Services
from training.trainers.schedule import Schedule
from training.trainers.sharded_model import blocks
from training.trainers.spec import TrainSpec

_PHASES: dict[Section, phases.PhaseName] = {
    Section.CHECKPOINT: "checkpoint",
    Section.EVALUATION: "evaluation",
}


class StepReport:
    """Of one rank. Files are written by rank 0 alone, the heartbeat by all."""

    def __init__(self, spec: TrainSpec, ranks: Ranks, schedule: Schedule, model: Any) -> None:
        self._spec, self._ranks, self._schedule = spec, ranks, schedule
        self._beat = of_this_rank()
        self._mfu = mfu_of(spec, ranks.world_size)
        self._services = Services(spec) if ranks.is_first else None
        # Inside a block no rank waits for another: weights are gathered before it.
        own = [part for block in blocks(model) for part in block.children()]
        self._own = None if spec.use_gpu else ForwardClock(*own)
        self._spent = dict.fromkeys(Section, 0.0)
        self._data_wait_s = 0.0
        self._since = time.monotonic()
        self.step_s = 0.0  # of the last step
        self.tokens = 0
        self.last: dict[str, float] = {}

    def begin(self) -> None:
        """Training begins: everything is loaded."""
        if self._ranks.is_first:
            phases.append(self._spec.attempt_dir, "load", phases.process_age_s())
        self._beat.section(Section.STEP)
        self._since = time.monotonic()

    @contextmanager
    def section(self, section: Section) -> Iterator[None]:
        """The block is no step: a save, or an evaluation."""
        self._beat.section(section)
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self._spent[section] += seconds
        if self._ranks.is_first:
            phases.append(self._spec.attempt_dir, _PHASES[section], seconds)
        self._beat.section(Section.STEP)

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """The block reads the samples of a step."""
        begun = time.monotonic()
        yield
        self._data_wait_s += time.monotonic() - begun

    def step(
        self,
        step: int,
        *,
        loss: float,
        norm: float,
        tokens: int,
        epoch: float,
        memory: MemoryWatch,
        extra: dict[str, float],
        is_saving: bool = False,
    ) -> None:
        """A step has ended. `is_saving`: while a thread of this rank was writing a checkpoint."""
        now, ended = time.monotonic(), time.time()
        seconds, self._since = now - self._since, now
        saving_s, evaluating_s = (self._spent[s] for s in (Section.CHECKPOINT, Section.EVALUATION))
        self.step_s = seconds - saving_s - evaluating_s
        self.tokens += tokens
        self.last = {"loss": loss, **extra}
        own_s = self._own.take() if self._own else None
        # Its own seconds are then the save's as well: no reason to call it slow.
        self._beat.step(step, None if is_saving else own_s)
        if self._ranks.is_first:
            figures = metrics.StepMetrics(
                stage=self._spec.stage,
                attempt=self._spec.attempt,
                step=step,
                total_steps=self._schedule.steps,
                epoch=epoch,
                loss=loss,
                learning_rate=self._schedule.rate(step),
                grad_norm=norm,
                tokens=tokens,
                seconds=seconds,
                data_wait_s=round(self._data_wait_s, 6),
                checkpoint_s=round(saving_s, 6),
                mfu=self._mfu(tokens, self.step_s),
                memory=memory.usage.as_metrics(),
                extra=extra,
                time=ended,
            )
            metrics.append(self._spec.attempt_dir / metrics.METRICS_NAME, figures)
            if self._services is not None:
                self._services.log(figures)
        self._spent = dict.fromkeys(Section, 0.0)
        self._data_wait_s = 0.0

    def end(self) -> None:
        """No more steps: the model is written next."""
        if self._services is not None:
            self._services.close()
        self._beat.section(Section.CHECKPOINT)
