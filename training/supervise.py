"""Bring one stage of a run to its end, whatever happens to the attempts on the way.

An attempt that was stopped, lost or failed is followed by another one from the newest complete
checkpoint, as `training.cluster.recovery` decides: without the nodes to blame, on fewer nodes, or
not at all. The supervisor may be killed at any moment: started again, it finds the running attempt
through its launcher and goes on watching; what it knew is on disk (`attempt_history`, the run's
`events.jsonl`, the workspace's log of bad nodes).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from training import checkpoints
from training.attempt_history import (
    OUTCOME_NAME,
    NextAttempt,
    Times,
    next_attempt,
    write_outcome,
)
from training.cluster.blacklist import Blacklist, Offence, bearable
from training.cluster.evidence import endings_of, job_endings, write_history
from training.cluster.job import TERMINAL, Job, JobHandle, JobState, JobStatus, Launcher
from training.cluster.recovery import (
    Cause,
    Decision,
    Ending,
    KeepWaiting,
    Limits,
    Means,
    Resubmit,
    Shrink,
    Stop,
    blamed,
    decide,
    describe,
)
from training.memory_watch import NoticeFollower
from training.metrics import MetricsFollower, StepMetrics
from training.run_events import (
    EVENTS_NAME,
    EventFollower,
    EventLog,
    RunEvent,
    changed,
    copied_lines,
    read_events,
)
from training.run_record import StageFolder
from training.trainers.spec import StageOutcome
from workspace.errors import DsmError, TransientError, UserError

LOG_TAIL_LINES = 25


class TrainingFailedError(DsmError):
    """The stage was given up; the message says why and shows the end of the log."""


class TrainingStoppedError(DsmError):
    """Stopped on request; the checkpoint stays, the same command goes on from it."""


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


class Watch(NamedTuple):
    """How the caller takes part."""

    observe: Callable[[TrainProgress], None]
    should_stop: Callable[[], bool]
    poll_interval_s: float


class Recovery(NamedTuple):
    """How to go on after an attempt that was not the last."""

    limits: Limits = Limits()
    # Numbers of nodes that the stage can be trained on: the wanted one, then smaller ones.
    worlds: tuple[int, ...] = (1,)
    shrink_after_s: float = 0.0  # in the queue before a smaller number is tried; 0: never
    blacklist: Blacklist | None = None


# make_job(attempt, exclude_nodes, nodes): nodes is 0 for the number that was asked for.
MakeJob = Callable[[int, tuple[str, ...], int], Job]


def run_stage(
    folder: StageFolder,
    launcher: Launcher,
    make_job: MakeJob,
    watch: Watch,
    recovery: Recovery = Recovery(),  # noqa: B008 - immutable
) -> StageOutcome:
    """Attempt after attempt until the stage's result is there.

    `make_job` writes the attempt's specification and returns its job. Raises `UserError`,
    `TrainingFailedError` or `TrainingStoppedError`.
    """
    supervisor = _Supervisor(folder, launcher, make_job, watch, recovery)
    while True:
        done = folder.outcome()
        if done is not None:
            return done
        supervisor.run_attempt()


@dataclass
class _Attempt:
    """The attempt that runs now."""

    number: int
    job: Job
    plan: NextAttempt
    from_step: int
    submitted: float
    log: EventLog
    copied: int  # lines of the job's own events in the run's
    notices: NoticeFollower
    seen_size: int = -1
    started: float | None = None


class _Supervisor:
    def __init__(
        self,
        folder: StageFolder,
        launcher: Launcher,
        make_job: MakeJob,
        watch: Watch,
        recovery: Recovery,
    ) -> None:
        self._folder = folder
        self._launcher = launcher
        self._make_job = make_job
        self._watch = watch
        self._recovery = recovery
        self._events = folder.root.parent / EVENTS_NAME
        self._news = EventFollower(self._events)

    def run_attempt(self) -> None:
        """One attempt to its end. Raises when no other one should follow."""
        attempt = self._open()
        handle = self._launcher.submit(attempt.job)
        self._note_submission(attempt, handle)
        status = self._follow(attempt, handle)
        if isinstance(status, Shrink):
            return self._fewer_nodes(attempt, handle, status)
        endings = self._endings(attempt, status)
        if status.state is JobState.SUCCEEDED and self._folder.outcome() is not None:
            endings[-1:] = [_done(endings[-1])]
            self._close(attempt, status, endings, Stop("done"))
            return None
        decision = self._decide(attempt, endings)
        self._close(attempt, status, endings, decision)
        if isinstance(decision, Stop):
            raise self._error(status, decision, attempt.job)
        return None

    def _open(self) -> _Attempt:
        folder = self._folder
        number = max(folder.latest_attempt(), 1)
        if (folder.attempt(number) / OUTCOME_NAME).exists():
            number += 1
        if self._watch.should_stop() and not folder.attempt(number).exists():
            raise TrainingStoppedError(_stopped(f"stage {folder.stage}", folder))
        plan = next_attempt(folder)
        job = self._make_job(number, self._avoided(plan), plan.nodes)
        write_history(job.attempt_dir, plan.history)
        log = EventLog(self._events, stage=folder.stage, attempt=number)
        return _Attempt(
            number, job, plan, _newest_step(folder), time.time(), log,
            copied_lines(self._events, folder.stage, number),
            NoticeFollower(job.attempt_dir),
        )  # fmt: skip

    def _avoided(self, plan: NextAttempt) -> tuple[str, ...]:
        """Nodes that the decision leaves out, and as many of the workspace's bad ones as can be."""
        blacklist = self._recovery.blacklist
        known = blacklist.avoided(time.time()) if blacklist else {}
        others = {node: until for node, until in known.items() if node not in plan.excluding}
        if not others:
            return plan.excluding
        nodes = self._launcher.nodes()
        if nodes is None:
            return tuple(sorted({*plan.excluding, *others}))
        wanted = plan.nodes or self._recovery.worlds[0]
        left = bearable(others, nodes.all - set(plan.excluding), wanted)
        return tuple(sorted({*plan.excluding, *left}))

    def _note_submission(self, attempt: _Attempt, handle: JobHandle) -> None:
        """Remember what cannot be told later; take it over when it was remembered before."""
        job = f"{handle.launcher} job {handle.job_id}"
        for event in read_events(self._events):
            if (event.stage, event.attempt, event.event) == (
                self._folder.stage, attempt.number, "submitted",
            ):  # fmt: skip
                attempt.from_step = int(event.facts["from_step"])
                attempt.submitted = event.time
                attempt.log.say("reattached", f"found {job} again")
                return
        left_out = attempt.job.exclude_nodes
        without = f", without {', '.join(left_out)}" if left_out else ""
        fewer = f", on {attempt.job.nodes} nodes" if attempt.plan.nodes else ""
        attempt.log.say(
            "submitted",
            f"{job}, from step {attempt.from_step}{fewer}{without}",
            facts={"from_step": attempt.from_step, "job_id": handle.job_id},
        )

    def _follow(self, attempt: _Attempt, handle: JobHandle) -> JobStatus | Shrink:
        """Poll until the job is over, or until it has waited too long for its nodes."""
        launcher, job, watch = self._launcher, attempt.job, self._watch
        metrics = MetricsFollower(self._folder.metrics(attempt.number))
        follower = _Follower(self._folder.stage, attempt.number, metrics)
        asked_at = attempt.submitted
        try:
            while True:
                status = _poll(launcher, handle, job)
                self._copy_events(attempt)
                self._show(follower, status)
                if status.state in TERMINAL:
                    return status
                if status.state is JobState.RUNNING and attempt.started is None:
                    attempt.started = time.time()
                    attempt.log.say("running", status.detail, nodes=status.nodes)
                if watch.should_stop():
                    self._stop(attempt, handle, follower)
                if status.state is JobState.PENDING and self._waited(asked_at):
                    asked_at = time.time()
                    smaller = self._smaller(attempt)
                    if smaller is not None:
                        return smaller
                time.sleep(watch.poll_interval_s)
        except KeyboardInterrupt:
            launcher.cancel(handle, job)
            raise

    def _stop(self, attempt: _Attempt, handle: JobHandle, follower: _Follower) -> None:
        self._launcher.cancel(handle, attempt.job)
        stopped = _poll(self._launcher, handle, attempt.job)
        self._copy_events(attempt)
        self._show(follower, stopped)
        # We stopped it: the next call must not take it for cancelled by somebody else.
        if stopped.state in TERMINAL:
            endings = self._endings(attempt, stopped)
            self._close(attempt, stopped, endings, Stop("stopped on request"))
        raise TrainingStoppedError(_stopped(attempt.job.key, self._folder))

    def _show(self, follower: _Follower, status: JobStatus) -> None:
        progress = follower.progress(status)
        self._watch.observe(replace(progress, new_events=tuple(self._news.new())))

    def _waited(self, since: float) -> bool:
        limit = self._recovery.shrink_after_s
        return limit > 0 and time.time() - since > limit

    def _smaller(self, attempt: _Attempt) -> Shrink | None:
        nodes = self._launcher.nodes()
        waiting = Ending(attempt.number, 0, Cause.NO_NODES)
        means = Means(
            worlds=self._recovery.worlds,
            waiting=attempt.job.nodes,
            idle=None if nodes is None else len(nodes.idle - set(attempt.job.exclude_nodes)),
        )
        decision = decide((*attempt.plan.history, waiting), means, self._recovery.limits)
        if isinstance(decision, Shrink):
            return decision
        if isinstance(decision, KeepWaiting):
            attempt.log.say("waiting", decision.reason)
        return None

    def _fewer_nodes(self, attempt: _Attempt, handle: JobHandle, decision: Shrink) -> None:
        """Take the waiting job back; one for fewer nodes follows. It may have started just now."""
        self._launcher.cancel(handle, attempt.job)
        status = _poll(self._launcher, handle, attempt.job)
        if status.state is JobState.CANCELLED:
            endings = [Ending(attempt.number, 0, Cause.NO_NODES)]
        else:
            endings = self._endings(attempt, status)
        self._close(attempt, status, endings, decision)

    def _endings(self, attempt: _Attempt, status: JobStatus) -> list[Ending]:
        events = read_events(attempt.job.attempt_dir / EVENTS_NAME)
        started = [event for event in events if event.event == "started"]
        return job_endings(
            status,
            endings_of(events),
            attempt=attempt.number,
            generation=max((event.generation for event in started), default=1),
            nodes=started[-1].nodes if started else status.nodes,
            from_step=attempt.from_step,
            newest_step=_newest_step(self._folder),
        )

    def _decide(self, attempt: _Attempt, endings: list[Ending]) -> Decision:
        nodes = self._launcher.nodes()
        blacklist = self._recovery.blacklist
        known = blacklist.avoided(time.time()) if blacklist else {}
        history = (*attempt.plan.history, *endings)
        wanted = self._recovery.worlds[0]
        means = Means(
            worlds=self._recovery.worlds,
            usable=None if nodes is None else nodes.all - set(bearable(known, nodes.all, wanted)),
        )
        if blacklist is not None:
            for node, ending in blamed(history).items():
                self._blame(attempt, blacklist, node, ending)
        return decide(history, means, self._recovery.limits)

    def _blame(self, attempt: _Attempt, blacklist: Blacklist, node: str, ending: Ending) -> None:
        run = f"{self._folder.root.parent.name}/{self._folder.stage}"
        offence = Offence(
            time.time(), node, ending.cause, run, ending.attempt, ending.generation, ending.error
        )
        if blacklist.add(offence):
            until = blacklist.avoided(time.time()).get(node, time.time())
            hours = (until - time.time()) / 3600
            attempt.log.say(
                "blamed",
                f"{node}: {describe(ending)}; left out of jobs for {hours:.0f} hours",
                generation=ending.generation,
                nodes=(node,),
            )

    def _close(
        self, attempt: _Attempt, status: JobStatus, endings: list[Ending], decision: Decision
    ) -> None:
        self._copy_events(attempt)
        now = time.time()
        last = endings[-1]
        attempt.log.say(
            "finished" if last.cause is Cause.DONE else "attempt_ended",
            f"{describe(last)}; newest checkpoint: step {last.newest_step}",
            generation=last.generation,
            nodes=last.suspects,
            facts={"cause": last.cause, "seconds": round(now - (attempt.started or now), 3)},
        )
        if last.cause is not Cause.DONE:
            attempt.log.say("decided", _in_words(decision))
        times = Times(attempt.submitted, attempt.started, now)
        write_outcome(attempt.job.attempt_dir, status, endings, decision, times)

    def _copy_events(self, attempt: _Attempt) -> None:
        self._copy_notices(attempt)
        path = attempt.job.attempt_dir / EVENTS_NAME
        size = changed(path, attempt.seen_size)
        if size < 0:
            return
        attempt.seen_size = size
        events = read_events(path)
        attempt.copied = attempt.log.copy_from(events, attempt.copied)
        started = [event.time for event in events if event.event == "started"]
        if started:
            attempt.started = started[0]

    def _copy_notices(self, attempt: _Attempt) -> None:
        """What the ranks say of their memory."""
        notices = attempt.notices.new()
        if not notices:
            return
        known = {(e.time, e.facts.get("rank")) for e in read_events(self._events)}
        for notice in notices:
            if (notice.time, notice.rank) not in known:
                facts = {"rank": notice.rank, "step": notice.step}
                detail = f"rank {notice.rank} at step {notice.step}: {notice.detail}"
                attempt.log.add(
                    RunEvent(
                        notice.time, notice.event, detail, attempt.log.stage, attempt.number,
                        facts=facts,
                    )
                )  # fmt: skip

    def _error(self, status: JobStatus, decision: Stop, job: Job) -> DsmError:
        if status.state is JobState.NEVER_AGAIN:
            return UserError(
                _user_fault(job) or _failure("the trainer refused to go on", status, job)
            )
        if status.state is JobState.CANCELLED:
            return TrainingStoppedError(
                f"{job.key} was cancelled from outside ({status.detail}); newest checkpoint: step "
                f"{_newest_step(self._folder)}. The same command goes on from there."
            )
        return TrainingFailedError(_failure(decision.reason, status, job))


def _done(last: Ending) -> Ending:
    return Ending(
        last.attempt, last.generation, Cause.DONE, last.nodes, (), "", last.from_step,
        last.newest_step,
    )  # fmt: skip


def _in_words(decision: Decision) -> str:
    if isinstance(decision, Resubmit):
        without = f" without {', '.join(decision.excluding)}" if decision.excluding else ""
        return f"a new job{without}"
    if isinstance(decision, Shrink):
        return f"a new job on {decision.nodes} nodes"
    return f"no other attempt: {decision.reason}"


def _poll(launcher: Launcher, handle: JobHandle, job: Job) -> JobStatus:
    try:
        return launcher.poll(handle, job)
    except TransientError as error:
        # A scheduler that does not answer says nothing about the job.
        return JobStatus(JobState.RUNNING, f"no news: {error}")


class _Follower:
    """Turns new metric lines into progress."""

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


def _stopped(what: str, folder: StageFolder) -> str:
    return (
        f"{what} was stopped on request; newest checkpoint: step {_newest_step(folder)}. "
        "The same command goes on from there."
    )


def _newest_step(folder: StageFolder) -> int:
    newest = checkpoints.newest_complete(folder.checkpoints)
    return newest.step if newest else 0


def _user_fault(job: Job) -> str:
    """What the trainer says that the user should mend; "" when it says nothing."""
    try:
        return str(json.loads((job.attempt_dir / "error.json").read_text("utf-8"))["message"])
    except (OSError, ValueError, KeyError):
        return ""


def _failure(reason: str, status: JobStatus, job: Job) -> str:
    return (
        f"{job.key}: gave up, {reason}; the last attempt ended as {status.state} "
        f"({status.detail or status.exit_code}). Logs: {job.attempt_dir}\n{log_tail(job)}"
    )


def log_tail(job: Job, lines: int = LOG_TAIL_LINES) -> str:
    """The end of the attempt's error log: of the ranks' logs, the one written to last."""
    folder = job.attempt_dir
    logs = (*folder.glob("logs/rank-*"), folder / "stderr.log", folder / "job.log")
    filled = [p for p in logs if p.is_file() and p.stat().st_size]
    if not filled:
        return "(no log was written)"
    newest = max(filled, key=lambda p: (p.stat().st_mtime, p.name))
    return f"--- end of {newest}\n{_tail(newest, lines)}"


def _tail(path: Path, lines: int) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 64 * 1024))
        text = stream.read().decode("utf-8", "replace")
    # Progress bars redraw one line thousands of times.
    shown = [line.rsplit("\r", 1)[-1] for line in text.splitlines()]
    return "\n".join(shown[-lines:])
