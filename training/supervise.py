"""Bring one stage of a run to its end, whatever happens to the attempts on the way.

An attempt that was stopped, lost or failed is followed by another one from the newest complete
checkpoint, as `training.cluster.recovery` decides: without the nodes to blame, on fewer nodes, or
not at all. The supervisor may be killed at any moment: started again, it finds the running attempt
through its launcher and goes on watching; what it knew is on disk (`attempt_history`, the run's
`events.jsonl`, the workspace's log of bad nodes). A scheduler that does not answer is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from training.attempt_history import (
    OUTCOME_NAME,
    NextAttempt,
    Times,
    next_attempt,
    write_outcome,
)
from training.attempt_log import AttemptLog, named
from training.checkpoints import newest_step
from training.cluster.blacklist import Blacklist, Offence, bearable
from training.cluster.evidence import attempt_endings, write_history
from training.cluster.job import (
    LEAVE_FILE,
    STOP_FILE,
    TERMINAL,
    Job,
    JobHandle,
    JobState,
    JobStatus,
    Launcher,
)
from training.cluster.local import HANDLE_NAME
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
    convictions,
    decide,
    describe,
    sentenced,
)
from training.cluster.successor_queue import SuccessorQueue, Want
from training.failure_texts import error_of, in_words, stopped_error
from training.insurance import Insurance
from training.metrics import MetricsFollower
from training.progress import ProgressFollower, TrainProgress
from training.run_events import EVENTS_NAME, EventFollower
from training.run_record import StageFolder
from training.scheduler_patience import AnswerT, Patience
from training.trainers.spec import StageOutcome
from workspace.errors import TransientError

# For the answer to an order to end a job, when nobody wants the run to go on.
FAREWELL_S = 60.0


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
    successors: SuccessorQueue | None = None  # where a job may wait behind the running one


class MakeJob(Protocol):
    """Writes an attempt's specification and describes its job. `nodes` is 0 for the number that
    was asked for; `into` is where the specification goes, if not into the attempt's folder, which
    then is not made."""

    def __call__(
        self, attempt: int, exclude_nodes: tuple[str, ...], nodes: int, into: Path | None = None
    ) -> Job: ...


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
    supervisor.catch_up()
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
    log: AttemptLog


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
        self._insurance = Insurance(folder, recovery.successors)
        self._patience = Patience(watch.poll_interval_s)

    def catch_up(self) -> None:
        """Close what ended while no supervisor lived and a successor went on alone."""
        newest = self._folder.latest_attempt()
        done = self._folder.outcome() is not None
        for number in range(1, newest + done):
            folder = self._folder.attempt(number)
            if (folder / HANDLE_NAME).exists() and not (folder / OUTCOME_NAME).exists():
                self._close_late(number)
        if done and self._folder.successor(newest + 1).is_dir():
            self._insurance.withdraw(newest + 1, self._log(newest + 1))

    def _close_late(self, number: int) -> None:
        plan = next_attempt(self._folder)
        attempt = self._attempt(number, self._make_job(number, (), 0), plan)
        handle = self._submit(attempt)
        self._note_submission(attempt, handle)
        status = self._poll(attempt, handle)
        if status.state not in TERMINAL:
            return  # it cannot be told yet
        endings = self._endings(attempt, status)
        if status.state is JobState.SUCCEEDED and self._folder.outcome() is not None:
            endings[-1:] = [_done(endings[-1])]
            self._close(attempt, status, endings, Stop("done"))
            return
        decision = self._decide(attempt, endings)
        excluding = decision.excluding if isinstance(decision, (Resubmit, Shrink)) else ()
        said = f"attempt {number + 1} waited in the queue and went on alone"
        self._close(attempt, status, endings, Resubmit(said, excluding))

    def run_attempt(self) -> None:
        """One attempt to its end. Raises when no other one should follow."""
        attempt = self._open()
        handle = self._submit(attempt)
        self._note_submission(attempt, handle)
        status = self._follow(attempt, handle)
        if isinstance(status, Shrink):
            return self._fewer_nodes(attempt, handle, status)
        endings = self._endings(attempt, status)
        if status.state is JobState.SUCCEEDED and self._folder.outcome() is not None:
            endings[-1:] = [_done(endings[-1])]
            self._close(attempt, status, endings, Stop("done"))
            self._withdraw(attempt, Stop("the stage is done"))
            return None
        decision = self._decide(attempt, endings)
        self._close(attempt, status, endings, decision)
        if isinstance(decision, Stop):
            self._withdraw(attempt, decision)
            raise error_of(status, decision, attempt.job, newest_step(self._folder.checkpoints))
        return None

    def _open(self) -> _Attempt:
        folder = self._folder
        number = max(folder.latest_attempt(), 1)
        if (folder.attempt(number) / OUTCOME_NAME).exists():
            number += 1
        if (
            self._watch.should_stop()
            and not folder.attempt(number).exists()
            and not self._insurance.withdraw(number, self._log(number))
        ):
            raise stopped_error(f"stage {folder.stage}", newest_step(folder.checkpoints))
        plan = next_attempt(folder)
        excluding = self._avoided(plan)
        log = self._log(number)
        want = self._want(excluding, plan)
        self._answer(number, log, lambda: self._insurance.take_over(number, want, log))
        job = self._with_spares_to_be_had(self._make_job(number, excluding, plan.nodes))
        write_history(job.attempt_dir, plan.history)
        return self._attempt(number, job, plan)

    def _attempt(self, number: int, job: Job, plan: NextAttempt) -> _Attempt:
        log = self._log(number)
        return _Attempt(number, job, plan, newest_step(self._folder.checkpoints), time.time(), log)

    def _submit(self, attempt: _Attempt) -> JobHandle:
        return self._answer(attempt.number, attempt.log, lambda: self._launcher.submit(attempt.job))

    def _poll(self, attempt: _Attempt, handle: JobHandle) -> JobStatus:
        """Of a job whose end decides on what comes next."""
        return self._answer(
            attempt.number, attempt.log, lambda: self._launcher.poll(handle, attempt.job)
        )

    def _answer(self, number: int, log: AttemptLog, call: Callable[[], AnswerT]) -> AnswerT:
        """The scheduler's, however long it takes: the caller sees why, and may ask to stop."""

        def waiting(said: str) -> None:
            self._observe_waiting(number, said)
            if self._watch.should_stop():
                raise stopped_error(f"{log.stage}, {said},", newest_step(self._folder.checkpoints))

        return self._patience.answer(call, log, waiting)

    def _farewell(self, attempt: _Attempt, handle: JobHandle) -> JobStatus | None:
        """End a job, on account of somebody who does not wait for ever. None: nobody answered, and
        its ranks are asked through the file system."""

        def end() -> JobStatus:
            self._launcher.cancel(handle, attempt.job)
            return self._launcher.poll(handle, attempt.job)

        def waiting(said: str) -> None:
            self._observe_waiting(attempt.number, said)

        try:
            return self._patience.answer(end, attempt.log, waiting, within_s=FAREWELL_S)
        except TransientError as error:
            for name in (LEAVE_FILE, STOP_FILE):
                (attempt.job.attempt_dir / name).touch()
            attempt.log.say("asked_to_leave", f"through {STOP_FILE}, since {error}")
            return None

    def _observe_waiting(self, number: int, said: str) -> None:
        progress = TrainProgress(self._folder.stage, number, JobState.PENDING, said)
        self._watch.observe(replace(progress, new_events=tuple(self._news.new())))

    def _log(self, number: int) -> AttemptLog:
        folder = self._folder
        return AttemptLog(self._events, folder.stage, number, folder.attempt(number))

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
        left = bearable(others, nodes.up - set(plan.excluding), wanted)
        return tuple(sorted({*plan.excluding, *left}))

    def _want(self, excluding: tuple[str, ...], plan: NextAttempt) -> Want:
        want = Want(excluding, plan.nodes or self._recovery.worlds[0])
        nodes = self._launcher.nodes() if excluding and self._recovery.successors else None
        return want if nodes is None else want._replace(within=len(nodes.up - set(excluding)))

    def _with_spares_to_be_had(self, job: Job) -> Job:
        """A job that leaves nodes out, and may want more spares than there are others."""
        nodes = self._launcher.nodes() if job.spares and job.exclude_nodes else None
        if nodes is None:
            return job
        others = len(nodes.up - set(job.exclude_nodes)) - job.nodes
        return replace(job, spares=max(0, min(job.spares, others)))

    def _note_submission(self, attempt: _Attempt, handle: JobHandle) -> None:
        """Remember what cannot be told later; take it over when it was remembered before."""
        known = attempt.log.submission()
        if known is None:
            attempt.log.note_submission(
                handle, attempt.job, attempt.from_step, fewer=attempt.plan.nodes > 0
            )
            return
        attempt.from_step = int(known.facts["from_step"])
        attempt.submitted = known.time
        attempt.log.say("reattached", f"found {named(handle)} again")

    def _follow(self, attempt: _Attempt, handle: JobHandle) -> JobStatus | Shrink:
        """Poll until the job is over, or until it has waited too long for its nodes."""
        watch = self._watch
        metrics = MetricsFollower(self._folder.metrics(attempt.number))
        follower = ProgressFollower(self._folder.stage, attempt.number, metrics)
        asked_at = attempt.submitted
        try:
            while True:
                status = self._look(attempt, handle)
                attempt.log.copy()
                self._show(follower, status)
                if status.state in TERMINAL:
                    return status
                if status.state is JobState.RUNNING and not self._patience.waits:
                    attempt.log.note_running(status, time.time())
                    self._insure(attempt, handle)
                if watch.should_stop():
                    self._stop(attempt, handle, follower)
                if status.state is JobState.PENDING and self._waited(asked_at):
                    asked_at = time.time()
                    smaller = self._smaller(attempt)
                    if smaller is not None:
                        return smaller
                time.sleep(watch.poll_interval_s)
        except KeyboardInterrupt:
            self._end_on_request(attempt, handle)
            raise

    def _look(self, attempt: _Attempt, handle: JobHandle) -> JobStatus:
        try:
            status = self._launcher.poll(handle, attempt.job)
        except TransientError as error:
            # A scheduler that does not answer says nothing about the job.
            self._patience.silent(error, attempt.log)
            return JobStatus(JobState.RUNNING, f"no news: {error}")
        self._patience.heard(attempt.log)
        return status

    def _insure(self, attempt: _Attempt, handle: JobHandle) -> None:
        number = attempt.number + 1
        self._insurance.take_out(
            number,
            lambda into: self._make_job(
                number, attempt.job.exclude_nodes, attempt.plan.nodes, into
            ),
            after=handle,
            history=attempt.plan.history,
            attempts=self._recovery.limits.attempts,
            log=attempt.log,
        )

    def _withdraw(self, attempt: _Attempt, why: Stop) -> None:
        """No job is to follow; one that has gone on alone in the meantime is ended."""
        if not self._insurance.withdraw(attempt.number + 1, attempt.log):
            return
        job = self._make_job(attempt.number + 1, (), attempt.plan.nodes)
        other = self._attempt(attempt.number + 1, job, next_attempt(self._folder))
        handle = self._submit(other)
        self._note_submission(other, handle)
        status = self._farewell(other, handle)
        if status is not None:
            self._close(other, status, self._endings(other, status), why)

    def _stop(self, attempt: _Attempt, handle: JobHandle, follower: ProgressFollower) -> None:
        stopped = self._end_on_request(attempt, handle)
        if stopped is not None:
            self._show(follower, stopped)
        raise stopped_error(attempt.job.key, newest_step(self._folder.checkpoints))

    def _end_on_request(self, attempt: _Attempt, handle: JobHandle) -> JobStatus | None:
        """End the job for the person at the keyboard or in the UI, and remember who ended it."""
        # First what waits: this job's end would start it.
        self._withdraw(attempt, Stop("stopped on request"))
        stopped = self._farewell(attempt, handle)
        attempt.log.copy()
        # We stopped it: the next call must not take it for cancelled by somebody else.
        if stopped is not None and stopped.state in TERMINAL:
            endings = self._endings(attempt, stopped)
            self._close(attempt, stopped, endings, Stop("stopped on request"))
        return stopped

    def _show(self, follower: ProgressFollower, status: JobStatus) -> None:
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
            now=time.time(),
        )
        decision = decide((*attempt.plan.history, waiting), means, self._recovery.limits)
        if isinstance(decision, Shrink):
            return decision
        if isinstance(decision, KeepWaiting):
            attempt.log.say("waiting", decision.reason)
        return None

    def _fewer_nodes(self, attempt: _Attempt, handle: JobHandle, decision: Shrink) -> None:
        """Take the waiting job back; one for fewer nodes follows. It may have started just now."""
        self._withdraw(attempt, Stop(decision.reason))
        self._answer(
            attempt.number, attempt.log, lambda: self._launcher.cancel(handle, attempt.job)
        )
        status = self._poll(attempt, handle)
        if status.state is JobState.CANCELLED:
            endings = [Ending(attempt.number, 0, Cause.NO_NODES)]
        else:
            endings = self._endings(attempt, status)
        self._close(attempt, status, endings, decision)

    def _endings(self, attempt: _Attempt, status: JobStatus) -> list[Ending]:
        return attempt_endings(
            attempt.job.attempt_dir,
            status,
            attempt=attempt.number,
            from_step=attempt.from_step,
            newest_step=newest_step(self._folder.checkpoints),
        )

    def _decide(self, attempt: _Attempt, endings: list[Ending]) -> Decision:
        nodes = self._launcher.nodes()
        blacklist = self._recovery.blacklist
        now = time.time()
        known = blacklist.avoided(now) if blacklist else {}
        history = (*attempt.plan.history, *endings)
        means = Means(worlds=self._recovery.worlds, now=now)
        if nodes is not None:
            # What the run itself blames nodes for is the decision's to weigh.
            own = sentenced(history, now)
            others = {node: until for node, until in known.items() if node not in own}
            out = bearable(others, nodes.up - own.keys(), means.worlds[0])
            means = means._replace(usable=nodes.up - set(out), down=nodes.all - nodes.up)
        if blacklist is not None:
            for node, ending in convictions(history):
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
                f"{node}: {describe(ending)}; left out of jobs for {hours:.0f} "
                f"hour{'' if round(hours) == 1 else 's'}",
                generation=ending.generation,
                nodes=(node,),
            )

    def _close(
        self, attempt: _Attempt, status: JobStatus, endings: list[Ending], decision: Decision
    ) -> None:
        attempt.log.copy()
        now = time.time()
        last = endings[-1]
        attempt.log.say(
            "finished" if last.cause is Cause.DONE else "attempt_ended",
            f"{describe(last)}; newest checkpoint: step {last.newest_step}",
            generation=last.generation,
            nodes=last.suspects,
            facts={"cause": last.cause, "seconds": round(now - (attempt.log.started or now), 3)},
        )
        if last.cause is not Cause.DONE:
            attempt.log.say("decided", in_words(decision))
        times = Times(attempt.submitted, attempt.log.started, now)
        write_outcome(attempt.job.attempt_dir, status, endings, decision, times)


def _done(last: Ending) -> Ending:
    return Ending(
        last.attempt, last.generation, Cause.DONE, last.nodes, (), "", last.from_step,
        last.newest_step, last.ended,
    )  # fmt: skip
