"""Jobs on a real Slurm whose ranks start in a container, and jobs that share a node."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from slurm_on_one_host import Cluster

from training.cluster.container import PROJECT, ContainerOptions
from training.cluster.job import TERMINAL, Job, JobHandle, JobState
from training.cluster.slurm import SlurmLauncher, SlurmOptions

pytestmark = pytest.mark.slurm


def await_end(launcher: SlurmLauncher, handle: JobHandle, job: Job) -> JobState:
    deadline = time.monotonic() + 120
    while (status := launcher.poll(handle, job)).state not in TERMINAL:
        assert time.monotonic() < deadline, status
        time.sleep(0.3)
    return status.state


def test_ranks_start_by_the_words_of_the_containers_runtime(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for apptainer, which is not installed: notes its words and starts the command."""
    programs = tmp_path / "bin"
    programs.mkdir()
    runtime = programs / "apptainer"
    runtime.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "image = next(i for i, word in enumerate(sys.argv) if word.endswith('.sif'))\n"
        "os.environ['IN_CONTAINER'] = json.dumps(sys.argv[1 : image + 1])\n"
        "os.execvp(sys.argv[image + 1], sys.argv[image + 1 :])\n"
    )
    runtime.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    options = SlurmOptions(
        container=ContainerOptions(
            runtime="apptainer",
            image="/images/a b.sif",
            mounts=(f"{tmp_path}:{tmp_path}", f"{PROJECT}:{PROJECT}:ro"),
            python=sys.executable,
        )
    )
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    job = Job(
        key=f"dsm-container-{os.getpid()}",
        command=("-c", "import os; print('inside', os.environ['IN_CONTAINER'])"),
        attempt_dir=attempt,
        nodes=2,
        time_limit_s=600,
    )
    launcher = SlurmLauncher(options)
    assert await_end(launcher, launcher.submit(job), job) is JobState.SUCCEEDED
    for rank in (0, 1):
        log = (attempt / "logs" / f"rank-{rank:04d}.log").read_text()
        words = json.loads(log.partition("inside ")[2])
        assert words == [
            "exec", "--no-home", f"--bind={tmp_path}:{tmp_path}",
            f"--bind={PROJECT}:{PROJECT}:ro", f"--pwd={attempt}", "/images/a b.sif",
        ]  # fmt: skip


def test_two_jobs_on_one_node_meet_at_ports_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    """Each rank 0 listens at its MASTER_PORT until it has seen the other one listen."""
    source = (
        "import os, socket, sys, time\n"
        "from pathlib import Path\n"
        "port = int(os.environ['MASTER_PORT'])\n"
        f"met = Path({str(tmp_path)!r}, 'met')\n"
        "with socket.create_server(('127.0.0.1', port)):\n"
        "    (met / str(port)).write_text(os.environ['SLURMD_NODENAME'])\n"
        "    deadline = time.monotonic() + 90\n"
        "    while len(list(met.iterdir())) < 2 and time.monotonic() < deadline:\n"
        "        time.sleep(0.1)\n"
    )
    met = tmp_path / "met"
    met.mkdir()
    launcher = SlurmLauncher(SlurmOptions(extra=("--nodelist=node2",)))
    running = []
    for number in (1, 2):
        folder = tmp_path / f"run{number}" / "1"
        folder.mkdir(parents=True)
        job = Job(
            key=f"dsm-two-{os.getpid()}-{number}",
            command=("-c", source),
            attempt_dir=folder,
            time_limit_s=600,
        )
        running.append((launcher.submit(job), job))
    assert [await_end(launcher, *pair) for pair in running] == [JobState.SUCCEEDED] * 2
    assert [path.read_text() for path in met.iterdir()] == ["node2", "node2"]
