"""The launcher's decisions, with a scheduler that can be bent. The real one: test_slurm_cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm_in_memory import Scheduler

from training.cluster.job import Job, JobHandle, JobState, JobStatus, Nodes
from training.cluster.slurm import SlurmLauncher, SlurmOptions
from training.cluster.slurm_output import ExitStatus, JobInfo
from workspace.errors import TransientError, UserError

KEY = "dsm-run-sft-1"


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def launcher(scheduler: Scheduler) -> SlurmLauncher:
    return SlurmLauncher(SlurmOptions(cancel_grace_s=2), scheduler, sleep=lambda seconds: None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(key=KEY, command=("-c", "pass"), attempt_dir=tmp_path)


def record_exit(job: Job, code: int, job_id: str = "101", terminated: bool = False) -> None:
    values = {"exit_code": code, "job_id": job_id, "terminated": terminated}
    (job.attempt_dir / "exit.json").write_text(json.dumps(values))


def test_a_second_submit_finds_the_first(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    assert handle == JobHandle(KEY, "slurm", "101")
    assert launcher.submit(job) == handle
    (job.attempt_dir / "handle.json").unlink()  # killed between sbatch and the record
    assert launcher.submit(job) == handle
    scheduler.jobs.clear()  # ... and found only after slurmctld forgot the job
    (job.attempt_dir / "handle.json").unlink()
    record_exit(job, 0)
    assert launcher.submit(job) == handle
    assert scheduler.submitted == 1


def test_a_lost_answer_does_not_submit_twice(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    scheduler.lost_answers = 1
    assert launcher.submit(job).job_id == "101"
    assert scheduler.submitted == 1


def test_submission_outlasts_a_short_outage(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    scheduler.unreachable = 3
    assert launcher.submit(job).job_id == "101"
    scheduler.jobs.clear()
    (job.attempt_dir / "handle.json").unlink()
    scheduler.unreachable = 99
    with pytest.raises(TransientError):
        launcher.submit(job)
    assert not (job.attempt_dir / "handle.json").exists()


def test_an_attempt_of_another_launcher_is_left_alone(launcher: SlurmLauncher, job: Job) -> None:
    (job.attempt_dir / "handle.json").write_text(
        json.dumps({"key": KEY, "launcher": "local", "job_id": "7"})
    )
    with pytest.raises(UserError, match="local launcher"):
        launcher.submit(job)


def test_a_dry_run_submits_nothing(launcher: SlurmLauncher, scheduler: Scheduler, job: Job) -> None:
    assert launcher.dry_run(job).name == "job.sbatch"
    assert {path.name for path in job.attempt_dir.iterdir()} == {"job.sbatch", "job.json"}
    assert scheduler.submitted == 0


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (0, JobState.SUCCEEDED),
        (75, JobState.RESUMABLE),
        (93, JobState.NEVER_AGAIN),
    ],
)
def test_the_recorded_exit_settles_it_without_the_scheduler(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job, code: int, state: JobState
) -> None:
    handle = launcher.submit(job)
    record_exit(job, code)
    scheduler.job = None  # type: ignore[assignment, method-assign]
    status = launcher.poll(handle, job)
    assert (status.state, status.exit_code) == (state, code)


@pytest.mark.parametrize(
    ("slurm", "exit_status", "recorded", "state"),
    [
        ("PENDING", (0, 0), None, JobState.PENDING),
        ("CONFIGURING", (0, 0), None, JobState.PENDING),
        ("RUNNING", (0, 0), None, JobState.RUNNING),
        ("COMPLETING", (0, 0), None, JobState.RUNNING),
        ("SUSPENDED", (0, 0), None, JobState.RUNNING),
        ("COMPLETING", (0, 0), 1, JobState.FAILED),
        ("COMPLETING", (0, 0), 143, JobState.RUNNING),  # who killed it is not known yet
        # The record may not be visible over NFS yet: the scheduler's own code counts.
        ("COMPLETED", (0, 0), None, JobState.SUCCEEDED),
        ("FAILED", (75, 0), None, JobState.RESUMABLE),
        ("FAILED", (93, 0), None, JobState.NEVER_AGAIN),
        ("FAILED", (1, 0), None, JobState.FAILED),
        ("FAILED", (1, 0), 1, JobState.FAILED),
        ("FAILED", (137, 0), 137, JobState.LOST),
        ("FAILED", (0, 9), None, JobState.LOST),
        ("CANCELLED", (0, 15), 143, JobState.CANCELLED),
        ("TIMEOUT", (0, 1), 143, JobState.LOST),
        ("NODE_FAIL", (0, 0), 143, JobState.LOST),
        ("OUT_OF_MEMORY", (0, 125), 137, JobState.LOST),
        ("PREEMPTED", (0, 0), 143, JobState.LOST),
        # Stopped in time, then the scheduler counted it as timed out.
        ("TIMEOUT", (0, 0), 75, JobState.RESUMABLE),
    ],
)
def test_states(
    launcher: SlurmLauncher,
    scheduler: Scheduler,
    job: Job,
    slurm: str,
    exit_status: tuple[int, int],
    recorded: int | None,
    state: JobState,
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state=slurm, exit=ExitStatus(*exit_status))
    if recorded is not None:
        record_exit(job, recorded)
    assert launcher.poll(handle, job).state is state


@pytest.mark.parametrize(
    ("slurm", "state"),
    [
        ("COMPLETING", JobState.RUNNING),  # who ended it is not known yet
        ("CANCELLED", JobState.CANCELLED),  # a person: not to be run again unasked
        ("PREEMPTED", JobState.RESUMABLE),
        ("TIMEOUT", JobState.RESUMABLE),
        ("FAILED", JobState.RESUMABLE),
    ],
)
def test_a_terminated_job_that_saved_in_time(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job, slurm: str, state: JobState
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state=slurm)
    record_exit(job, 75, terminated=True)
    assert launcher.poll(handle, job).state is state
    scheduler.jobs.clear()
    assert launcher.poll(handle, job).state is JobState.RESUMABLE


def test_a_node_failure_names_the_bad_nodes_alone(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="NODE_FAIL", nodes=("n1", "n2", "n3"))
    scheduler.down = {"n2", "n9"}
    status = launcher.poll(handle, job)
    assert (status.state, status.nodes) == (JobState.LOST, ("n2",))
    assert "n2" in status.detail


def test_a_job_whose_prolog_failed_is_lost_and_not_cancelled_by_anybody(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="CANCELLED", nodes=("node1", "node2"))
    assert launcher.poll(handle, job).state is JobState.CANCELLED, "a user's scancel"
    scheduler.down = {"node2"}
    status = launcher.poll(handle, job)
    assert (status.state, status.nodes) == (JobState.LOST, ("node2",))
    (job.attempt_dir / "started.json").write_text('{"started": 1}')
    assert launcher.poll(handle, job).state is JobState.CANCELLED, "it had begun"


def test_a_failed_rank_is_named(launcher: SlurmLauncher, scheduler: Scheduler, job: Job) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="FAILED", exit=ExitStatus(1, 0))
    (job.attempt_dir / "first-failure.json").write_text(
        '{"exit_code": 1, "rank": 3, "host": "n2", "error": "ValueError: no", "ended_ns": 1}'
    )
    assert launcher.poll(handle, job).detail == "rank 3 on n2 ended with 1: ValueError: no"


@pytest.mark.parametrize(
    ("cause", "suspects", "down", "state", "lost"),
    [
        ("node_lost", ["n2"], [], JobState.LOST, ("n2",)),
        # what the job suspects becomes certain when Slurm says so
        ("node_silent", ["n2"], [], JobState.LOST, ()),
        ("node_silent", ["n2"], ["n2"], JobState.LOST, ("n2",)),
        ("node_silent", ["n2"], ["n1"], JobState.LOST, ()),
        ("node_silent", [], ["n1", "n2"], JobState.LOST, ("n1", "n2")),
        ("node_unfit", ["n2"], [], JobState.LOST, ()),
        ("not_started", [], [], JobState.FAILED, ()),
        ("not_started", [], ["n1"], JobState.LOST, ("n1",)),
    ],
)
def test_only_slurm_calls_a_node_lost(
    launcher: SlurmLauncher,
    scheduler: Scheduler,
    job: Job,
    cause: str,
    suspects: list[str],
    down: list[str],
    state: JobState,
    lost: tuple[str, ...],
) -> None:
    handle = launcher.submit(job)
    record_exit(job, 1)
    (job.attempt_dir / "nodes.txt").write_text("n1\nn2\n")
    (job.attempt_dir / "first-failure.json").write_text(
        json.dumps(
            {"exit_code": 1, "rank": -1, "host": "", "error": "why", "cause": cause,
             "nodes": suspects}
        )
    )  # fmt: skip
    scheduler.set(handle.job_id, state="FAILED", exit=ExitStatus(1, 0))
    scheduler.down = set(down)
    assert launcher.poll(handle, job) == JobStatus(state, "why", 1, lost)


def test_nodes_that_are_down_are_known_but_not_up(
    launcher: SlurmLauncher, scheduler: Scheduler
) -> None:
    scheduler.partition, scheduler.down = ("n1", "n2", "n3"), {"n2"}
    nodes = launcher.nodes()
    assert nodes == Nodes(frozenset(scheduler.partition), *[frozenset({"n1", "n3"})] * 2)


def test_a_job_that_slurm_requeued_is_given_up_for_a_new_attempt(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    (job.attempt_dir / "nodes.txt").write_text("n1\nn2\n")
    scheduler.set(handle.job_id, state="PENDING", restarts=1, reason="BeginTime")
    scheduler.down = {"n1"}
    status = launcher.poll(handle, job)
    assert (status.state, status.nodes) == (JobState.LOST, ("n1",))
    assert scheduler.cancelled == [(handle.job_id, None)]


def test_a_requeued_job_that_runs_again_goes_on(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="RUNNING", restarts=1)
    assert launcher.poll(handle, job).state is JobState.RUNNING


def test_a_forgotten_job_is_looked_up_in_the_history(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.jobs.clear()
    scheduler.history["101"] = JobInfo("101", "NODE_FAIL", KEY)
    assert "node failed" in launcher.poll(handle, job).detail
    scheduler.history.clear()
    assert launcher.poll(handle, job).state is JobState.LOST
    record_exit(job, 1)
    assert launcher.poll(handle, job).state is JobState.FAILED


def test_a_reused_job_id_is_not_our_job(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="COMPLETED", name="someone-elses")
    record_exit(job, 0, job_id="55")  # nor is a record of another job id
    assert launcher.poll(handle, job).state is JobState.LOST
    launcher.cancel(handle, job)
    assert scheduler.cancelled == []


def test_a_run_of_the_same_name_elsewhere_is_not_ours(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    scheduler.jobs["50"] = JobInfo("50", "RUNNING", KEY, "/another/workspace")
    assert launcher.submit(job).job_id == "101"


def test_cancelling_a_waiting_job_ends_it(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    launcher.cancel(handle, job)
    assert scheduler.cancelled == [(handle.job_id, None)]
    assert launcher.poll(handle, job).state is JobState.CANCELLED


def test_cancelling_a_running_job_asks_first(
    launcher: SlurmLauncher, scheduler: Scheduler, job: Job
) -> None:
    handle = launcher.submit(job)
    scheduler.set(handle.job_id, state="RUNNING")
    launcher.cancel(handle, job)
    assert scheduler.cancelled == [(handle.job_id, "USR2"), (handle.job_id, None)]
