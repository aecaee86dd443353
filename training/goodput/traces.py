"""What a run's folder tells of its attempts' time.

    submitted   handle.json was written       started    started.json, or handle.json (local jobs)
    ended       exit.json, else outcome.json  steps      metrics.jsonl
    devices     job.json, nodes.txt           phases     phases.jsonl
    restarts    events.jsonl, where a generation of ranks "ended" other than in good order
    suspended   events.jsonl, where the job "stood_still"

Steps without a time of their own (written by an older version) are laid end to end before the last
change of their file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from training.attempt_history import OUTCOME_NAME
from training.cluster.evidence import ENDED
from training.cluster.job import EXIT_DONE, EXIT_RESUME
from training.cluster.local import EXIT_NAME, HANDLE_NAME
from training.cluster.recovery import Cause
from training.cluster.render import NODES_NAME, SPEC_NAME, STARTED_NAME
from training.cluster.standstill import STOOD_STILL
from training.cluster.successor import BEGAN_NAME, Verdict, read_verdict, successor_folder
from training.goodput.buckets import MICROSECONDS, Bucket, Span, StepSpan, Trace
from training.metrics import METRICS_NAME, MetricsFollower, StepMetrics
from training.phases import Phase, read_phases
from training.run_events import EVENTS_NAME, read_events
from training.run_record import StageFolder
from training.trainers.settings import StageName
from workspace.errors import CorruptWorkspaceError

_BUCKETS = {
    "load": Bucket.LOAD,
    "checkpoint": Bucket.CHECKPOINT,
    "evaluation": Bucket.EVALUATION,
    "publish": Bucket.CHECKPOINT,
}
_GPU_TYPE = re.compile(r"(?:^|,)gpu:([A-Za-z][\w.-]*)")


def read_traces(run: Path, now: float | None = None) -> list[Trace]:
    """Every attempt that was submitted, stage by stage, in the order of their numbers."""
    moment = time.time() if now is None else now
    traces = []
    for name in get_args(StageName):
        stage = StageFolder(run / name, name)
        numbers = sorted(int(p.name) for p in stage.attempts.glob("*") if p.name.isdigit())
        for number in numbers:
            trace = _read_trace(name, number, stage.attempt(number), moment)
            if trace is not None:
                traces.append(trace)
    return traces


def _read_trace(stage: str, number: int, folder: Path, now: float) -> Trace | None:
    handle = folder / HANDLE_NAME
    if not handle.exists():
        return None
    job = _json(folder / SPEC_NAME) or {}
    outcome = _json(folder / OUTCOME_NAME) or {}
    started = _started(folder, handle, outcome)
    submitted = float(outcome.get("submitted", handle.stat().st_mtime))
    ended, running = _ended(folder, outcome, now)
    # Without GPUs a device is a core that the job was given.
    gpus = int(job.get("gpus_per_node", 0))
    cores = int(job.get("processes_per_node", 1)) * int(job.get("cpus_per_process", 1))
    nodes = int(job.get("nodes", 1))
    phases = read_phases(folder)
    return Trace(
        stage,
        number,
        _us(submitted if started is None else min(submitted, started)),
        None if started is None else _us(started),
        _us(ended),
        running,
        _orderly(folder),
        nodes,
        max(_count_nodes(folder), nodes),
        gpus or cores,
        _gpu_type(job) if gpus else None,
        tuple(_steps(folder)),
        (*map(_span, phases), *_suspended(folder)),
        tuple(_us(phase.seconds) for phase in phases if phase.phase == "checkpoint"),
        tuple(_restarts(folder)),
        read_verdict(successor_folder(folder)) in (Verdict.TAKEN, Verdict.ALONE),
    )


def _orderly(folder: Path) -> bool:
    """Whether the job ended by itself: done, or saved to go on later."""
    record = _json(folder / EXIT_NAME) or {}
    known = record.get("exit_code") in (EXIT_DONE, EXIT_RESUME)
    return known and not record.get("terminated", False)


def _started(folder: Path, handle: Path, outcome: dict[str, Any]) -> float | None:
    """When the job began; None while it waits in the queue."""
    record = _json(folder / STARTED_NAME)
    if record is not None:
        waited = _json(folder / BEGAN_NAME)
        if waited is not None and waited["job_id"] == record.get("job_id"):
            # A successor holds its nodes while it waits for a supervisor's word: start-up, paid.
            return float(waited["began"])
        return float(record["started"])
    if (_json(handle) or {}).get("launcher") == "local":
        return handle.stat().st_mtime
    # The job's own word is not there: it began where the supervisor saw it run.
    return outcome["submitted"] + outcome["queued_s"] if outcome.get("seconds") else None


def _ended(folder: Path, outcome: dict[str, Any], now: float) -> tuple[float, bool]:
    """When it was over, and whether it still runs."""
    exit_file = folder / EXIT_NAME
    record = _json(exit_file)
    if record is not None:
        return float(record.get("ended", exit_file.stat().st_mtime)), False
    if "submitted" in outcome:
        return outcome["submitted"] + outcome["queued_s"] + outcome["seconds"], False
    return now, True


def _steps(folder: Path) -> Iterator[StepSpan]:
    path = folder / METRICS_NAME
    metrics = MetricsFollower(path).new()
    if metrics and not metrics[0].time:
        metrics = _laid_out(metrics, path.stat().st_mtime)
    for step in metrics:
        yield StepSpan(_us(step.time - step.seconds), _us(step.time), step.step)


def _laid_out(metrics: list[StepMetrics], last: float) -> list[StepMetrics]:
    placed = []
    for step in reversed(metrics):
        placed.append(replace(step, time=last))
        last -= step.seconds
    return placed[::-1]


def _span(phase: Phase) -> Span:
    return Span(_us(phase.ended - phase.seconds), _us(phase.ended), _BUCKETS[phase.phase])


def _restarts(folder: Path) -> Iterator[int]:
    for event in read_events(folder / EVENTS_NAME):
        if event.event == ENDED and event.facts.get("cause") not in (Cause.DONE, Cause.STOPPED):
            yield _us(event.time)


def _suspended(folder: Path) -> Iterator[Span]:
    for event in read_events(folder / EVENTS_NAME):
        if event.event == STOOD_STILL:
            started = event.time - event.facts["seconds"]
            yield Span(_us(started), _us(event.time), Bucket.SUSPENDED)


def _count_nodes(folder: Path) -> int:
    try:
        return len((folder / NODES_NAME).read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return 0


def _gpu_type(job: dict[str, Any]) -> str:
    match = _GPU_TYPE.search(str(job.get("slurm", {}).get("gres", "")))
    return match[1].lower() if match else ""


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptWorkspaceError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise CorruptWorkspaceError(f"{path} must hold a JSON object")
    return values
