"""How the attempts of a stage ended: each one's `outcome.json`, and the history that they make.

`outcome.json` holds the job's last status, the endings of its generations of ranks, times, and the
decision that followed. Decisions are on disk because a supervisor may die between one attempt and
the next; the one that takes over obeys them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from training.cluster.evidence import ending_facts, read_ending
from training.cluster.job import OUTCOME_NAME as OUTCOME_NAME
from training.cluster.job import JobStatus
from training.cluster.recovery import Decision, Ending, Resubmit, Shrink, Stop
from training.run_record import StageFolder
from workspace import publish

STOPPED = "stop"


class Times(NamedTuple):
    """Of an attempt, in seconds of the epoch; `started` is None when its ranks never ran."""

    submitted: float
    started: float | None
    ended: float


@dataclass(frozen=True)
class NextAttempt:
    """What the last decision says about the next job."""

    excluding: tuple[str, ...] = ()
    nodes: int = 0  # 0: the wanted number
    # In `history`: what the decision was taken from; an attempt that was given up closes it.
    history: tuple[Ending, ...] = ()


def write_outcome(
    attempt_dir: Path,
    status: JobStatus,
    endings: Sequence[Ending],
    decision: Decision,
    times: Times,
) -> None:
    """The attempt is over: the next one gets a new number."""
    last = endings[-1]
    publish.write_json(
        attempt_dir / OUTCOME_NAME,
        {
            **asdict(status),
            "newest_checkpoint": last.newest_step,
            "cause": last.cause,
            "endings": [ending_facts(ending) for ending in endings],
            "decision": {
                "action": _action(decision),
                "reason": decision.reason,
                "excluding": list(getattr(decision, "excluding", ())),
                "nodes": decision.nodes if isinstance(decision, Shrink) else 0,
            },
            "submitted": times.submitted,
            "queued_s": round((times.started or times.ended) - times.submitted, 3),
            "seconds": round(times.ended - (times.started or times.ended), 3),
        },
    )


def next_attempt(folder: StageFolder) -> NextAttempt:
    """What is known of the next attempt from those before it."""
    found = NextAttempt()
    for number in range(1, folder.latest_attempt() + 1):
        outcome = _read(folder.attempt(number) / OUTCOME_NAME)
        if outcome is None:
            continue
        decision = outcome.get("decision", {})
        if decision.get("action", STOPPED) == STOPPED:
            found = NextAttempt()  # given up, then started again by a person: a clean slate
            continue
        endings = tuple(read_ending(facts) for facts in outcome["endings"])
        found = NextAttempt(
            tuple(decision["excluding"]), decision["nodes"], (*found.history, *endings)
        )
    return found


def _action(decision: Decision) -> str:
    if isinstance(decision, Stop):
        return STOPPED
    assert isinstance(decision, (Resubmit, Shrink)), decision
    return "shrink" if isinstance(decision, Shrink) else "resubmit"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return outcome
