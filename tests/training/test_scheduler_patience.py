"""A scheduler that is away for longer than its commands wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_in_memory import Scheduler

from training.cluster.job import LEAVE_FILE, STOP_FILE, Job, JobHandle, JobStatus
from training.cluster.slurm import SlurmLauncher
from training.failure_texts import TrainingStoppedError
from training.progress import TrainProgress
from training.run_events import EVENTS_NAME, EventLog, read_events
from training.run_record import StageFolder
from training.scheduler_patience import Patience
from training.supervise import Watch, run_stage
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.errors import TransientError, UserError


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Away:
    """Answers from `until` on; remembers when it was asked."""

    def __init__(self, clock: Clock, until: float) -> None:
        self.clock, self.until = clock, until
        self.asked: list[float] = []

    def __call__(self) -> str:
        self.asked.append(self.clock.now)
        if self.clock.now < self.until:
            raise TransientError("Unable to contact slurm controller")
        return "answered"


def test_it_is_asked_again_less_and_less_often_for_as_long_as_it_takes(tmp_path: Path) -> None:
    clock, log = Clock(), EventLog(tmp_path / EVENTS_NAME)
    away, told = Away(clock, 3600.0), list[str]()
    patience = Patience(3.0, clock=clock, sleep=clock.sleep)
    assert patience.answer(away, log, told.append) == "answered"
    pauses = [later - sooner for sooner, later in zip(away.asked, away.asked[1:], strict=False)]
    assert pauses[:5] == [3, 6, 12, 24, 48] and set(pauses[5:]) == {60}
    assert len(told) >= 3600 / 3, "whoever waits may give up every 3 s"
    assert [event.event for event in read_events(log.path)] == [
        "scheduler_silent",
        "scheduler_back",
    ]


def test_it_ends_when_the_waiting_one_gives_up_or_the_time_is_over(tmp_path: Path) -> None:
    clock, log = Clock(), EventLog(tmp_path / EVENTS_NAME)
    patience = Patience(3.0, clock=clock, sleep=clock.sleep)
    away = Away(clock, 3600.0)

    def give_up(said: str) -> None:
        if clock.now > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        patience.answer(away, log, give_up)
    assert clock.now <= 104
    with pytest.raises(TransientError):
        patience.answer(away, log, lambda said: None, within_s=60.0)
    assert clock.now < 104 + 60 + 60


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    def refuse() -> None:
        raise UserError("sbatch: invalid partition")

    with pytest.raises(UserError):
        Patience(3.0).answer(refuse, EventLog(tmp_path / EVENTS_NAME), lambda said: None)


class FlakyLauncher(SlurmLauncher):
    """Slurm in memory; `silent` says how many of the next calls get no answer."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(client=scheduler, sleep=lambda seconds: None)
        self.silent = {"submit": 0, "poll": 0, "cancel": 0}

    def submit(self, job: Job) -> JobHandle:
        self._answer("submit")
        return super().submit(job)

    def poll(self, handle: JobHandle, job: Job) -> JobStatus:
        self._answer("poll")
        return super().poll(handle, job)

    def cancel(self, handle: JobHandle, job: Job) -> None:
        self._answer("cancel")
        super().cancel(handle, job)

    def _answer(self, call: str) -> None:
        if self.silent[call]:
            self.silent[call] -= 1
            raise TransientError(f"{call}: Unable to contact slurm controller")


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return StageFolder(tmp_path / "sft", "sft")


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def run(
    folder: StageFolder,
    launcher: SlurmLauncher,
    observe: Callable[[TrainProgress], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> StageOutcome:
    def make_job(
        attempt: int, exclude_nodes: tuple[str, ...], nodes: int, into: Path | None = None
    ) -> Job:
        attempt_dir = folder.attempt(attempt)
        attempt_dir.mkdir(parents=True, exist_ok=True)
        return Job(f"dsm-r-sft-{attempt}", ("-c", "pass"), attempt_dir)

    return run_stage(folder, launcher, make_job, Watch(observe, should_stop, 0.0))


def finishing(folder: StageFolder, scheduler: Scheduler) -> Callable[[TrainProgress], None]:
    """Let the job run to its end once somebody looks at it."""

    def look(progress: TrainProgress) -> None:
        if scheduler.jobs:
            done = StageOutcome(
                stage="sft", attempt=1, steps=5, rows=1, rejects={}, tokens=1, last={}
            )
            publish.write_text(folder.root / "result.json", done.model_dump_json())
            scheduler.set("101", state="COMPLETED")

    return look


def story(folder: StageFolder) -> list[str]:
    return [event.event for event in read_events(folder.root.parent / EVENTS_NAME)]


def test_a_run_outlasts_a_controller_that_is_away_when_it_submits(
    folder: StageFolder, scheduler: Scheduler
) -> None:
    scheduler.unreachable = 50  # submissions; the launcher itself gives up after four
    seen: list[str] = []
    finish = finishing(folder, scheduler)

    def look(progress: TrainProgress) -> None:
        seen.append(progress.detail)
        finish(progress)

    run(folder, SlurmLauncher(client=scheduler, sleep=lambda seconds: None), look)
    assert scheduler.submitted == 1
    assert "waiting for Slurm's controller: sbatch: Unable to contact" in seen[0]
    assert story(folder) == ["scheduler_silent", "scheduler_back", "submitted", "finished"]


def test_a_submission_whose_answer_was_lost_is_not_made_twice(
    folder: StageFolder, scheduler: Scheduler
) -> None:
    scheduler.unreachable, scheduler.lost_answers = 9, 1
    launcher = SlurmLauncher(client=scheduler, sleep=lambda seconds: None)
    run(folder, launcher, finishing(folder, scheduler))
    assert scheduler.submitted == 1


def test_a_run_that_waits_for_the_controller_obeys_a_stop(
    folder: StageFolder, scheduler: Scheduler
) -> None:
    scheduler.unreachable = 10_000
    looks: list[TrainProgress] = []
    launcher = SlurmLauncher(client=scheduler, sleep=lambda seconds: None)
    with pytest.raises(TrainingStoppedError, match=r"waiting for Slurm's controller.*was stopped"):
        run(folder, launcher, looks.append, should_stop=lambda: len(looks) >= 3)
    assert scheduler.submitted == 0
    scheduler.unreachable = 0
    assert run(folder, launcher, finishing(folder, scheduler)).attempt == 1


def test_the_story_says_that_nobody_answers_while_the_job_runs(
    folder: StageFolder, scheduler: Scheduler
) -> None:
    launcher = FlakyLauncher(scheduler)
    launcher.silent["poll"] = 20
    finish = finishing(folder, scheduler)

    def look(progress: TrainProgress) -> None:
        if launcher.silent["poll"] == 0:
            finish(progress)

    run(folder, launcher, look)
    assert story(folder) == ["submitted", "scheduler_silent", "scheduler_back", "finished"]


def test_a_stop_that_slurm_does_not_hear_reaches_the_ranks(
    folder: StageFolder, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.supervise.FAREWELL_S", 0.2)
    launcher = FlakyLauncher(scheduler)
    launcher.silent["cancel"] = 1_000_000
    with pytest.raises(TrainingStoppedError):
        run(folder, launcher, lambda progress: None, should_stop=lambda: bool(scheduler.jobs))
    assert (folder.attempt(1) / STOP_FILE).exists() and (folder.attempt(1) / LEAVE_FILE).exists()
    assert "asked_to_leave" in story(folder)
    assert not (folder.attempt(1) / "outcome.json").exists(), "it still runs"


def test_a_stop_is_told_as_soon_as_the_controller_is_back(
    folder: StageFolder, scheduler: Scheduler
) -> None:
    launcher = FlakyLauncher(scheduler)
    launcher.silent |= {"cancel": 5, "poll": 1}
    with pytest.raises(TrainingStoppedError):
        run(folder, launcher, lambda progress: None, should_stop=lambda: bool(scheduler.jobs))
    assert scheduler.cancelled == [("101", None)]
    assert (folder.attempt(1) / "outcome.json").exists()
