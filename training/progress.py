"""What is known of a stage while it runs, for whoever looks on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.cluster.job import JobState, JobStatus
from training.metrics import MetricsFollower, StepMetrics
from training.run_events import RunEvent


@dataclass(frozen=True)
class TrainProgress:
    """What is known while a stage runs."""

    stage: str
    attempt: int
    state: JobState
    detail: str = ""
    step: int = 0
    total_steps: int = 0
    loss: float | None = None
    reward: float | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = None
    new_steps: tuple[StepMetrics, ...] = ()  # since the last call
    new_events: tuple[RunEvent, ...] = ()
    page: Path | None = None  # of the run, for people


class ProgressFollower:
    """Turns an attempt's new metric lines into progress."""

    def __init__(self, stage: str, attempt: int, metrics: MetricsFollower) -> None:
        self._stage = stage
        self._attempt = attempt
        self._metrics = metrics
        self._steps = self._tokens = 0
        self._seconds = 0.0
        self._last: StepMetrics | None = None

    def progress(self, status: JobStatus) -> TrainProgress:
        new = self._metrics.new()
        for step in new:
            self._steps += 1
            self._tokens += step.tokens
            self._seconds += step.seconds
            self._last = step
        last = self._last
        if last is None:
            return TrainProgress(self._stage, self._attempt, status.state, status.detail)
        return TrainProgress(
            self._stage,
            self._attempt,
            status.state,
            status.detail,
            step=last.step,
            total_steps=last.total_steps,
            loss=last.loss,
            reward=last.extra.get("reward"),
            tokens_per_s=self._tokens / self._seconds if self._seconds else None,
            eta_s=(last.total_steps - last.step) * self._seconds / self._steps,
            new_steps=tuple(new),
        )
