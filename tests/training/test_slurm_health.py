"""The health checks on a real Slurm: as HealthCheckProgram, and over its nodes' links."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import ends_soon
from slurm_on_one_host import Cluster

from training.cluster.evidence import endings_of
from training.cluster.health.config import HealthSettings, LinkLimits
from training.cluster.health.results import REASON_PREFIX
from training.cluster.job import TERMINAL, Job, JobState, JobStatus
from training.cluster.link_check import LINKS_NAME
from training.cluster.recovery import Cause
from training.cluster.slurm import SlurmLauncher
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_output import NodeInfo
from training.planner.hardware import GpuGroup, machine_of
from training.planner.links import read_links, with_links
from training.run_events import EVENTS_NAME, read_events
from training.run_record import StageFolder
from training.supervise import Watch, run_stage
from training.trainers.spec import StageOutcome
from workspace.errors import UserError

pytestmark = pytest.mark.slurm

REPOSITORY = Path(__file__).resolve().parents[2]


def node(name: str) -> NodeInfo:
    [info] = SlurmClient().nodes([name])
    return info


def wait_for(condition: Callable[[], bool], *, within_s: float = 90.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, [node(f"node{number}") for number in (1, 2, 3)]
        time.sleep(0.3)


def write_program(
    folder: Path, *, mode: str = "program", python: str = sys.executable, limit_s: int = 50
) -> Path:
    """`deploy/slurm/node-health` as a node would have it, each node with thresholds of its own."""
    shutil.copy(REPOSITORY / "deploy" / "slurm" / "node-health", folder / f"dsm-health-{mode}")
    settings = folder / "settings"
    settings.write_text(
        f"DSM_PROJECT={REPOSITORY}\nDSM_PYTHON={python}\nDSM_HEALTH_LIMIT_S={limit_s}\n"
        f"DSM_HEALTH_CONFIG={folder}/$SLURMD_NODENAME.yaml\n"
        f"export SLURM_CONF={os.environ['SLURM_CONF']}\n"
    )
    program = folder / f"start-{mode}"
    program.write_text(
        f"#!/bin/bash\nexport DSM_HEALTH_SETTINGS={settings}\nenv >>{folder}/said\n"
        f"exec {folder}/dsm-health-{mode}\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def configure(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Adds lines to the cluster's slurm.conf, until the test's end."""
    config = cluster.folder / "slurm.conf"
    before = config.read_text()

    def use(lines: str) -> None:
        config.write_text(before + lines)
        subprocess.run(["scontrol", "reconfigure"], check=True)

    yield use
    config.write_text(before)
    subprocess.run(["scontrol", "reconfigure"], check=True)
    for number in (1, 2, 3):
        if not node(f"node{number}").usable:
            SlurmClient().resume(f"node{number}")
    wait_for(lambda: all(node(f"node{number}").usable for number in (1, 2, 3)))


@pytest.fixture
def health_program(configure: Callable[[str], None]) -> Callable[[Path], None]:
    """Makes a program the cluster's HealthCheckProgram."""
    return lambda program: configure(
        f"HealthCheckProgram={program}\nHealthCheckInterval=2\nHealthCheckNodeState=ANY\n"
    )


def test_a_sick_node_is_drained_and_released_when_it_is_well(
    cluster: Cluster, tmp_path: Path, health_program: Callable[[Path], None]
) -> None:
    shared = tmp_path / "fsx"
    for number in (1, 2, 3):
        (tmp_path / f"node{number}.yaml").write_text("disks: []\n")
    (tmp_path / "node2.yaml").write_text(f"disks: []\nshared: [{shared}]\n")
    SlurmClient().take_out("node3", "an administrator's reason")
    health_program(write_program(tmp_path))
    wait_for(lambda: node("node2").state.startswith("drain"))
    assert node("node2").reason == (
        f"{REASON_PREFIX} shared {shared}: {shared}: No such file or directory"
    )
    assert node("node1").usable
    shared.mkdir()
    wait_for(lambda: node("node2").usable)
    assert node("node2").reason == ""
    # Its checks were fine all the time, but it was not the checks that drained it.
    assert node("node3").reason == "an administrator's reason" and not node("node3").usable


def test_a_python_that_never_answers_drains_the_node(
    cluster: Cluster, tmp_path: Path, health_program: Callable[[Path], None]
) -> None:
    """As when the file system that holds the project is dead."""
    silent = tmp_path / "python"
    silent.write_text("#!/bin/bash\n[[ $SLURMD_NODENAME == node2 ]] && sleep 600\nexit 0\n")
    silent.chmod(0o755)
    health_program(write_program(tmp_path, python=str(silent), limit_s=1))
    wait_for(lambda: node("node2").state.startswith("drain"))
    assert "no answer in 1 s" in node("node2").reason
    assert node("node1").usable and node("node3").usable


def await_end(launcher: SlurmLauncher, job: Job) -> JobStatus:
    """The first status that says how it ended: a job that Slurm requeues is then cancelled."""
    handle = launcher.submit(job)
    deadline = time.monotonic() + 90
    while (status := launcher.poll(handle, job)).state not in TERMINAL:
        assert time.monotonic() < deadline, status
        time.sleep(0.3)
    return status


def test_the_prolog_sends_a_job_elsewhere(
    cluster: Cluster, tmp_path: Path, configure: Callable[[str], None]
) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"node{number}.yaml").write_text("disks: []\n")
    (tmp_path / "node1.yaml").write_text("disks: []\nmounts: [/nonexistent]\n")
    configure(
        f"Prolog={write_program(tmp_path, mode='prolog')}\nPrologFlags=Alloc\n"
        "SchedulerParameters=batch_sched_delay=0,bf_interval=5,nohold_on_prolog_fail\n"
    )
    launcher, states = SlurmLauncher(), []
    for number in (1, 2):
        folder = tmp_path / "run" / str(number)
        folder.mkdir(parents=True)
        job = Job(f"dsm-prolog-{os.getpid()}-{number}", ("-c", "pass"), folder, time_limit_s=600)
        states.append(await_end(launcher, job))
    assert node("node1").state.startswith("drain")
    assert node("node1").reason.startswith("Prolog error")
    assert (states[0].state, states[0].nodes) == (JobState.LOST, ("node1",))
    assert states[1].state is JobState.SUCCEEDED


def test_the_epilog_ends_what_left_its_jobs_process_tree(
    cluster: Cluster, tmp_path: Path, configure: Callable[[str], None]
) -> None:
    """Without cgroups Slurm does not know a process that was forked twice."""
    for number in (1, 2, 3):
        (tmp_path / f"node{number}.yaml").write_text("disks: []\n")
    configure(f"Epilog={write_program(tmp_path, mode='epilog')}\n")
    script = tmp_path / "job"
    script.write_text(
        f"#!/bin/bash\nexport DSM_ATTEMPT_DIR={tmp_path}\n"
        f"(setsid bash -c 'sleep 600 & echo $! >{tmp_path}/escaped' &)\nsleep 2\n"
    )
    submitted = ["sbatch", "--chdir", str(tmp_path), "--output=log", str(script)]
    subprocess.run(submitted, check=True, capture_output=True)
    escaped = tmp_path / "escaped"
    wait_for(lambda: escaped.exists() and bool(escaped.read_text().strip()))
    assert ends_soon(int(escaped.read_text()), within_s=60)
    assert f"SLURM_CLUSTER_NAME={SlurmClient().cluster_name()}" in (tmp_path / "said").read_text()
    assert all(node(f"node{number}").usable for number in (1, 2, 3))


def test_the_links_between_three_nodes(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    saved = tmp_path_factory.mktemp("measured") / "links.json"
    done = subprocess.run(
        [
            "srun", "--nodes=3", "--ntasks-per-node=1", f"--chdir={tmp_path}",
            sys.executable, "-m", "training.cluster.health.bandwidth",
            "--mib", "1", "--repeats", "2", "--shared", str(tmp_path), "--json", "--timeout", "50",
            "--save", str(saved),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    document = json.loads(done.stdout)
    pairs = {tuple(sorted(pair[:2])): pair[2] for pair in document["pairs"]}
    assert set(pairs) == {("node1", "node2"), ("node1", "node3"), ("node2", "node3")}
    assert all(speed > 0 for speed in pairs.values())
    assert document["files_not_seen"] == []
    assert done.returncode == bool(document["slow"]), done.stderr
    assert list(tmp_path.iterdir()) == []
    # The planner reads it, and says that it was measured without GPUs.
    links = read_links(saved)
    assert set(links.nodes) == {"node1", "node2", "node3"}
    assert json.loads(saved.read_text()) == document
    with pytest.raises(UserError, match="without GPUs"):
        with_links(machine_of(GpuGroup(gpu="H100", nodes=3)), links)


def test_a_node_with_dead_links_is_left_out_for_a_spare_and_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    """On one of three nodes gloo is told an interface that is not there."""
    prolog = tmp_path / "prolog"
    prolog.write_text(
        "#!/bin/bash\n"
        '[[ $SLURMD_NODENAME == node2 ]] && echo "export GLOO_SOCKET_IFNAME=absent0"\nexit 0\n'
    )
    prolog.chmod(0o755)
    folder = StageFolder(tmp_path / "run" / "sft", "sft")
    outcome = StageOutcome(stage="sft", attempt=1, steps=1, rows=1, rejects={}, tokens=1, last={})
    result = folder.root / "result.json"
    source = (
        f"import pathlib; pathlib.Path({str(result)!r}).write_text({outcome.model_dump_json()!r})"
    )
    # How fast the links of one busy machine are says nothing.
    links = LinkLimits(mib=1, repeats=1, least_share=0)

    def make_job(
        attempt: int, exclude_nodes: tuple[str, ...], nodes: int, into: Path | None = None
    ) -> Job:
        folder.attempt(attempt).mkdir(parents=True, exist_ok=True)
        return Job(
            f"dsm-links-{os.getpid()}-{attempt}", ("-c", source), folder.attempt(attempt),
            nodes=2, spares=1, time_limit_s=600, exclude_nodes=exclude_nodes,
            environment={"SLURM_TASK_PROLOG": str(prolog)}, health=HealthSettings(links=links),
        )  # fmt: skip

    launcher = SlurmLauncher()
    watch = Watch(lambda progress: None, lambda: False, 0.5)
    assert run_stage(folder, launcher, make_job, watch).attempt == 1
    events = {event.event: event for event in read_events(folder.root.parent / EVENTS_NAME)}
    assert events["links"].detail.startswith("3 pairs, ") and "2 dead" in events["links"].detail
    assert events["spare_used"].detail == "node3 in place of node2"
    assert events["started"].nodes == ("node1", "node3")
    job_events = read_events(folder.attempt(1) / EVENTS_NAME)
    [ending] = [one for one in endings_of(job_events) if one.cause is Cause.LINK_DEAD]
    assert ending.suspects == ("node2",)
    measured = json.loads((folder.attempt(1) / LINKS_NAME).read_text())
    assert [pair[:2] for pair in measured["pairs"]] == [["node1", "node3"]]
