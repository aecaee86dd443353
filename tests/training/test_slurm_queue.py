"""How often Slurm is asked, by whom, and what is noticed without asking. squeue is a script."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from training.cluster import fleet
from training.cluster.fleet import NodesInSlurm
from training.cluster.job import Job, JobHandle, JobState, JobStatus
from training.cluster.slurm import SlurmLauncher
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_output import ExitStatus, JobInfo
from training.cluster.slurm_queue import LONGEST_S, QUEUE_VARIABLE, SharedQueue, queue_name
from workspace.errors import TransientError
from workspace.paths import Workspace

SQUEUE = """#!/bin/bash
echo "$*" >>{folder}/asked
sleep {takes_s}
[ -e {folder}/silent ] && { echo 'error: Unable to contact slurm controller' >&2; exit 1; }
cat {folder}/listing
"""
LOOK_S = 3.0  # of the supervisor


class Site:
    """A cluster that is a script and two files, and a clock that is turned by hand."""

    def __init__(self, folder: Path, takes_s: float = 0.0) -> None:
        self.folder = folder
        self.now = time.time()
        self.shared = folder / "queue.json"
        (folder / "listing").touch()
        (folder / "asked").touch()
        script = folder / "squeue"
        script.write_text(
            SQUEUE.replace("{folder}", str(folder)).replace("{takes_s}", str(takes_s))
        )
        script.chmod(0o755)
        self.path = f"{folder}:{os.environ['PATH']}"

    @property
    def asked(self) -> int:
        return len((self.folder / "asked").read_text().splitlines())

    def show(self, *jobs: tuple[Job, str, str]) -> None:
        """What squeue prints from now on: jobs with their state and nodes; ids from 1."""
        rows = [
            (str(number), state, "0", "0", nodes, "None", job.key, str(job.attempt_dir))
            for number, (job, state, nodes) in enumerate(jobs, 1)
        ]
        text = "".join("".join(f"{field}\x1f" for field in row) + "\n" for row in rows)
        (self.folder / "listing").write_text(text)

    def queue(self) -> SharedQueue:
        client = SlurmClient(delays_s=(), environment={"PATH": self.path})
        return SharedQueue(client.own_jobs, self.shared, clock=lambda: self.now)

    def supervisor(self) -> SlurmLauncher:
        return SlurmLauncher(queue=self.queue(), clock=lambda: self.now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def new_job(site: Site, name: str) -> Job:
    folder = site.folder / name
    folder.mkdir()
    return Job(key=f"dsm-{name}", command=("-c", "pass"), attempt_dir=folder)


def handle(job: Job, job_id: int = 1) -> JobHandle:
    return JobHandle(job.key, "slurm", str(job_id))


def asked_each_minute(
    site: Site, watched: list[tuple[SlurmLauncher, JobHandle, Job]], minutes: int
) -> list[int]:
    counts = []
    for _ in range(minutes):
        before = site.asked
        for _ in range(int(60 / LOOK_S)):
            for launcher, known, job in watched:
                assert launcher.poll(known, job).state is JobState.RUNNING
            site.now += LOOK_S
        counts.append(site.asked - before)
    return counts


def test_a_quiet_job_costs_at_most_three_requests_a_minute(site: Site) -> None:
    job = new_job(site, "run")
    site.show((job, "RUNNING", "n[1-2]"))
    counts = asked_each_minute(site, [(site.supervisor(), handle(job), job)], 6)
    assert counts[0] > 3, "at the beginning things change"
    assert max(counts[2:]) <= 3
    assert min(counts[2:]) >= 2, "an end that leaves nothing on disk is seen all the same"


def test_many_supervisors_ask_no_more_than_one(site: Site) -> None:
    jobs = [new_job(site, f"run{number}") for number in range(6)]
    site.show(*((job, "RUNNING", "n1") for job in jobs))
    watched = [(site.supervisor(), handle(job, n), job) for n, job in enumerate(jobs, 1)]
    assert max(asked_each_minute(site, watched, 4)[2:]) <= 3
    assert "--jobs" not in (site.folder / "asked").read_text(), "one list for all"


def until(site: Site, launcher: SlurmLauncher, job: Job, state: JobState) -> float:
    """Seconds until the supervisor knows."""
    began = site.now
    while True:
        with contextlib.suppress(TransientError):
            if launcher.poll(handle(job), job).state is state:
                return site.now - began
        site.now += LOOK_S
        assert site.now - began < 3600


def quiet(site: Site, job: Job, state: str) -> SlurmLauncher:
    """A supervisor that has seen the job in this state for a long time."""
    site.show((job, state, "n1" if state == "RUNNING" else ""))
    launcher = site.supervisor()
    for _ in range(60):
        launcher.poll(handle(job), job)
        site.now += LOOK_S
    return launcher


def test_an_end_on_disk_is_seen_at_once_and_without_slurm(site: Site) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "RUNNING")
    before = site.asked
    (job.attempt_dir / "exit.json").write_text('{"exit_code": 0, "job_id": "1"}')
    assert until(site, launcher, job, JobState.SUCCEEDED) == 0
    assert site.asked == before


@pytest.mark.parametrize("name", ["started.json", "events.jsonl"])
def test_a_sign_on_disk_makes_the_next_look_a_new_one(site: Site, name: str) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "PENDING")
    site.show((job, "RUNNING", "n1"))
    (job.attempt_dir / name).write_text("{}\n")
    assert until(site, launcher, job, JobState.RUNNING) == 0


def test_a_kill_is_told_by_slurm_soon_after_its_exit_is_on_disk(site: Site) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "RUNNING")
    (job.attempt_dir / "exit.json").write_text(
        '{"exit_code": 143, "job_id": "1", "terminated": true}'
    )
    assert launcher.poll(handle(job), job).state is JobState.RUNNING, "by whom is not known yet"
    site.show((job, "PREEMPTED", "n1"))
    # `sinfo` is not there to ask for bad nodes: nobody says so before Slurm does.
    launcher._bad_nodes = lambda names: ()  # type: ignore[method-assign]
    assert until(site, launcher, job, JobState.LOST) <= 2 * LOOK_S


def test_an_end_that_leaves_no_sign_is_seen_within_the_longest_interval(site: Site) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "RUNNING")
    site.show((job, "CANCELLED", ""))
    assert until(site, launcher, job, JobState.CANCELLED) <= LONGEST_S + LOOK_S


def test_after_its_own_cancel_the_launcher_looks_anew(site: Site) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "PENDING")
    launcher.client.cancel = (  # type: ignore[method-assign]
        lambda job_id, **options: site.show((job, "CANCELLED", ""))
    )
    launcher._sleep = lambda seconds: setattr(site, "now", site.now + seconds)
    launcher.cancel(handle(job), job)
    assert launcher.poll(handle(job), job).state is JobState.CANCELLED


def test_a_job_submitted_since_is_not_called_lost(site: Site) -> None:
    old, new = new_job(site, "old"), new_job(site, "new")
    site.show((old, "RUNNING", "n1"))
    launcher = quiet(site, old, "RUNNING")
    site.show((old, "RUNNING", "n1"), (new, "PENDING", ""))
    assert launcher.poll(handle(old), old).state is JobState.RUNNING
    found = site.queue().job("2", LONGEST_S)
    assert found is not None and found.state == "PENDING"


def test_a_silent_controller_is_asked_more_and_more_seldom(site: Site) -> None:
    job = new_job(site, "run")
    launcher = quiet(site, job, "RUNNING")
    (site.folder / "silent").touch()
    before = site.asked
    errors = 0
    for _ in range(100):
        site.now += LOOK_S
        try:
            launcher.poll(handle(job), job)
        except TransientError:
            errors += 1
    assert errors > 90, "nothing is made up from old news"
    assert site.asked - before <= 300 / LONGEST_S + 4
    (site.folder / "silent").unlink()
    assert until(site, launcher, job, JobState.RUNNING) <= LONGEST_S + LOOK_S


def test_what_is_shared_is_read_back_as_it_was(tmp_path: Path) -> None:
    odd = JobInfo(
        "7", "FAILED", "a \udcff, b", "/w \u00e9", "why", ("n1", "n2"), 2, ExitStatus(3, 9)
    )
    path = tmp_path / "queue.json"
    assert SharedQueue(lambda: [odd], path).job("7", 10) == odd

    def never() -> list[JobInfo]:
        raise AssertionError("it is on disk")

    assert SharedQueue(never, path).job("7", 10) == odd


@pytest.mark.parametrize("text", ["", "[]", '{"at": 1}', '{"at": 9e12, "jobs": []}', "\x00"])
def test_a_file_that_says_nothing_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "queue.json"
    path.write_text(text)
    queue = SharedQueue(lambda: [JobInfo("7", "RUNNING")], path)
    assert queue.job("7", 10) == JobInfo("7", "RUNNING")
    assert json.loads(path.read_text())["jobs"][0]["job_id"] == "7"


def test_where_nothing_can_be_written_each_asks_for_itself(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    queue = SharedQueue(lambda: [JobInfo("7", "RUNNING")], blocked / "queue.json")
    assert queue.job("7", 10) == JobInfo("7", "RUNNING")


ASK = """
import sys
from pathlib import Path
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_queue import SharedQueue
print(SharedQueue(SlurmClient().own_jobs, Path(sys.argv[1])).job("1", 20.0).state)
"""


def test_processes_that_look_at_once_ask_once(tmp_path: Path) -> None:
    site = Site(tmp_path, takes_s=1)
    site.show((new_job(site, "run"), "RUNNING", "n1"))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(site.shared)],
            env={**os.environ, "PATH": site.path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert {process.communicate(timeout=60)[0] for process in started} == {"RUNNING\n"}
    assert site.asked == 1


def test_threads_that_look_at_once_ask_once(tmp_path: Path) -> None:
    site = Site(tmp_path, takes_s=0.5)
    job = new_job(site, "run")
    site.show((job, "RUNNING", "n1"))
    seen: list[JobStatus] = []
    threads = [
        threading.Thread(target=lambda: seen.append(site.supervisor().poll(handle(job), job)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [status.state for status in seen] == [JobState.RUNNING] * 4
    assert site.asked == 1


def test_a_jobs_coordinator_takes_what_the_supervisor_was_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its node; where nobody shares, it asks."""
    monkeypatch.setattr(fleet, "_HELD_TICK_S", 0.05)
    monkeypatch.setenv("PATH", site.path)
    monkeypatch.setenv(QUEUE_VARIABLE, str(site.shared))
    job = new_job(site, "run")
    site.show((job, "RUNNING", "n[1-3]"))
    site.queue().job("1", 0.0)
    before = site.asked
    held = NodesInSlurm(1)
    deadline = time.monotonic() + 30
    while tuple(held()) != ("n1", "n2", "n3"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert site.asked == before
    site.show((job, "RUNNING", "n[1-2]"))
    site.now = time.time()
    site.queue().job("1", 0.0)
    while tuple(held()) != ("n1", "n2"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert site.asked == before + 1


def test_users_and_clusters_do_not_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = set()
    for conf in ("", "/etc/slurm/a.conf", "/etc/slurm/b.conf"):
        monkeypatch.setenv("SLURM_CONF", conf)
        names.add(Workspace(tmp_path).slurm_queue(queue_name()))
    assert len(names) == 3
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert Workspace(tmp_path).slurm_queue(queue_name()) not in names
