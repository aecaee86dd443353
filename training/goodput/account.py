"""The account of a run: seconds of devices by bucket, shares, money."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from training.goodput.buckets import (
    MICROSECONDS,
    Bucket,
    Trace,
    add,
    allocated,
    attempt_time,
    newest_step,
)
from training.goodput.forecast import Rhythm
from training.goodput.prices import PriceTable
from training.goodput.traces import read_traces
from workspace.errors import UserError


@dataclass(frozen=True)
class AttemptAccount:
    """One attempt. Times in device-microseconds, so that they add up exactly."""

    trace: Trace
    time: dict[Bucket, int]

    @property
    def allocated(self) -> int:
        """What its job held, the queue left out."""
        return allocated(self.trace)

    def cost(self, prices: PriceTable) -> float:
        """Of everything that was allocated."""
        return self.allocated / MICROSECONDS / 3600 * prices.per_hour(self.trace.gpu)


@dataclass(frozen=True)
class RunAccount:
    """All attempts of a run."""

    run: str
    attempts: tuple[AttemptAccount, ...]

    @cached_property
    def time(self) -> dict[Bucket, int]:
        """Device-microseconds by bucket; all but QUEUE add up to `allocated` exactly."""
        return add(attempt.time for attempt in self.attempts)

    @property
    def device_seconds(self) -> dict[Bucket, float]:
        return {bucket: value / MICROSECONDS for bucket, value in self.time.items()}

    @property
    def allocated(self) -> int:
        """Device-microseconds that its jobs held."""
        return sum(attempt.allocated for attempt in self.attempts)

    @property
    def goodput(self) -> float | None:
        """Productive share of what was allocated; None before anything was."""
        return self.time[Bucket.PRODUCTIVE] / self.allocated if self.allocated else None

    @property
    def ettr(self) -> float | None:
        """Effective training time ratio: productive share of the time in the queue or in a job,
        counted in devices that were to train (spares left out)."""
        wanted = self.allocated - self.time[Bucket.IDLE_SPARE] + self.time[Bucket.QUEUE]
        return self.time[Bucket.PRODUCTIVE] / wanted if wanted else None

    @property
    def failures(self) -> int:
        """Attempts and generations of ranks that did not end by themselves."""
        return sum(
            len(trace.restarts) or int(not trace.running and not trace.orderly)
            for trace in self._started
        )

    @property
    def rhythm(self) -> Rhythm:
        """How it saved and recovered."""
        saves = [save for attempt in self.attempts for save in attempt.trace.saves]
        if not saves:
            return Rhythm(None, None, self._recovery_s())
        trained = sum(
            (a.time[Bucket.PRODUCTIVE] + a.time[Bucket.RECOMPUTE])
            / (a.trace.nodes * a.trace.devices)
            for a in self.attempts
        )
        return Rhythm(
            statistics.fmean(saves) / MICROSECONDS,
            trained / len(saves) / MICROSECONDS or None,
            self._recovery_s(),
        )

    def cost(self, prices: PriceTable) -> float:
        return sum(attempt.cost(prices) for attempt in self.attempts)

    @property
    def _started(self) -> list[Trace]:
        return [a.trace for a in self.attempts if a.trace.started is not None]

    def _recovery_s(self) -> float | None:
        """Mean time from a failure's last step to the next one; None when none was seen."""
        lost = [
            later - earlier
            for first, second in pairwise(self._started)
            if first.stage == second.stage and not first.orderly and first.steps and second.steps
            for earlier, later in ((first.steps[-1].end, second.steps[0].start),)
        ]
        for trace in self._started:
            for moment in trace.restarts:
                before = [step.end for step in trace.steps if step.end <= moment]
                after = [step.start for step in trace.steps if step.start >= moment]
                if before and after:
                    lost.append(after[0] - before[-1])
        return statistics.fmean(lost) / MICROSECONDS if lost else None


def account_run(run: Path, now: float | None = None) -> RunAccount:
    """The account of the run in folder `run`, up to `now` (epoch seconds) while it goes on.

    Raises `UserError` when there is no such run.
    """
    if not (run / "run.json").exists():
        raise UserError(f"{run} is not the folder of a run: there is no run.json in it")
    return account(run.resolve().name, read_traces(run, now))


def account(run: str, traces: Sequence[Trace]) -> RunAccount:
    """The account of these attempts, which stand in the order in which they ran."""
    attempts = []
    trained: dict[str, int] = {}
    for trace in traces:
        before = trained.get(trace.stage, 0)
        attempts.append(AttemptAccount(trace, attempt_time(trace, before)))
        trained[trace.stage] = max(before, newest_step(trace, before))
    return RunAccount(run, tuple(attempts))
