"""Runs on disk against jobs that exist: a scheduler in memory, and real local processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm_in_memory import Scheduler

from training.cluster.job import Job, JobState
from training.cluster.local import LocalLauncher
from training.cluster.reconcile import (
    Finding,
    Launchers,
    Situation,
    reconcile,
    request_cancel,
)
from training.cluster.slurm import SlurmLauncher, SlurmOptions, read_handle
from training.cluster.successor_queue import SuccessorQueue, prepared
from training.run_record import RunFolder, RunRecord
from workspace import publish
from workspace.errors import MissingToolError, TransientError, UserError
from workspace.locking import stage_lock
from workspace.manifest import Manifest, now, write_manifest
from workspace.paths import Workspace


class Site:
    """A workspace with one run, and a cluster."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)
        self.run = RunFolder(self.workspace.run("r1"))
        self.run.write_record(
            RunRecord(
                run="r1", key="k", settings={}, lineage={}, base_model="b",
                stages=("sft",), created=now(),
            )
        )  # fmt: skip
        self.scheduler = Scheduler()
        self.launcher = SlurmLauncher(
            SlurmOptions(cancel_grace_s=1), self.scheduler, sleep=lambda seconds: None
        )

    def job(self, attempt: int = 1) -> Job:
        folder = self.run.stage("sft").attempt(attempt).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return Job(key=f"dsm-r1-sft-{attempt}", command=("-c", "pass"), attempt_dir=folder)

    def submit(self, attempt: int = 1, state: str = "RUNNING") -> Job:
        job = self.job(attempt)
        handle = self.launcher.submit(job)
        self.scheduler.set(handle.job_id, state=state)
        return job

    def wait_behind(self, attempt: int) -> str:
        """The id of a job that waits to become the next attempt."""
        queue = SuccessorQueue(self.launcher)
        folder = self.run.stage("sft").attempt(attempt + 1).resolve()
        prepared(folder).mkdir(parents=True)
        job = Job(key=f"dsm-r1-sft-{attempt + 1}", command=("-c", "pass"), attempt_dir=folder)
        after = read_handle(self.run.stage("sft").attempt(attempt))
        assert after is not None
        handle = queue.submit(job, after)
        assert handle is not None
        return handle.job_id

    def close(self, job: Job) -> None:
        publish.write_json(job.attempt_dir / "outcome.json", {"state": "lost"})

    def look(self) -> list[Finding]:
        return reconcile(self.workspace, Launchers(slurm=self.launcher))

    def only(self) -> Finding:
        [finding] = self.look()
        return finding


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_workspace_without_runs_has_nothing_to_say(tmp_path: Path) -> None:
    assert reconcile(Workspace(tmp_path)) == []


def test_a_job_without_supervisor_is_reported_and_left_alone(site: Site) -> None:
    site.submit()
    finding = site.only()
    assert (finding.situation, finding.state) == (Situation.UNATTENDED, JobState.RUNNING)
    assert finding.describe() == (
        "r1 sft attempt 1 (slurm job 101): unattended, running, job 101; "
        "start the run again to watch it"
    )
    assert site.scheduler.cancelled == []


def test_a_supervised_run_is_left_to_its_supervisor(site: Site) -> None:
    site.submit()
    request_cancel(site.workspace, "r1")
    with stage_lock(site.workspace, "run-r1"):
        finding = site.only()
    assert finding.situation is Situation.WATCHED and not finding.needs_attention
    assert site.scheduler.cancelled == []


@pytest.mark.parametrize(
    ("code", "situation", "state"),
    [
        (0, Situation.ENDED, JobState.SUCCEEDED),
        (75, Situation.ENDED, JobState.RESUMABLE),
        (None, Situation.VANISHED, JobState.LOST),
    ],
)
def test_a_job_that_is_gone(
    site: Site, code: int | None, situation: Situation, state: JobState
) -> None:
    job = site.submit()
    site.scheduler.jobs.clear()
    if code is not None:
        (job.attempt_dir / "exit.json").write_text(json.dumps({"exit_code": code, "job_id": "101"}))
    finding = site.only()
    assert (finding.situation, finding.state) == (situation, state)
    assert finding.needs_attention


def test_the_job_of_a_cancelled_run_is_cancelled_once(site: Site) -> None:
    site.submit()
    assert request_cancel(site.workspace, "r1") == [1]
    finding = site.only()
    assert (finding.situation, finding.state) == (Situation.CANCELLED, JobState.CANCELLED)
    assert site.scheduler.cancelled == [("101", "USR2"), ("101", None)]
    assert site.look() == [], "the attempt is closed: nothing to say in the next round"
    assert request_cancel(site.workspace, "r1") == []
    outcome = json.loads((site.job().attempt_dir / "outcome.json").read_text())
    assert (outcome["cause"], outcome["decision"]["action"]) == ("cancelled", "stop")
    assert len(site.scheduler.cancelled) == 2


def test_a_request_does_not_reach_later_attempts(site: Site) -> None:
    first = site.submit(1)
    request_cancel(site.workspace, "r1")
    site.look()
    site.close(first)
    site.submit(2)
    assert site.only().situation is Situation.UNATTENDED


def test_cancelling_an_unknown_run_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match="no run 'r2'"):
        request_cancel(site.workspace, "r2")


def test_a_job_whose_submitter_died_before_its_record_is_found(site: Site) -> None:
    job = site.submit()
    (job.attempt_dir / "handle.json").unlink()
    finding = site.only()
    assert (finding.situation, finding.job_id) == (Situation.UNATTENDED, "101")


def test_an_attempt_that_was_never_submitted(site: Site) -> None:
    site.job()
    assert site.only().situation is Situation.NOT_SUBMITTED
    site.launcher.dry_run(site.job())
    assert site.only().situation is Situation.NOT_SUBMITTED


def test_a_job_that_outlived_its_attempt_is_ended(site: Site) -> None:
    site.close(site.submit(1))
    site.submit(2)
    found = {finding.attempt: finding.situation for finding in site.look()}
    assert found == {1: Situation.STRAY, 2: Situation.UNATTENDED}
    assert site.scheduler.cancelled[-1] == ("101", None)
    assert site.scheduler.jobs["102"].state == "RUNNING"
    assert site.only().attempt == 2


def test_a_published_run_is_not_looked_at(site: Site) -> None:
    site.submit()
    write_manifest(
        site.run.final,
        Manifest(
            stage="run", key="k", fingerprint="f", settings={}, inputs={},
            code_version="test", created=now(),
        ),
    )  # fmt: skip
    assert site.look() == []


@pytest.mark.parametrize("error", [TransientError("no answer"), MissingToolError("no squeue")])
def test_a_scheduler_that_says_nothing_changes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    site.close(site.submit(1))
    site.submit(2)

    def silent(*arguments: object) -> None:
        raise error

    for call in ("job", "own_jobs", "cancel"):
        monkeypatch.setattr(site.scheduler, call, silent)
    finding = site.only()
    assert (finding.attempt, finding.situation, finding.detail) == (
        2, Situation.UNKNOWN, str(error),
    )  # fmt: skip


def test_a_local_job_is_found_cancelled_and_reported(site: Site) -> None:
    job = site.job()
    source = (
        "import sys, time; from pathlib import Path\n"
        f"stop = Path({str(job.attempt_dir)!r}, 'stop-requested')\n"
        "while not stop.exists(): time.sleep(0.05)\n"
        "sys.exit(75)"
    )
    LocalLauncher().submit(Job(job.key, ("-c", source), job.attempt_dir))
    finding = site.only()
    assert (finding.situation, finding.launcher) == (Situation.UNATTENDED, "local")
    request_cancel(site.workspace, "r1")
    finding = site.only()
    assert (finding.situation, finding.state) == (Situation.CANCELLED, JobState.RESUMABLE)


def test_what_waits_behind_a_cancelled_job_goes_with_it(site: Site) -> None:
    job, successor = site.submit(), site.wait_behind(1)
    request_cancel(site.workspace, "r1")
    assert [finding.situation for finding in site.look()] == [Situation.CANCELLED]
    assert site.scheduler.cancelled[0] == (successor, None), "first, or it would start"
    assert site.look() == []
    assert not job.attempt_dir.with_name("2").exists()


def test_what_waits_for_an_attempt_that_will_not_come_is_taken_out(site: Site) -> None:
    job, successor = site.submit(), site.wait_behind(1)
    assert [finding.situation for finding in site.look()] == [Situation.UNATTENDED]
    publish.write_json(
        job.attempt_dir / "outcome.json", {"state": "failed", "decision": {"action": "stop"}}
    )
    site.scheduler.jobs.pop("101")
    [finding] = site.look()
    assert (finding.situation, finding.job_id) == (Situation.STRAY, successor)
    assert "nothing is to follow attempt 1" in finding.describe()
    assert site.look() == []


def test_a_cancelled_attempt_without_a_job_is_closed_too(site: Site) -> None:
    site.job()
    assert request_cancel(site.workspace, "r1") == [1]
    assert site.only().situation is Situation.CANCELLED
    assert (site.look(), request_cancel(site.workspace, "r1")) == ([], [])
