"""The local launcher with jobs that are a line of Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ends_soon, is_running

from training.cluster.job import STOP_FILE, TERMINAL, Job, JobState, JobStatus
from training.cluster.local import LocalLauncher
from workspace.errors import UserError

SLEEP = "import time; open('{pid}', 'w').write(str(__import__('os').getpid())); time.sleep(600)"


def job(folder: Path, code: str, **settings: object) -> Job:
    return Job(key="dsm-test-1", command=("-c", code), attempt_dir=folder, **settings)  # type: ignore[arg-type]


def run_to_end(launcher: LocalLauncher, work: Job) -> JobStatus:
    handle = launcher.submit(work)
    return wait_terminal(launcher, work, handle.job_id)


def wait_terminal(launcher: LocalLauncher, work: Job, job_id: str) -> JobStatus:
    handle = launcher.submit(work)
    assert handle.job_id == job_id, "submitting again finds the same job"
    deadline = time.monotonic() + 60
    while (status := launcher.poll(handle, work)).state not in TERMINAL:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return status


def started_process(folder: Path) -> int:
    deadline = time.monotonic() + 60
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int((folder / "pid").read_text())


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("print('hello')", JobState.SUCCEEDED),
        ("import sys; sys.exit(75)", JobState.RESUMABLE),
        ("import sys; sys.exit(93)", JobState.NEVER_AGAIN),
        ("raise RuntimeError('no')", JobState.FAILED),
        ("import os; os.kill(os.getpid(), 9)", JobState.LOST),
    ],
)
def test_exit_codes_become_states(tmp_path: Path, code: str, state: JobState) -> None:
    assert run_to_end(LocalLauncher(), job(tmp_path, code)).state is state


def test_logs_and_environment(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.environ['A']); sys.exit('bad')"
    work = job(tmp_path, code, cpus_per_process=3, environment={"A": "b c,d"})
    status = run_to_end(LocalLauncher(), work)
    assert status.exit_code == 1
    assert (tmp_path / "stdout.log").read_text() == "3 b c,d\n"
    assert "bad" in (tmp_path / "stderr.log").read_text()


def test_a_job_is_started_once(tmp_path: Path) -> None:
    work = job(tmp_path, "open('{}', 'a').write('x')".format(tmp_path / "runs"))
    launcher = LocalLauncher()
    run_to_end(launcher, work)
    run_to_end(LocalLauncher(), work)
    assert (tmp_path / "runs").read_text() == "x"


def test_the_job_outlives_who_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from training.cluster.job import Job\n"
        "from training.cluster.local import LocalLauncher\n"
        f"LocalLauncher().submit(Job(key='dsm-test-1', command=('-c', {SLEEP!r}.format(pid="
        f"{str(tmp_path / 'pid')!r})), attempt_dir=Path({str(tmp_path)!r})))\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    process = started_process(tmp_path)
    work = job(tmp_path, SLEEP.format(pid=tmp_path / "pid"))
    launcher = LocalLauncher(grace_s=0.1)
    handle = launcher.submit(work)
    assert launcher.poll(handle, work).state is JobState.RUNNING
    launcher.cancel(handle, work)
    assert ends_soon(process)


def test_cancel_lets_the_job_checkpoint(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        f"while not os.path.exists({str(tmp_path / STOP_FILE)!r}): time.sleep(0.02)\n"
        "sys.exit(75)"
    )
    launcher, work = LocalLauncher(grace_s=30), job(tmp_path, code)
    handle = launcher.submit(work)
    launcher.cancel(handle, work)
    assert launcher.poll(handle, work).state is JobState.RESUMABLE


def test_cancel_ends_a_job_that_does_not_listen(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    launcher = LocalLauncher(grace_s=0.1, term_grace_s=0.5)
    work = job(tmp_path, code + SLEEP.format(pid=tmp_path / "pid"))
    handle = launcher.submit(work)
    process = started_process(tmp_path)
    launcher.cancel(handle, work)
    assert ends_soon(process)
    assert launcher.poll(handle, work).state is JobState.LOST


def test_ranks_of_a_killed_watcher_are_ended(tmp_path: Path) -> None:
    """They would go on writing checkpoints beside the next attempt."""
    launcher, work = LocalLauncher(), job(tmp_path, SLEEP.format(pid=tmp_path / "pid"))
    handle = launcher.submit(work)
    process = started_process(tmp_path)
    os.kill(int(handle.job_id), signal.SIGKILL)
    status = wait_terminal(launcher, work, handle.job_id)
    assert status.state is JobState.LOST
    assert ends_soon(process)


def test_jobs_beside_each_other(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    launcher = LocalLauncher(grace_s=0.1)
    works = [job(folder, SLEEP.format(pid=folder / "pid")) for folder in (first, second)]
    handles = [launcher.submit(work) for work in works]
    other = started_process(second)
    launcher.cancel(handles[0], works[0])
    assert is_running(other)
    assert launcher.poll(handles[1], works[1]).state is JobState.RUNNING
    launcher.cancel(handles[1], works[1])


def test_several_nodes_need_slurm(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="slurm"):
        LocalLauncher().submit(job(tmp_path, "", nodes=2))
