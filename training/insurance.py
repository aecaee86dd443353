"""The job that waits in the queue behind the running attempt, as the supervisor uses it.

What is done and when is `training.cluster.successor_queue`; here it is told in the run's events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from training.attempt_log import AttemptLog, named
from training.cluster.evidence import write_history
from training.cluster.job import Job, JobHandle
from training.cluster.recovery import Cause, Ending
from training.cluster.successor import Verdict
from training.cluster.successor_queue import Settled, SuccessorQueue, Want, prepared
from training.run_record import StageFolder
from workspace.errors import TransientError, UserError

# prepare(into): write the next attempt's specification into the folder `into`; its job.
Prepare = Callable[[Path], Job]


class Insurance:
    """Of one stage. Without a queue there is none."""

    def __init__(self, folder: StageFolder, queue: SuccessorQueue | None) -> None:
        self._folder = folder
        self._queue = queue
        self._behind = 0  # the attempt that was seen to, once for each supervisor

    def take_out(
        self,
        number: int,
        prepare: Prepare,
        *,
        after: JobHandle,
        history: Sequence[Ending],
        attempts: int,
        log: AttemptLog,
    ) -> None:
        """Queue attempt `number` behind the job `after`, which runs, if `attempts` allow it.

        What cannot be queued is told and not tried again: the run does as well without.
        """
        if self._queue is None or not self._queue.wanted or self._behind >= number:
            return
        self._behind = number
        used = {ending.attempt for ending in history if ending.cause is not Cause.NO_NODES}
        if len(used) + 1 >= attempts:
            return
        known = self._folder.successor(number).is_dir()
        into = prepared(self._folder.attempt(number))
        try:
            if not known or into.is_dir():
                job = prepare(into)
                write_history(into, history)
                handle = self._queue.submit(job, after)
                if handle is not None and not known:
                    log.say("successor_queued", f"{named(handle)} waits for this one to end badly")
        except (TransientError, UserError) as error:
            log.say("successor_refused", f"no job waits behind this one: {error}")

    def take_over(self, number: int, want: Want, log: AttemptLog) -> None:
        """Before attempt `number` is begun: let the job that waits for it have it, or take it out
        of the queue."""
        if self._queue is not None:
            self._tell(self._queue.settle(self._folder.attempt(number), want), log)

    def withdraw(self, number: int, log: AttemptLog) -> bool:
        """Nothing follows: no job is to begin attempt `number`. True: one has gone on alone."""
        if self._queue is None:
            return False
        try:
            settled = self._queue.withdraw(self._folder.attempt(number))
        except TransientError as error:
            # The verdict is on disk: when the job starts, it leaves.
            log.say("successor_withdrawn", f"it leaves when it starts; Slurm is silent: {error}")
            return False
        self._tell(settled, log)
        return settled.verdict is Verdict.ALONE

    def _tell(self, settled: Settled, log: AttemptLog) -> None:
        if settled.handle is None or not settled.detail:
            return
        withdrawn = settled.verdict is Verdict.WITHDRAWN
        event = "successor_withdrawn" if withdrawn else "successor_took_over"
        log.say(event, f"{named(settled.handle)}, which waited in the queue, {settled.detail}")
