"""Ingest in the jobs of a real Slurm: the same tables, also when a worker dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymupdf
import pytest
import yaml
from slurm_on_one_host import Cluster

from corpus import ingest as stage
from corpus.ingest_config import IngestConfig
from corpus.schema import TABLES_BY_NAME
from flows.ingest import ingest
from tasks.cluster import load_cluster
from tasks.shards import ShardLostError
from workspace.errors import UserError
from workspace.shards import iterate_rows
from workspace.stage import StageResult, run

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("prefect_server")]

CLUSTERS = Path(__file__).resolve().parents[2] / "flows" / "clusters"


@pytest.fixture
def cluster_file(cluster: Cluster, tmp_path: Path) -> Callable[..., Path]:
    """Writes a cluster file for the one-host Slurm."""

    def write(**settings: object) -> Path:
        path = tmp_path / "cluster.yaml"
        values = {
            "type": "slurm",
            "cores": 1,
            "memory": "2 GB",
            "maximum_jobs": 2,
            "scheduler_host": "127.0.0.1",
            "start_timeout_s": 120,
            **settings,
        }
        path.write_text(yaml.safe_dump(values))
        return path

    return write


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four documents, each a shard of its own."""
    monkeypatch.setattr(stage, "SHARD_BYTES", 1)
    folder = tmp_path / "docs"
    folder.mkdir()
    with pymupdf.open() as document:
        for number in range(60):
            page = document.new_page()
            page.insert_text((72, 72), f"Page {number} tells of lot {number * number}.")
        document.save(folder / "lots.pdf")
    for number in range(3):
        (folder / f"note{number}.md").write_text(f"# Note {number}\n\nThe lot is complete.\n")
    return folder


def tables(workspace: Path) -> dict[str, list[dict[str, object]]]:
    return {name: list(iterate_rows(workspace / "corpus", name)) for name in TABLES_BY_NAME}


def configure(documents: Path, workspace: Path, **settings: object) -> IngestConfig:
    return IngestConfig(sources=[str(documents)], workspace=workspace, **settings)


@pytest.fixture
def local_tables(documents: Path, tmp_path: Path) -> dict[str, list[dict[str, object]]]:
    config = configure(documents, tmp_path / "local", workers=2)
    run(config, stage.plan, stage.process, stage.publish)
    return tables(tmp_path / "local")


def test_a_killed_worker_costs_nothing(
    documents: Path,
    tmp_path: Path,
    cluster_file: Callable[..., Path],
    local_tables: dict[str, list[dict[str, object]]],
) -> None:
    place = tmp_path / "slurm"
    # One at a time: what is left waits for a job in place of the lost one.
    config = configure(documents, place, cluster=str(cluster_file(maximum_jobs=1)))
    killed: list[int] = []

    def kill_a_worker_at_work() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed:
            if list(place.glob("corpus/.work/spool-*/*/p0001*.json")):
                killed.extend(kill_parents_of_parsers(place))
            time.sleep(0.05)

    killer = threading.Thread(target=kill_a_worker_at_work)
    killer.start()
    result = ingest(config)
    killer.join()
    assert isinstance(result, StageResult)
    assert killed
    assert tables(place) == local_tables
    assert len(list((place / ".cluster").glob("*.err"))) > 1, "no job came in place of the lost one"
    assert not queued_jobs()


def kill_parents_of_parsers(place: Path) -> list[int]:
    """kill -9 of the Dask worker whose parser has this workspace's spool open, and its nanny."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"corpus.worker" in command and b"SLURM_JOB_ID=" in environment:
            worker = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            nanny = int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
            found = [nanny, worker]
            break
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def queued_jobs() -> str:
    shown = subprocess.run(
        ["squeue", "--noheader", "--states", "PENDING,RUNNING"], capture_output=True, text=True
    )
    return shown.stdout.strip()


def test_the_command_starts_an_api_that_nodes_reach(
    documents: Path, tmp_path: Path, cluster_file: Callable[..., Path]
) -> None:
    """The temporary API listens on an address of this machine, and wants its password."""
    path = cluster_file(scheduler_host=None, maximum_jobs=1)
    home = {"HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": ""}
    arguments = ["--workspace", str(tmp_path / "w"), "--cluster", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "flows.ingest", str(documents / "note0.md"), *arguments],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "ingest: done" in done.stdout
    assert [row["name"] for row in tables(tmp_path / "w")["documents"]] == ["note0.md"]


def test_an_api_on_the_loopback_is_refused(
    documents: Path, tmp_path: Path, cluster_file: Callable[..., Path]
) -> None:
    path = cluster_file(scheduler_host=None)
    with pytest.raises(UserError, match="the nodes cannot reach the Prefect API at http://127"):
        ingest(configure(documents, tmp_path / "w", cluster=str(path)))


def test_a_shard_that_kills_its_workers_is_named(
    documents: Path, tmp_path: Path, cluster_file: Callable[..., Path]
) -> None:
    # Each parser takes the worker that started it down with it.
    prologue = [f"export {DEADLY}=1", f"export PYTHONPATH={tmp_path}:$PYTHONPATH"]
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        f"if os.environ.get('{DEADLY}') and 'corpus.worker' in ' '.join(sys.orig_argv):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    path = cluster_file(job_script_prologue=[prologue[0]], maximum_jobs=1)
    config = configure(documents / "note0.md", tmp_path / "slurm", cluster=str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(ShardLostError, match="shard 0 lost its worker 3 times"):
            ingest(config)
    assert not queued_jobs()


DEADLY = "DSM_TEST_DEADLY"


def test_a_queue_that_never_starts_a_worker_says_why(
    documents: Path, tmp_path: Path, cluster_file: Callable[..., Path]
) -> None:
    path = cluster_file(job_extra_directives=["--begin=now+1hour"], start_timeout_s=5)
    with pytest.raises(UserError, match=r"no worker has run for 5 s.*PENDING \(BeginTime\)"):
        ingest(configure(documents, tmp_path / "slurm", cluster=str(path)))
    assert not queued_jobs()


def test_a_partition_that_is_not_there_is_named(
    documents: Path, tmp_path: Path, cluster_file: Callable[..., Path]
) -> None:
    path = cluster_file(queue="nowhere")
    with pytest.raises(UserError, match=r"(?s)refuses such jobs.*nowhere|partition"):
        ingest(configure(documents, tmp_path / "slurm", cluster=str(path)))


def test_without_sbatch_the_cure_is_named(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with pytest.raises(UserError, match="sbatch is not installed here: run the flow on a login"):
        ingest(configure(documents, tmp_path / "w", cluster="slurm"))


def test_an_unknown_cluster_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="local, slurm, or the path of a cluster file"):
        load_cluster("sulrm", CLUSTERS)
