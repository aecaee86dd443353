"""The launcher on a real Slurm of three nodes on this machine."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from processes import ends_soon
from slurm_on_one_host import Cluster

from benchmarks.chaos.trainer import Settings, undisturbed_weights
from training.cluster.container import ContainerOptions
from training.cluster.evidence import attempt_endings
from training.cluster.hang import SectionLimits
from training.cluster.job import TERMINAL, Job, JobHandle, JobState, JobStatus
from training.cluster.recovery import Cause
from training.cluster.slurm import SlurmLauncher, SlurmOptions
from training.run_events import EVENTS_NAME, read_events
from training.run_record import StageFolder
from training.supervise import Watch, run_stage
from training.trainers.spec import StageOutcome
from workspace.errors import TransientError, UserError

pytestmark = pytest.mark.slurm

NASTY = (
    "plain",
    "",
    "a b,c",
    'it\'s "quoted" \\ and `ticked` $(false) $HOME',
    "line one\nline two\r\n#SBATCH --partition=nowhere\n",
    "é € 日本",
    "=,;|&<>*?[]{}~#!%j",
    "-n",
    "\x01\x1b[31m\x7f",
)
REPOSITORY = Path(__file__).resolve().parent.parent.parent
_numbers = itertools.count(1)


@pytest.fixture
def launcher(cluster: Cluster) -> SlurmLauncher:
    return SlurmLauncher(SlurmOptions(cancel_grace_s=20))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        key=f"dsm-test-{os.getpid()}-{next(_numbers)}",
        command=("-c", "pass"),
        attempt_dir=tmp_path,
        nodes=2,
        time_limit_s=600,
    )


def until(
    launcher: SlurmLauncher, handle: JobHandle, job: Job, *states: JobState, within_s: float = 90
) -> JobStatus:
    deadline = time.monotonic() + within_s
    while True:
        status = launcher.poll(handle, job)
        if status.state in states:
            return status
        assert status.state not in TERMINAL, status
        assert time.monotonic() < deadline, f"still {status} after {within_s} s"
        time.sleep(0.3)


def ended(launcher: SlurmLauncher, handle: JobHandle, job: Job) -> JobStatus:
    return until(launcher, handle, job, *TERMINAL)


def await_log(job: Job, rank: int, text: str) -> str:
    log = job.attempt_dir / "logs" / f"rank-{rank:04d}.log"
    deadline = time.monotonic() + 60
    while not log.exists() or text not in log.read_text():
        assert time.monotonic() < deadline, f"rank {rank} never said {text!r}"
        time.sleep(0.1)
    return log.read_text()


def test_a_job_runs_on_its_nodes_and_sees_what_it_was_given(
    launcher: SlurmLauncher, job: Job, tmp_path: Path
) -> None:
    folder = tmp_path / 'a folder\'s "name" 100% #1 é'
    folder.mkdir()
    source = (
        "import json, os, sys, time; time.sleep(2)\n"
        "print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    )
    nasty = {f"NASTY_{number}": value for number, value in enumerate(NASTY)}
    job = replace(
        job,
        attempt_dir=folder,
        command=("-c", source, *NASTY),
        processes_per_node=2,
        environment=nasty,
    )
    handle = launcher.submit(job)
    running = until(launcher, handle, job, JobState.RUNNING)
    assert running.nodes == ("node1", "node2")
    assert ended(launcher, handle, job) == JobStatus(JobState.SUCCEEDED, exit_code=0)
    ranks = set()
    for rank in range(4):
        arguments, environment = json.loads(await_log(job, rank, "\n"))
        assert tuple(arguments) == NASTY
        assert {name: environment[name] for name in nasty} == nasty
        assert environment["MASTER_ADDR"] == "127.0.0.1"
        ranks.add((environment["RANK"], environment["WORLD_SIZE"], environment["SLURMD_NODENAME"]))
    assert ranks == {
        ("0", "4", "node1"), ("1", "4", "node1"), ("2", "4", "node2"), ("3", "4", "node2"),
    }  # fmt: skip
    assert (folder / "nodes.txt").read_text() == "node1\nnode2\n"


def test_its_nodes_serve_metrics_while_it_runs(
    launcher: SlurmLauncher, job: Job, tmp_path: Path
) -> None:
    leave, targets = tmp_path / "leave", tmp_path / "metrics targets"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(leave)!r}).exists(): time.sleep(0.1)"
    job = replace(job, command=("-c", f"print('ready')\n{wait}"), metrics_targets=targets)
    handle = launcher.submit(job)
    for rank in (0, 1):
        await_log(job, rank, "ready")
    told = [json.loads(path.read_text())[0] for path in sorted(targets.glob("dsm-*.json"))]
    assert [entry["labels"]["node"] for entry in told] == ["node1", "node2"]
    for entry in told:
        node, address = entry["labels"]["node"], entry["targets"][0]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
            assert f'dsm_agent_ranks{{attempt="",node="{node}"' in page.read().decode()
    leave.touch()
    assert ended(launcher, handle, job).state is JobState.SUCCEEDED
    assert list(targets.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (75, JobState.RESUMABLE),
        (93, JobState.NEVER_AGAIN),
        (3, JobState.FAILED),
    ],
)
def test_exit_codes(launcher: SlurmLauncher, job: Job, code: int, state: JobState) -> None:
    source = f"import os, sys; print('because'); sys.exit({code} * (os.environ['RANK'] == '1'))"
    job = replace(job, command=("-c", source))
    status = ended(launcher, launcher.submit(job), job)
    assert (status.state, status.exit_code) == (state, code)
    assert status.detail == f"rank 1 on node2 ended with {code}: because"


def test_a_killed_rank_loses_the_job_but_blames_no_node(launcher: SlurmLauncher, job: Job) -> None:
    source = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
    job = replace(job, command=("-c", source))
    handle = launcher.submit(job)
    os.kill(int(await_log(job, 1, "\n")), signal.SIGKILL)
    status = ended(launcher, handle, job)
    assert (status.state, status.nodes) == (JobState.LOST, ())
    assert "rank 1 on node2 was killed by signal 9" in status.detail


def test_submitting_again_finds_the_job(launcher: SlurmLauncher, job: Job) -> None:
    job = replace(job, command=("-c", "import time; time.sleep(1)"))
    handle = launcher.submit(job)
    (job.attempt_dir / "handle.json").unlink()
    assert SlurmLauncher().submit(job) == handle
    assert len(launcher.client.own_jobs(job.key)) == 1
    ended(launcher, handle, job)
    (job.attempt_dir / "handle.json").unlink()
    assert launcher.submit(job) == handle


STOPPABLE = """
import os, signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("by a signal"))
print("ready", flush=True)
while not told:
    time.sleep(0.05)
    if Path(os.environ["DSM_ATTEMPT_DIR"], "stop-requested").exists():
        told.append("by the file")
time.sleep(int(os.environ["RANK"]))
print(told[0], flush=True)
sys.exit(75)
"""


def test_cancel_lets_the_ranks_save(launcher: SlurmLauncher, job: Job) -> None:
    job = replace(job, command=("-c", STOPPABLE))
    handle = launcher.submit(job)
    for rank in (0, 1):
        await_log(job, rank, "ready")
    launcher.cancel(handle, job)
    assert launcher.poll(handle, job).state is JobState.RESUMABLE
    for rank in (0, 1):
        assert await_log(job, rank, "by") == "ready\nby the file\n"  # the later one as well
    assert (job.attempt_dir / "stop-requested").exists()


def test_a_job_that_somebody_cancels_may_save_and_stays_cancelled(
    launcher: SlurmLauncher, job: Job
) -> None:
    job = replace(job, command=("-c", STOPPABLE))
    handle = launcher.submit(job)
    for rank in (0, 1):
        await_log(job, rank, "ready")
    subprocess.run(["scancel", handle.job_id], check=True)
    assert ended(launcher, handle, job).state is JobState.CANCELLED
    for rank in (0, 1):
        assert await_log(job, rank, "by") == "ready\nby a signal\n"


def test_cancel_ends_a_job_that_does_not_listen(cluster: Cluster, job: Job) -> None:
    launcher = SlurmLauncher(SlurmOptions(cancel_grace_s=1))
    source = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
    job = replace(job, command=("-c", source))
    handle = launcher.submit(job)
    pids = [int(await_log(job, rank, "\n")) for rank in (0, 1)]
    launcher.cancel(handle, job)
    assert ended(launcher, handle, job).state is JobState.CANCELLED
    assert all(ends_soon(pid) for pid in pids), "ranks survived"


def test_cancel_removes_a_job_that_waits(launcher: SlurmLauncher, job: Job) -> None:
    launcher.options = SlurmOptions(extra=("--begin=now+1hour",))
    handle = launcher.submit(job)
    assert launcher.poll(handle, job) == JobStatus(
        JobState.PENDING, f"job {handle.job_id}: BeginTime"
    )
    launcher.cancel(handle, job)
    assert ended(launcher, handle, job).state is JobState.CANCELLED


def test_the_walltime_signal_reaches_the_ranks(cluster: Cluster, job: Job) -> None:
    # One minute of limit, the signal 55 s before its end; Slurm looks up to a minute early.
    launcher = SlurmLauncher(SlurmOptions(signal_lead_s=58))
    job = replace(job, command=("-c", STOPPABLE), time_limit_s=60)
    assert ended(launcher, launcher.submit(job), job).state is JobState.RESUMABLE


def test_excluded_nodes_are_not_used(launcher: SlurmLauncher, job: Job) -> None:
    job = replace(job, exclude_nodes=("node1",))
    ended(launcher, launcher.submit(job), job)
    assert (job.attempt_dir / "nodes.txt").read_text() == "node2\nnode3\n"


def test_a_refused_job_says_why(cluster: Cluster, job: Job) -> None:
    launcher = SlurmLauncher(SlurmOptions(partition="nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        launcher.submit(job)
    assert not (job.attempt_dir / "handle.json").exists()


def test_a_dead_node_loses_the_job_and_is_named(
    launcher: SlurmLauncher, cluster: Cluster, job: Job, tmp_path: Path
) -> None:
    job = replace(
        job,
        command=("-c", "import os, time; print(os.getpid(), 'up', flush=True); time.sleep(300)"),
    )
    handle = launcher.submit(job)
    ranks = [int(await_log(job, rank, "up").split()[0]) for rank in (0, 1)]
    os.kill(cluster.daemon("node2"), signal.SIGKILL)
    status = until(launcher, handle, job, JobState.LOST)
    assert ends_soon(ranks[1]), "the dead daemon left it running"
    assert status.nodes == ("node2",)
    assert "no word from node2" in status.detail

    retry = replace(
        job,
        key=f"{job.key}-again",
        command=("-c", "pass"),
        attempt_dir=tmp_path / "again",
        exclude_nodes=status.nodes,
    )
    assert ended(launcher, launcher.submit(retry), retry).state is JobState.SUCCEEDED
    assert (retry.attempt_dir / "nodes.txt").read_text() == "node1\nnode3\n"
    assert "3 nodes are up" in cluster.call("start")


def test_a_killed_agent_makes_its_node_a_suspect_and_no_more(
    launcher: SlurmLauncher, job: Job
) -> None:
    job = replace(
        job, command=("-c", "import os, time; print(os.getppid(), flush=True); time.sleep(300)")
    )
    handle = launcher.submit(job)
    await_log(job, 0, "\n")
    os.kill(int(await_log(job, 1, "\n")), signal.SIGKILL)
    status = until(launcher, handle, job, JobState.LOST)
    assert status == JobStatus(JobState.LOST, "no word from node2", 1)
    [found] = attempt_endings(job.attempt_dir, status, attempt=1, from_step=0, newest_step=0)
    assert (found.cause, found.suspects) == (Cause.NODE_SILENT, ("node2",))


def test_an_srun_that_fails_at_once_convicts_no_node(cluster: Cluster, job: Job) -> None:
    """This cluster has no pyxis."""
    container = ContainerOptions(runtime="pyxis", image="nowhere.sqsh", mounts=("/:/",))
    launcher = SlurmLauncher(SlurmOptions(container=container))
    status = ended(launcher, launcher.submit(job), job)
    assert (status.state, status.nodes) == (JobState.FAILED, ())
    assert "unrecognized option '--container-image" in status.detail
    assert "look at job.log" in status.detail
    [found] = attempt_endings(job.attempt_dir, status, attempt=1, from_step=0, newest_step=0)
    assert (found.cause, found.suspects) == (Cause.NOT_STARTED, ())
    log = (job.attempt_dir / "job.log").read_text()
    assert "unrecognized option" in log, "what srun says is in the log as well"


WAITS_IN_GENERATION_ONE = """
import os, time
print(os.getpid(), "up", flush=True)
time.sleep(300 if os.environ["DSM_GENERATION"] == "1" else 0)
"""


def test_a_spare_takes_the_place_of_a_dead_node(
    launcher: SlurmLauncher, cluster: Cluster, job: Job
) -> None:
    job = replace(job, command=("-c", WAITS_IN_GENERATION_ONE), spares=1, restarts=1)
    handle = launcher.submit(job)
    rank = int(await_log(job, 1, "up").split()[0])
    agent = int(Path(f"/proc/{rank}/stat").read_text().rsplit(")", 1)[1].split()[1])
    for pid in (cluster.daemon("node2"), agent):
        os.kill(pid, signal.SIGKILL)
    assert ended(launcher, handle, job).state is JobState.SUCCEEDED
    assert ends_soon(rank), "the kernel ends a rank with its agent"
    events = read_events(job.attempt_dir / EVENTS_NAME)
    started = [event.nodes for event in events if event.event == "started"]
    assert started == [("node1", "node2"), ("node1", "node3")]
    assert "3 nodes are up" in cluster.call("start")


def test_a_suspended_job_goes_on_where_it_stood(
    launcher: SlurmLauncher, job: Job, tmp_path: Path
) -> None:
    """As gang scheduling and preemption do; longer than an agent may be silent, or a step take."""
    settings = Settings(str(tmp_path / "sft"), steps=60, step_s=0.1)
    written = settings.write(tmp_path / "settings.json")
    job = replace(
        job,
        command=("-m", "benchmarks.chaos.trainer", str(written)),
        attempt_dir=tmp_path / "sft" / "attempts" / "1",
        environment={"PYTHONPATH": str(REPOSITORY)},
        checkpoints=tmp_path / "sft" / "checkpoints",
        sections=SectionLimits(setup_s=60, step_s=5, checkpoint_s=5, evaluation_s=5),
        restarts=1,
    )
    handle = launcher.submit(job)
    ledger = tmp_path / "sft" / "ledger.jsonl"
    deadline = time.monotonic() + 60
    while not ledger.exists() or len(ledger.read_text().splitlines()) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    subprocess.run(["scontrol", "suspend", handle.job_id], check=True)
    time.sleep(9)
    assert "(suspended)" in launcher.poll(handle, job).detail
    subprocess.run(["scontrol", "resume", handle.job_id], check=True)
    assert ended(launcher, handle, job).state is JobState.SUCCEEDED
    events = read_events(job.attempt_dir / EVENTS_NAME)
    assert [e.event for e in events] == ["started", "stood_still", "ended", "decided"]
    assert 5 < events[1].facts["seconds"] < 30
    assert (tmp_path / "sft" / "weights").read_text() == undisturbed_weights(settings)


def test_a_job_that_slurm_requeued_is_replaced(launcher: SlurmLauncher, job: Job) -> None:
    launcher.options = SlurmOptions(requeue=True)
    job = replace(job, command=("-c", "import time; time.sleep(300)"))
    handle = launcher.submit(job)
    until(launcher, handle, job, JobState.RUNNING)
    subprocess.run(["scontrol", "requeue", handle.job_id], check=True)
    assert "requeued by Slurm" in until(launcher, handle, job, JobState.LOST).detail
    info = launcher.client.job(handle.job_id)
    assert info is not None and info.state == "CANCELLED"


def test_a_forgotten_job_is_found_in_the_completion_log(
    launcher: SlurmLauncher, cluster: Cluster, job: Job
) -> None:
    handle = launcher.submit(job)
    ended(launcher, handle, job)
    until_logged = time.monotonic() + 30
    while (found := launcher.client.finished(handle.job_id, job.key)) is None:
        assert time.monotonic() < until_logged
        time.sleep(0.2)
    assert (found.state, found.nodes, found.exit.code) == ("COMPLETED", ("node1", "node2"), 0)
    assert launcher.client.job("999999") is None
    assert launcher.client.finished("999999", job.key) is None


def test_a_stopped_controller_is_transient(
    launcher: SlurmLauncher, cluster: Cluster, job: Job
) -> None:
    handle = launcher.submit(job)
    ended(launcher, handle, job)
    pid = cluster.daemon("slurmctld")
    launcher.client._timeout_s, launcher.client._delays_s = 2.0, ()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert launcher.poll(handle, job).state is JobState.SUCCEEDED  # from the record on disk
        with pytest.raises(TransientError):
            launcher.client.job(handle.job_id)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_run_waits_for_a_controller_that_is_away(
    launcher: SlurmLauncher, cluster: Cluster, job: Job, tmp_path: Path
) -> None:
    """For longer than the launcher itself tries to submit."""
    folder = StageFolder(tmp_path / "run" / "sft", "sft")
    outcome = StageOutcome(stage="sft", attempt=1, steps=1, rows=1, rejects={}, tokens=1, last={})
    result = folder.root / "result.json"
    source = (
        f"import pathlib; pathlib.Path({str(result)!r}).write_text({outcome.model_dump_json()!r})"
    )

    def make_job(
        attempt: int, exclude_nodes: tuple[str, ...], nodes: int, into: Path | None = None
    ) -> Job:
        folder.attempt(attempt).mkdir(parents=True, exist_ok=True)
        attempt_dir = folder.attempt(attempt)
        return replace(job, command=("-c", source), attempt_dir=attempt_dir, nodes=1)

    launcher.client._timeout_s, launcher.client._delays_s = 1.0, ()
    pid = cluster.daemon("slurmctld")
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(12, os.kill, (pid, signal.SIGCONT)).start()
    try:
        began = time.monotonic()
        watch = Watch(lambda progress: None, lambda: False, 0.5)
        assert run_stage(folder, launcher, make_job, watch).attempt == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began > 12
    events = read_events(folder.root.parent / EVENTS_NAME)
    told = [event.event for event in events]
    assert told[:3] == ["scheduler_silent", "scheduler_back", "submitted"]
    assert "waiting for Slurm's controller" in events[0].detail
    assert len(launcher.client.own_jobs(job.key)) == 1, "submitted once"


def test_the_client_reads_this_cluster(launcher: SlurmLauncher, cluster: Cluster) -> None:
    from training.cluster.slurm_output import expand_nodes

    client = launcher.client
    assert client.version() >= (21, 8)
    assert [node.name for node in client.nodes()] == ["node1", "node2", "node3"]
    for compressed in ("n[1-3,7]", "gpu[01-12],login", "r[1-2]n[3,5]", "n[098-101]"):
        shown = subprocess.run(
            ["scontrol", "show", "hostnames", compressed], capture_output=True, text=True
        )
        assert expand_nodes(compressed) == tuple(shown.stdout.split())
