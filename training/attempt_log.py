"""The supervisor's notes of one attempt in the run's `events.jsonl`.

Its own lines, and copies of what the job and its ranks wrote into the attempt's folder. A
supervisor that takes an attempt over goes on where the former one stopped: nothing is noted twice.
"""

from __future__ import annotations

from pathlib import Path

from training.cluster.job import Job, JobHandle, JobStatus
from training.memory_watch import NoticeFollower
from training.run_events import (
    EVENTS_NAME,
    EventLog,
    RunEvent,
    changed,
    copied_lines,
    read_events,
)


class AttemptLog(EventLog):
    """Lines of `number` in the run's events at `path`. `started`: when its ranks began."""

    def __init__(self, path: Path, stage: str, number: int, attempt_dir: Path) -> None:
        super().__init__(path, stage=stage, attempt=number)
        self.started: float | None = None
        self._events = attempt_dir / EVENTS_NAME
        self._copied = copied_lines(path, stage, number)
        self._notices = NoticeFollower(attempt_dir)
        self._seen_size = -1

    def submission(self) -> RunEvent | None:
        """What was noted when the attempt's job was submitted, if that is known."""
        return next(
            (
                event
                for event in read_events(self.path)
                if (event.stage, event.attempt, event.event)
                == (self.stage, self.attempt, "submitted")
            ),
            None,
        )

    def note_submission(
        self, handle: JobHandle, job: Job, from_step: int, *, fewer: bool = False
    ) -> None:
        """The job is in the scheduler's hands. `fewer`: on fewer nodes than wanted."""
        without = f", without {', '.join(job.exclude_nodes)}" if job.exclude_nodes else ""
        on = f", on {job.nodes} nodes" if fewer else ""
        self.say(
            "submitted",
            f"{named(handle)}, from step {from_step}{on}{without}",
            facts={"from_step": from_step, "job_id": handle.job_id},
        )

    def note_running(self, status: JobStatus, now: float) -> None:
        """The job was seen to run; noted once."""
        if self.started is None:
            self.started = now
            self.say("running", status.detail, nodes=status.nodes)

    def copy(self) -> None:
        """Take over what the job and its ranks have written since the last call."""
        self._copy_notices()
        size = changed(self._events, self._seen_size)
        if size < 0:
            return
        self._seen_size = size
        events = read_events(self._events)
        self._copied = self.copy_from(events, self._copied)
        started = [event.time for event in events if event.event == "started"]
        if started:
            self.started = started[0]

    def _copy_notices(self) -> None:
        """What the ranks say of their memory."""
        notices = self._notices.new()
        if not notices:
            return
        known = {(e.time, e.facts.get("rank")) for e in read_events(self.path)}
        for notice in notices:
            if (notice.time, notice.rank) not in known:
                facts = {"rank": notice.rank, "step": notice.step}
                detail = f"rank {notice.rank} at step {notice.step}: {notice.detail}"
                self.add(
                    RunEvent(
                        notice.time, notice.event, detail, self.stage, self.attempt, facts=facts
                    )
                )


def named(handle: JobHandle) -> str:
    """For example `slurm job 17`."""
    return f"{handle.launcher} job {handle.job_id}"
