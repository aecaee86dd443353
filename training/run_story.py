"""A run in plain words: its state in one sentence, what happened, its attempts.

In: `run.json`, `events.jsonl`, the attempts' `outcome.json` and metrics of a run's folder.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from training.attempt_history import OUTCOME_NAME
from training.metrics import History, read_history
from training.run_events import EVENTS_NAME, RunEvent, described, read_events
from training.run_record import RunFolder, RunRecord, StageFolder
from training.trainers.settings import StageName
from workspace.manifest import read_manifest

STAGE_TITLES: Final[dict[StageName, str]] = {
    "cpt": "Continued pre-training",
    "sft": "Supervised fine-tuning",
    "dpo": "Preference optimisation",
    "rlvr": "Reinforcement learning",
}
_RECENT: Final = 50  # steps whose median is the time of a step
_SILENT_S: Final = 180.0
_SILENT_STEPS: Final = 10
_MOST_EVENTS: Final = 400

Mood = Literal["good", "bad", "plain"]

# What the machine calls it -> what people call it.
_WORDS: Final[dict[str, str]] = {
    "submitted": "Job submitted",
    "reattached": "The supervisor is back",
    "running": "The job runs",
    "started": "Training starts",
    "ended": "The ranks ended",
    "attempt_ended": "The job ended",
    "finished": "The stage is finished",
    "decided": "What follows",
    "blamed": "A node is blamed",
    "waiting": "Waiting for nodes",
    "scheduler_silent": "Slurm does not answer",
    "scheduler_back": "Slurm answers again",
    "asked_to_leave": "The ranks are asked to save and end",
    "hang": "A rank hangs",
    "straggler": "A rank is slow",
    "straggler_leaves": "A slow node is replaced",
    "node_lost": "A node is lost",
    "spare_used": "A spare takes over",
    "agents_missing": "Nodes did not come up",
    "node_unfit": "A node is not fit",
    "node_unwell": "A node is not well",
    "node_well": "A node is well again",
    "links": "The links between the nodes",
    "bad_link": "A link is bad",
    "cut_off": "Most nodes are silent at once",
    "stood_still": "The job stood still",
    "orphans_ended": "Leftovers of earlier ranks ended",
    "successor_queued": "The next job waits behind this one",
    "successor_took_over": "The waiting job takes over",
    "successor_alone": "The waiting job goes on alone",
    "successor_withdrawn": "The waiting job is taken out",
    "successor_refused": "No job waits behind this one",
    "memory_leak": "Memory leaks",
    "memory_restart": "Restart before memory runs out",
    "memory_short": "Memory is short",
}
_BAD: Final = {
    "attempt_ended", "blamed", "hang", "straggler", "node_lost", "agents_missing", "node_unfit",
    "cut_off", "memory_leak", "memory_restart", "memory_short", "scheduler_silent",
}  # fmt: skip


@dataclass(frozen=True)
class StoryLine:
    """One thing that happened."""

    time: str
    title: str
    detail: str
    nodes: str
    place: str  # stage and attempt
    mood: Mood


@dataclass(frozen=True)
class AttemptLine:
    """One attempt: its row in the table. `folder` is relative to the run's."""

    stage: str
    number: int
    submitted: str
    queued: str
    ran: str
    ended: str
    checkpoint: str
    decision: str
    folder: str
    logs: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """The header. `share`: of the running stage's steps, None when there is no such thing."""

    sentence: str
    mood: Mood
    running: bool
    share: float | None = None


@dataclass(frozen=True)
class Told:
    """A run as its story stands now."""

    state: State
    attempts: list[AttemptLine]
    lines: list[StoryLine]
    older: int  # lines before those


def tell(run: Path) -> Told | None:
    """The story of the run in folder `run`, or None when there is no run in it."""
    folder = RunFolder(run)
    record = folder.read_record()
    if record is None:
        return None
    histories = {name: read_history(folder.stage(name).root) for name in record.stages}
    state = state_of(folder, record, histories, time.time())
    return Told(state, attempts_of(folder, record), *story_of(folder))


def state_of(
    folder: RunFolder, record: RunRecord, histories: dict[StageName, History], now: float
) -> State:
    """Where the run stands at `now` (seconds of the epoch)."""
    manifest = read_manifest(folder.final)
    if manifest is not None:
        steps = sum(len(history.steps) for history in histories.values())
        attempts = sum(folder.stage(name).latest_attempt() for name in record.stages)
        trained = sum(step.seconds for h in histories.values() for step in h.steps)
        return State(
            f"Finished: {steps:,} steps in {spoken(trained)} of training, {attempts} "
            f"{_plural('attempt', attempts)}",
            "good",
            running=False,
        )
    open_stages = [name for name in record.stages if folder.stage(name).outcome() is None]
    if not open_stages:
        return State("All stages are done; the model is being published", "good", running=True)
    stage = folder.stage(open_stages[0])
    title = STAGE_TITLES[stage.stage]
    number = stage.latest_attempt()
    if not number:
        return State(f"{title} has not started yet", "plain", running=True)
    return _state_of_stage(stage, title, number, histories[stage.stage], now)


def _state_of_stage(
    stage: StageFolder, title: str, number: int, history: History, now: float
) -> State:
    steps = history.steps
    reached = steps[-1].step if steps else 0
    total = steps[-1].total_steps if steps else 0
    where = f"step {reached:,} of {total:,}" if total else "before its first step"
    share = reached / total if total else None
    outcome = _outcome(stage.attempt(number))
    if outcome is not None:
        decision = outcome["decision"]
        if decision["action"] != "stop":
            said = f"{title}, {where}: attempt {number} ended, another one follows"
            return State(said, "bad", running=True, share=share)
        reason = decision["reason"]
        if reason == "stopped on request":
            said = f"Stopped on request at {where} of {title.lower()}; the same command goes on"
            return State(said, "plain", running=False, share=share)
        return State(f"Given up at {where} of {title.lower()}: {reason}", "bad", False, share)
    own = [step for step in steps if step.attempt == number]
    if not own:
        said = f"Attempt {number} is queued or starting"
        return State(f"{title}, {where}: {said.lower()}", "plain", running=True, share=share)
    last = own[-1]
    step_s = median(step.seconds for step in own[-_RECENT:])
    quiet_s = now - last.time if last.time else 0.0
    if quiet_s > max(_SILENT_S, _SILENT_STEPS * step_s):
        said = f"No step for {spoken(quiet_s)}: {title.lower()}, {where}"
        return State(said, "bad", running=True, share=share)
    left = spoken((last.total_steps - last.step) * step_s)
    return State(f"Running: {title.lower()}, {where}, about {left} left", "good", True, share)


def story_of(folder: RunFolder) -> tuple[list[StoryLine], int]:
    """The newest lines of the run's events, oldest first, and how many older ones there are."""
    events = read_events(folder.root / EVENTS_NAME)
    return [_line(event) for event in events[-_MOST_EVENTS:]], max(0, len(events) - _MOST_EVENTS)


def _line(event: RunEvent) -> StoryLine:
    done = event.facts.get("cause") in ("done", "stopped")
    mood: Mood = "plain"
    if event.event == "finished" or (event.event == "ended" and event.facts.get("cause") == "done"):
        mood = "good"
    elif not done and (event.event in _BAD or event.event == "ended"):
        mood = "bad"
    place = f"{event.stage}, attempt {event.attempt}" if event.stage else ""
    if event.generation > 1:
        place += f", start {event.generation}"
    known = _WORDS.get(event.event)
    return StoryLine(
        at(event.time),
        known or described(RunEvent(0.0, event.event)).capitalize(),
        event.detail,
        ", ".join(event.nodes),
        place,
        mood,
    )


def attempts_of(folder: RunFolder, record: RunRecord) -> list[AttemptLine]:
    """Every attempt of every stage, oldest first."""
    submitted = {
        (event.stage, event.attempt): event.time
        for event in read_events(folder.root / EVENTS_NAME)
        if event.event == "submitted"
    }
    return [
        _attempt(folder, folder.stage(name), number, submitted.get((name, number)))
        for name in record.stages
        for number in range(1, folder.stage(name).latest_attempt() + 1)
    ]


def _attempt(
    folder: RunFolder, stage: StageFolder, number: int, submitted: float | None
) -> AttemptLine:
    path = stage.attempt(number)
    outcome = _outcome(path) or {}
    inside = path.relative_to(folder.root).as_posix()
    logs = [
        log.relative_to(path).as_posix()
        for log in (*sorted(path.glob("*.log")), *sorted(path.glob("logs/*"))[:8])
        if log.is_file()
    ]
    since = at(submitted) if submitted else ""
    if not outcome:
        return AttemptLine(
            stage.stage, number, since, "", "", "not over", "", "", inside, tuple(logs)
        )
    decision = outcome["decision"]
    without = ", ".join(decision.get("excluding", ()))
    return AttemptLine(
        stage.stage,
        number,
        since,
        spoken(outcome["queued_s"]) if "queued_s" in outcome else "",
        spoken(outcome["seconds"]) if "seconds" in outcome else "",
        str(outcome.get("cause") or outcome.get("state", "")).replace("_", " "),
        str(outcome.get("newest_checkpoint") or ""),
        str(decision["reason"]) + (f"; without {without}" if without else ""),
        inside,
        tuple(logs),
    )


def _outcome(attempt: Path) -> dict[str, Any] | None:
    try:
        outcome: dict[str, Any] = json.loads((attempt / OUTCOME_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return outcome


def at(moment: float) -> str:
    """UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))


def spoken(seconds: float) -> str:
    """For example `12 seconds`, `14 minutes`, `2 h 5 min`, `3 d 4 h`."""
    whole = round(max(0.0, seconds))
    if whole < 100:
        return f"{whole} {_plural('second', whole)}"
    minutes = round(whole / 60)
    if minutes < 100:
        return f"{minutes} minutes"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
