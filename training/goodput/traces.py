"""What a run's folder tells of its attempts' time.

    submitted   handle.json was written       started    started.json, or handle.json (local jobs)
    ended       exit.json, else outcome.json  steps      metrics.jsonl
    devices     job.json, nodes.txt           phases     phases.jsonl
    restarts    events.jsonl, where a generation of ranks "ended"

Steps without a time of their own (written by an older version) are laid end to end before the last
change of their file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from training.cluster.job import EXIT_DONE, EXIT_RESUME
from training.goodput.buckets import MICROSECONDS, Bucket, Span, StepSpan, Trace
from training.metrics import MetricsFollower, StepMetrics
from training.phases import Phase, read_phases
from training.run_record import StageFolder
from training.trainers.settings import StageName
from workspace.errors import CorruptWorkspaceError

_BUCKETS = {
    "load": Bucket.LOAD,
    "checkpoint": Bucket.CHECKPOINT,
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
    handle = folder / "handle.json"
    if not handle.exists():
        return None
    job = _json(folder / "job.json") or {}
    exit_record = _json(folder / "exit.json")
    submitted, started = _us(handle.stat().st_mtime), _started(folder, handle)
    ended, running = _ended(folder, exit_record, now)
    # Without GPUs a device is a core that the job was given.
    gpus = int(job.get("gpus_per_node", 0))
    cores = int(job.get("processes_per_node", 1)) * int(job.get("cpus_per_process", 1))
    nodes = int(job.get("nodes", 1))
    phases = read_phases(folder)
    return Trace(
        stage,
        number,
        submitted if started is None else min(submitted, started),
        started,
        ended,
        running,
        exit_record is not None and _orderly(exit_record),
        nodes,
        max(_count_nodes(folder), nodes),
        gpus or cores,
        _gpu_type(job) if gpus else None,
        tuple(_steps(folder)),
        tuple(_span(phase) for phase in phases),
        tuple(_us(phase.seconds) for phase in phases if phase.phase == "checkpoint"),
        tuple(_restarts(folder)),
    )


def _orderly(exit_record: dict[str, Any]) -> bool:
    """Whether the job ended by itself: done, or saved to go on later."""
    known = exit_record["exit_code"] in (EXIT_DONE, EXIT_RESUME)
    return known and not exit_record.get("terminated", False)


def _started(folder: Path, handle: Path) -> int | None:
    """When the job began; None while it waits in the queue."""
    record = _json(folder / "started.json")
    if record is not None:
        return _us(float(record["started"]))
    held = _json(handle) or {}
    return _us(handle.stat().st_mtime) if held.get("launcher") == "local" else None


def _ended(folder: Path, exit_record: dict[str, Any] | None, now: float) -> tuple[int, bool]:
    """When it was over, and whether it still runs."""
    if exit_record is not None:
        ended = exit_record.get("ended", (folder / "exit.json").stat().st_mtime)
        return _us(float(ended)), False
    outcome = folder / "outcome.json"
    return (_us(outcome.stat().st_mtime), False) if outcome.exists() else (_us(now), True)


def _steps(folder: Path) -> Iterator[StepSpan]:
    path = folder / "metrics.jsonl"
    metrics = MetricsFollower(path).new()
    if metrics and not metrics[0].time:
        metrics = _laid_out(metrics, path.stat().st_mtime)
    for step in metrics:
        yield StepSpan(_us(step.time - step.seconds), _us(step.time), step.step)


def _laid_out(metrics: list[StepMetrics], last: float) -> list[StepMetrics]:
    from dataclasses import replace

    placed = []
    for step in reversed(metrics):
        placed.append(replace(step, time=last))
        last -= step.seconds
    return placed[::-1]


def _span(phase: Phase) -> Span:
    return Span(_us(phase.ended - phase.seconds), _us(phase.ended), _BUCKETS[phase.phase])


def _restarts(folder: Path) -> Iterator[int]:
    try:
        lines = (folder / "events.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # torn by a crash
        if event.get("event") == "ended":
            yield _us(float(event["time"]))


def _count_nodes(folder: Path) -> int:
    try:
        return len((folder / "nodes.txt").read_text(encoding="utf-8").split())
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
