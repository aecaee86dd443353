"""The time of one attempt, cut into buckets: pure arithmetic over spans of time.

Times are whole microseconds, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MICROSECONDS = 1_000_000


class Bucket(StrEnum):
    """What a device did in a second that somebody pays for (QUEUE: waited for, not paid)."""

    PRODUCTIVE = "productive"  # steps trained for the first time
    RECOMPUTE = "recompute"  # steps trained again after a failure
    EVALUATION = "evaluation"  # the loss on rows that are not trained on, also when taken again
    CHECKPOINT = "checkpoint"  # steps wait for a save, or the result is being written
    LOAD = "load"  # the trainer's preparation: libraries, rows, model, checkpoint
    STARTUP = "startup"  # a job or its ranks start, or end in good order
    STALLED = "stalled"  # no step, no phase: a failure before it was noticed, a hang
    SUSPENDED = "suspended"  # the job stood still: Slurm stopped its processes for a while
    IDLE_SPARE = "idle_spare"  # allocated nodes that were held in reserve
    QUEUE = "queue"  # submitted, not started


MEANINGS = {
    Bucket.PRODUCTIVE: "steps trained for the first time",
    Bucket.RECOMPUTE: "steps trained again after a failure",
    Bucket.EVALUATION: "the loss on unseen rows",
    Bucket.CHECKPOINT: "waiting for a save",
    Bucket.LOAD: "libraries, rows, model, checkpoint",
    Bucket.STARTUP: "jobs and ranks starting or ending",
    Bucket.STALLED: "no progress: unnoticed failures, hangs",
    Bucket.SUSPENDED: "the job's processes were stopped",
    Bucket.IDLE_SPARE: "nodes held in reserve",
    Bucket.QUEUE: "waiting for nodes (not paid)",
}

# A later one wins where spans overlap: saves and evaluations lie inside a step's time, and what
# was going on when a job was suspended went on afterwards.
_PRIORITY = (
    Bucket.STALLED,
    Bucket.STARTUP,
    Bucket.LOAD,
    Bucket.PRODUCTIVE,
    Bucket.RECOMPUTE,
    Bucket.EVALUATION,
    Bucket.CHECKPOINT,
    Bucket.SUSPENDED,
)


class Span(NamedTuple):
    """From `start` to `end`, in microseconds of the epoch."""

    start: int
    end: int
    bucket: Bucket


class StepSpan(NamedTuple):
    """One optimizer step."""

    start: int
    end: int
    step: int


@dataclass(frozen=True)
class Trace:
    """What is known of an attempt. Times in microseconds of the epoch.

    `started` None: still queued, or given up there. `restarts` are the moments at which a
    generation of ranks was known to be over. `devices` are those of one node.
    """

    stage: str
    attempt: int
    submitted: int
    started: int | None
    ended: int
    running: bool = False
    orderly: bool = False  # ended by itself (exit 0 or 75)
    nodes: int = 1  # that train
    nodes_allocated: int = 1
    devices: int = 1
    gpu: str | None = None  # its type, "" for an unknown one, None: the devices are CPU cores
    steps: tuple[StepSpan, ...] = ()
    phases: tuple[Span, ...] = ()
    saves: tuple[int, ...] = ()  # how long each checkpoint held the steps up
    restarts: tuple[int, ...] = ()
    waited_behind: bool = False  # its job was queued while the attempt before it ran


def cut(start: int, end: int, spans: Iterable[Span]) -> dict[Bucket, int]:
    """Microseconds by bucket between `start` and `end`; what no span covers is STALLED.

    The values add up to `end - start` exactly, whatever the spans.
    """
    levels = {bucket: level for level, bucket in enumerate(_PRIORITY)}
    changes: list[tuple[int, int, int]] = []
    for span in spans:
        first, last = max(span.start, start), min(span.end, end)
        if first < last:
            changes += ((first, 1, levels[span.bucket]), (last, -1, levels[span.bucket]))
    active = [1, *[0] * (len(_PRIORITY) - 1)]
    found = dict.fromkeys(_PRIORITY, 0)
    at = start
    for moment, change, level in sorted(changes):
        found[_top(active)] += moment - at
        at = moment
        active[level] += change
    found[_PRIORITY[0]] += max(end - at, 0)
    return found


def _top(active: Sequence[int]) -> Bucket:
    return next(bucket for bucket, n in zip(_PRIORITY[::-1], active[::-1], strict=True) if n)


def attempt_time(trace: Trace, trained: int) -> dict[Bucket, int]:
    """Device-microseconds of an attempt by bucket; `trained` is the newest step before it."""
    queue = (trace.ended if trace.started is None else trace.started) - trace.submitted
    devices = trace.nodes * trace.devices
    result = dict.fromkeys(Bucket, 0)
    result[Bucket.QUEUE] = max(queue, 0) * devices
    if trace.started is None:
        return result
    end = max(trace.ended, trace.started)
    spans = [*_step_spans(trace.steps, trained), *trace.phases]
    spans += _edges(trace, spans, end)
    for bucket, microseconds in cut(trace.started, end, spans).items():
        result[bucket] = microseconds * devices
    spare = max(trace.nodes_allocated - trace.nodes, 0) * trace.devices
    result[Bucket.IDLE_SPARE] = spare * (end - trace.started)
    return result


def newest_step(trace: Trace, before: int) -> int:
    """The highest step number that was trained up to this attempt's end."""
    return max((step.step for step in trace.steps), default=before)


def allocated(trace: Trace) -> int:
    """Device-microseconds that the attempt's job held."""
    if trace.started is None:
        return 0
    nodes = max(trace.nodes_allocated, trace.nodes)
    return nodes * trace.devices * (max(trace.ended, trace.started) - trace.started)


def _step_spans(steps: Sequence[StepSpan], trained: int) -> list[Span]:
    spans = []
    for step in steps:
        bucket = Bucket.PRODUCTIVE if step.step > trained else Bucket.RECOMPUTE
        spans.append(Span(step.start, step.end, bucket))
        trained = max(trained, step.step)
    return spans


def _edges(trace: Trace, work: Sequence[Span], end: int) -> list[Span]:
    """Starts of the job and of its generations of ranks, and what follows the last work."""
    assert trace.started is not None
    begins = sorted(span.start for span in work)
    spans = []
    for moment in (trace.started, *trace.restarts):
        following = next((begin for begin in begins if begin >= moment), None)
        if following is not None:
            spans.append(Span(moment, following, Bucket.STARTUP))
        elif moment == trace.started and not work:
            spans.append(Span(moment, end, Bucket.STARTUP))  # it never got to work
    if work:
        spans += _tail(trace, max(span.end for span in work), end)
    return spans


def _tail(trace: Trace, last: int, end: int) -> list[Span]:
    if trace.orderly:
        return [Span(last, end, Bucket.STARTUP)]
    if trace.running and trace.steps:
        # The step under way, unless it takes far longer than the last ones did.
        usual = max(step.end - step.start for step in trace.steps[-10:])
        return [Span(last, min(end, last + 3 * usual), Bucket.PRODUCTIVE)]
    return []


def add(parts: Iterable[Mapping[Bucket, int]]) -> dict[Bucket, int]:
    """Sums by bucket."""
    total = dict.fromkeys(Bucket, 0)
    for part in parts:
        for bucket, value in part.items():
            total[bucket] += value
    return total
