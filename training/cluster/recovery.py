"""What to do after a training job, or a generation of its ranks, came to an end: a pure function.

    decide(history, means, limits) -> Decision

In: how each generation of the run ended so far (`Ending`, oldest first), and what can be done now
(`Means`). The coordinator inside the allocation asks with `in_allocation=True`, the supervisor
without; both get their history from disk, so that a restarted one comes to the same answer.

The rules:
- Nothing follows a fault of the user's input, a cancellation, or a disk that stays full.
- Three endings in a row without a newer checkpoint are enough, whatever their causes, and so is
  the budget of attempts.
- A node is blamed at once when the scheduler calls it down, when the error names the hardware, when
  its agent fell silent, when it calls itself unfit. For an exception, a kill, a hang it is first
  left out for trial, after two endings in a row that point at it alone, and blamed only when the
  run gets further without it. The same error on two nodes is a bug: then nobody is blamed.
- A blamed node is left out for as long as the blacklist says (an hour for silence, a day for the
  scheduler's word). Where fewer nodes would be left than the run can go on with, those that are up
  again come back sooner, the one whose time is over first before the others; not one that was
  blamed three times.
- A node with a slow rank or slow links is left out of the run and blamed for nothing: where no
  other is to be had, the run goes on with it. One with dead links is blamed like an unfit one; a
  dead link that tells of neither of its nodes ends the job, which could not train.
- What is nearest comes first: the same nodes, a spare of the allocation, a new job.

Why a new job and not `scontrol requeue`: it starts as soon (both wait for free nodes alone), the
bad node is out from the first moment, and its new attempt folder fences off whatever the dead node
still runs, which a requeued job would share its folder with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple

from training.cluster import blacklist

_LEMON: Final = 3  # times that a run blames a node before it does without it at any price


class Cause(StrEnum):
    """Why a generation of ranks ended."""

    DONE = "done"
    STOPPED = "stopped"  # saved and left, on request or before the time limit
    TIME_LIMIT = "time_limit"  # the limit came before the ranks had saved
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"  # down in the scheduler's eyes, or taken out of the job
    NODE_SILENT = "node_silent"  # no word from its agent, though the scheduler calls it up
    UNFIT = "node_unfit"  # it says so itself
    LINK_DEAD = "link_dead"  # nothing passed between two nodes before the ranks started
    LINK_SLOW = "link_slow"  # little did; the run can go on with it
    NOT_STARTED = "not_started"  # the node agents did not come up, and it is no node's fault
    HARDWARE = "hardware"  # the error names a device or a link
    RANK_FAILED = "rank_failed"  # an exception, a non-zero exit
    RANK_KILLED = "rank_killed"  # by a signal
    OUT_OF_MEMORY = "out_of_memory"
    SLOW = "slow"  # saved and left, for another node to take the place of a slow one
    HUNG = "hung"  # alive, but no progress within the section's time
    STORAGE = "storage"  # no space, no quota, read-only, I/O error
    LOST = "lost"  # gone, and nobody knows why
    NO_NODES = "no_nodes"  # waited in the queue in vain
    USER_FAULT = "user_fault"
    CANCELLED = "cancelled"


_WORDS = {
    Cause.DONE: "done",
    Cause.STOPPED: "saved and stopped",
    Cause.TIME_LIMIT: "the time limit came before the ranks had saved",
    Cause.PREEMPTED: "preempted by another job",
    Cause.NODE_LOST: "a node was lost",
    Cause.NODE_SILENT: "a node fell silent",
    Cause.UNFIT: "a node is not fit",
    Cause.LINK_DEAD: "a link between nodes is dead",
    Cause.LINK_SLOW: "a link between nodes is slow",
    Cause.NOT_STARTED: "the node agents did not come up",
    Cause.HARDWARE: "the hardware failed",
    Cause.RANK_FAILED: "a rank failed",
    Cause.RANK_KILLED: "a rank was killed",
    Cause.OUT_OF_MEMORY: "out of memory",
    Cause.SLOW: "a rank stayed slow",
    Cause.HUNG: "a rank hung",
    Cause.STORAGE: "storage failed",
    Cause.LOST: "the job vanished",
    Cause.NO_NODES: "waited in the queue in vain",
    Cause.USER_FAULT: "the trainer refused to go on",
    Cause.CANCELLED: "cancelled from outside",
}

# Whom these name is left out at once; for how long is the blacklist's to say.
_CONVICTING = frozenset(
    {Cause.NODE_LOST, Cause.HARDWARE, Cause.NODE_SILENT, Cause.UNFIT, Cause.LINK_DEAD}
)
# Whom these name is left out where another node is to be had, and blamed for nothing.
_SLOW = frozenset({Cause.SLOW, Cause.LINK_SLOW})
_SOFT = frozenset({Cause.RANK_FAILED, Cause.RANK_KILLED, Cause.OUT_OF_MEMORY, Cause.HUNG})
_BEFORE_RANKS = frozenset({Cause.LINK_DEAD, Cause.LINK_SLOW})
# Endings that a scheduler or a person brought about: no fault of the ranks, nothing to restart.
_ORDERLY = frozenset({Cause.STOPPED, Cause.TIME_LIMIT, Cause.PREEMPTED, Cause.NO_NODES})


@dataclass(frozen=True)
class Ending:
    """How one generation of ranks ended."""

    attempt: int
    generation: int
    cause: Cause
    nodes: tuple[str, ...] = ()  # that the ranks ran on
    suspects: tuple[str, ...] = ()  # that the evidence points at
    error: str = ""  # what the first failing rank said last
    from_step: int = 0  # the checkpoint that it started from
    newest_step: int = 0  # the newest complete checkpoint when it had ended
    ended: float = 0.0  # when, in seconds of the epoch

    @property
    def progressed(self) -> bool:
        return self.newest_step > self.from_step


class Means(NamedTuple):
    """What can be done now."""

    in_allocation: bool = False
    spares: tuple[str, ...] = ()  # idle nodes of the allocation
    # Numbers of nodes that the run can go on with, the wanted one first, then smaller ones.
    worlds: tuple[int, ...] = (1,)
    waiting: int = 0  # nodes that the job in the queue asks for (0: the wanted number)
    usable: frozenset[str] | None = None  # nodes of the cluster that are up; None: unknown
    down: frozenset[str] = frozenset()  # those that may come back
    idle: int | None = None  # of the usable ones, the free ones
    now: float = 0.0  # in seconds of the epoch
    lost: tuple[str, ...] = ()  # nodes that ranks ran on, and that cannot be reached any more


class Limits(NamedTuple):
    """Budgets."""

    attempts: int = 10  # jobs
    stalled: int = 3  # endings in a row without a newer checkpoint
    restarts: int = 100  # of the ranks inside one allocation


@dataclass(frozen=True)
class RestartInPlace:
    """Start the ranks again on the nodes that they ran on."""

    reason: str


@dataclass(frozen=True)
class UseSpare:
    """Start the ranks again, with a spare of the allocation in place of each of `replaced`."""

    reason: str
    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Resubmit:
    """A new job (inside an allocation: give it up for one) that leaves out `excluding`."""

    reason: str
    excluding: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shrink:
    """A new job on fewer nodes."""

    reason: str
    nodes: int
    excluding: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeepWaiting:
    """There is nothing better than the job that waits."""

    reason: str


@dataclass(frozen=True)
class Stop:
    """Give up, or leave it; `reason` is for people."""

    reason: str


Decision = RestartInPlace | UseSpare | Resubmit | Shrink | KeepWaiting | Stop


def decide(history: Sequence[Ending], means: Means, limits: Limits = Limits()) -> Decision:  # noqa: B008
    """What comes after the last ending of `history` (at least one)."""
    last = history[-1]
    why_stop = _why_stop(history, limits)
    if why_stop:
        return Stop(why_stop)
    left_out = avoided(history, means.now)
    said = describe(last)
    if last.cause is Cause.NO_NODES:
        return _after_waiting(means, left_out, said)
    if means.in_allocation and last.cause not in _ORDERLY:
        return _inside(history, means, limits, left_out, said)
    return _outside(history, means, limits, left_out, said)


def avoided(history: Sequence[Ending], now: float = 0.0) -> tuple[str, ...]:
    """Nodes that the run's next job should do without: the blamed, the slow, those on trial."""
    trial = _on_trial(history)
    slow = {node for ending in history if ending.cause in _SLOW for node in ending.suspects}
    return tuple(sorted({*sentenced(history, now), *slow, *((trial,) if trial else ())}))


class Conviction(NamedTuple):
    """A node, and the ending that it is blamed for."""

    node: str
    ending: Ending


def convictions(history: Sequence[Ending]) -> list[Conviction]:
    """Everything that nodes are blamed for. On trial a node is convicted once."""
    found: list[Conviction] = []
    tried: set[str] = set()
    for at, ending in enumerate(history):
        if ending.cause in _CONVICTING:
            found += [Conviction(node, ending) for node in ending.suspects]
        accused = _accused(history[: at + 1])
        if accused and accused not in tried and _guilty(accused, ending, history[at + 1 :]):
            tried.add(accused)
            found.append(Conviction(accused, ending))
    return found


def blamed(history: Sequence[Ending]) -> dict[str, Ending]:
    """Nodes that the history convicts, each with the first ending that did."""
    return dict(reversed(convictions(history)))


def sentenced(history: Sequence[Ending], now: float = 0.0) -> dict[str, float]:
    """Nodes that are still left out at `now` for what the history convicts them of, and until
    when."""
    # The clock of a node that wrote an ending may be ahead of ours.
    offences = (
        blacklist.Offence(min(ending.ended, now), node, ending.cause)
        for node, ending in convictions(history)
    )
    return blacklist.avoided(offences, now)


def stalled(history: Sequence[Ending]) -> int:
    """Endings in a row, up to the last one, without a newer checkpoint."""
    return sum(1 for _ in takewhile(lambda ending: not ending.progressed, reversed(history)))


def error_signature(error: str) -> str:
    """`error` without the numbers and addresses that differ from one time to the next."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", error).strip()


def describe(ending: Ending) -> str:
    """For example `a rank failed on node2: ValueError: no`."""
    where = f" on {', '.join(ending.suspects)}" if ending.suspects else ""
    return f"{_WORDS[ending.cause]}{where}" + (f": {ending.error}" if ending.error else "")


def _why_stop(history: Sequence[Ending], limits: Limits) -> str:
    last = history[-1]
    if last.cause in (Cause.USER_FAULT, Cause.CANCELLED):
        return describe(last)
    tried = [ending for ending in history if ending.cause is not Cause.NO_NODES]
    storage = list(takewhile(lambda ending: ending.cause is Cause.STORAGE, reversed(tried)))
    if len(storage) >= 2:
        return (
            f"storage fails ({last.error}); the last checkpoint is intact: free space or make the "
            "folder writable, then start the run again"
        )
    idle = stalled(tried)
    if idle >= limits.stalled:
        return (
            f"{idle} attempts in a row without a newer checkpoint"
            f"{_verdict(tried[-idle:])}; the last one: {describe(last)}"
        )
    return ""


def _verdict(endings: Sequence[Ending]) -> str:
    signatures = {error_signature(ending.error) for ending in endings}
    places = {ending.suspects for ending in endings}
    if len(signatures) == 1 and "" not in signatures and len(endings) > 1:
        if all(ending.cause in (Cause.NOT_STARTED, Cause.LINK_DEAD) for ending in endings):
            return ": the same error each time, before anything was trained; no node is blamed"
        where = "on different nodes" if len(places) > 1 else "each time"
        return f": the same error {where}, most likely in the training itself; no node is blamed"
    return ""


def _restarts(history: Sequence[Ending]) -> int:
    """Restarts of the ranks in the last attempt so far; what ended before they started is none."""
    own = [ending for ending in history if ending.attempt == history[-1].attempt]
    return sum(ending.cause not in _BEFORE_RANKS for ending in own) - 1


def _inside(
    history: Sequence[Ending],
    means: Means,
    limits: Limits,
    left_out: tuple[str, ...],
    said: str,
) -> Decision:
    if _restarts(history) >= limits.restarts:
        return _outside(history, means, limits, left_out, f"{said}; no restarts left in this job")
    unwanted = {*_newly_avoided(history, left_out, means.now), *means.lost}
    replaced = tuple(node for node in history[-1].nodes if node in unwanted)
    fit = [node for node in means.spares if node not in left_out]
    if not replaced and history[-1].cause is Cause.LINK_DEAD and not history[-1].suspects:
        return _outside(history, means, limits, left_out, said)
    if not replaced:
        return RestartInPlace(said)
    if len(fit) >= len(replaced):
        return UseSpare(said, replaced)
    if history[-1].cause in _SLOW:
        return RestartInPlace(f"{said}; no spare node left")
    return _outside(history, means, limits, left_out, f"{said}; no spare node left")


def _outside(
    history: Sequence[Ending],
    means: Means,
    limits: Limits,
    left_out: tuple[str, ...],
    said: str,
) -> Decision:
    used = len({ending.attempt for ending in history if ending.cause is not Cause.NO_NODES})
    if used >= limits.attempts:
        return Stop(f"{used} attempts are used up (max_attempts); the last one: {said}")
    if means.usable is None:
        return Resubmit(said, left_out)
    guilty = sentenced(history, means.now)
    # A trial is worth no waiting: without enough nodes for it the accused one stays.
    for excluding in (left_out, tuple(sorted(guilty))):
        if len(means.usable - set(excluding)) >= means.worlds[0]:
            return Resubmit(said, excluding)
    if not guilty and len(means.usable | means.down) >= means.worlds[0]:
        return Resubmit(said)  # nodes are down for reasons of their own: the queue waits for them
    left = len(means.usable - guilty.keys())
    return (
        _smaller(means.worlds, left, tuple(sorted(guilty)), said)
        or _taken_back(history, guilty, means, said)
        or Stop(
            f"{said}; {left} nodes are left without "
            f"{', '.join(sorted(guilty)) or 'those that are down'}, the run wants "
            f"{means.worlds[0]}: mend them, or ask for fewer nodes"
        )
    )


def _taken_back(
    history: Sequence[Ending], guilty: Mapping[str, float], means: Means, said: str
) -> Resubmit | Shrink | None:
    """A job on the fewest nodes that will do, with as many of the guilty as it takes that are up
    now; else one that waits in the queue for nodes that are down and to blame for nothing."""
    up, least = means.usable or frozenset(), means.worlds[-1]
    times = Counter(conviction.node for conviction in convictions(history))
    lemons = {node for node in guilty if times[node] >= _LEMON}
    for pool in (up - lemons, (up | (means.down - guilty.keys())) - lemons):
        if len(pool) < least:
            continue
        excluding = {*blacklist.bearable(guilty, pool, least), *lemons}
        back = ", ".join(sorted(guilty.keys() - excluding))
        reason = f"{said}; for want of other nodes {back} may come back"
        if least == means.worlds[0]:
            return Resubmit(reason, tuple(sorted(excluding)))
        return Shrink(reason, least, tuple(sorted(excluding)))
    return None


def _newly_avoided(history: Sequence[Ending], left_out: Sequence[str], now: float) -> set[str]:
    """Nodes to do without that the last attempt was not begun with for want of others."""
    last = history[-1].attempt
    before = [ending for ending in history if ending.attempt != last]
    slow = [ending for ending in history if ending.attempt == last and ending.cause in _SLOW]
    again = {node for node, ending in convictions(history) if ending.attempt == last}
    again |= {node for ending in slow for node in ending.suspects}
    return (set(left_out) - set(avoided(before, now))) | again


def _after_waiting(means: Means, left_out: tuple[str, ...], said: str) -> Decision:
    within = (means.waiting or means.worlds[0]) - 1
    if means.idle is not None:
        within = min(within, means.idle)
    smaller = _smaller(means.worlds, within, left_out, said)
    return smaller or KeepWaiting(f"{said}; the run cannot go on with the nodes that are free")


def _smaller(
    worlds: tuple[int, ...], at_most: int, left_out: tuple[str, ...], said: str
) -> Shrink | None:
    fitting = [world for world in worlds[1:] if world <= at_most]
    return Shrink(said, max(fitting), left_out) if fitting else None


def _accused(history: Sequence[Ending]) -> str:
    """The node that the last two endings, both without progress, point at; "" when none."""
    pair = history[-2:]
    if len(pair) < 2 or any(ending.progressed or ending.cause not in _SOFT for ending in pair):
        return ""
    if len({ending.suspects for ending in pair}) != 1 or len(pair[0].suspects) != 1:
        return ""
    node = pair[0].suspects[0]
    elsewhere = any(_same_elsewhere(ending, pair[-1], node) for ending in history)
    return "" if elsewhere else node


def _same_elsewhere(ending: Ending, known: Ending, node: str) -> bool:
    """Whether `ending` is what `known` was on `node`, but on another node."""
    same = (ending.cause, error_signature(ending.error)) == (
        known.cause,
        error_signature(known.error),
    )
    return same and bool(ending.suspects) and node not in ending.suspects


def _on_trial(history: Sequence[Ending]) -> str:
    """The accused node of which it is not known yet whether the run does better without."""
    for at in range(len(history), 1, -1):
        accused = _accused(history[:at])
        if accused:
            return "" if _guilty(accused, history[at - 1], history[at:]) is not None else accused
    return ""


def _guilty(node: str, accusation: Ending, after: Sequence[Ending]) -> bool | None:
    """Whether the run got further without `node`; False when it did with it; None: not known."""
    for ending in after:
        if _same_elsewhere(ending, accusation, node):
            return False
        if ending.progressed or ending.cause is Cause.DONE:
            return bool(ending.nodes) and node not in ending.nodes
    return None
