"""Health checks of a node: the rules as tables, the measuring on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import ends_soon, is_running

from training.cluster.health.__main__ import main
from training.cluster.health.checks import Situation, check_node, run_checks
from training.cluster.health.config import HealthConfig
from training.cluster.health.machine import (
    Clock,
    Memory,
    Processors,
    judge_clock,
    judge_memory,
    judge_processors,
    read_clock,
    read_memory,
)
from training.cluster.health.processes import (
    Leftover,
    Processes,
    Scope,
    end_leftovers,
    ended_on_disk,
    judge_processes,
)
from training.cluster.health.results import (
    REASON_PREFIX,
    CheckResult,
    Severity,
    Verdict,
    combine,
    drain_reason,
)
from training.cluster.health.slurm_node import wanted_state
from training.cluster.health.storage import (
    Disk,
    Shared,
    judge_disk,
    judge_mounts,
    judge_shared,
    read_shared,
)
from training.cluster.health.timed import measure_all
from workspace.errors import UserError

OK, WARN, DRAIN, ISOLATE = Severity.OK, Severity.WARN, Severity.DRAIN, Severity.ISOLATE


EXPECTING = HealthConfig(
    min_memory_gib=500, cpus=96, min_cpu_mhz=3000, mounts=(Path("/fsx"), Path("/home"))
)


GIB = 1 << 20  # in KiB


GIB_BYTES = 1 << 30


@pytest.mark.parametrize(
    ("memory", "severity"),
    [
        (Memory(512 * GIB, 400 * GIB), OK),
        (Memory(448 * GIB, 400 * GIB), DRAIN),
        (Memory(512 * GIB, 10 * GIB), WARN),
        (Memory(512 * GIB, 400 * GIB, uncorrected=1), ISOLATE),
        (Memory(512 * GIB, 400 * GIB, corrected=40), OK),
        (Memory(448 * GIB, 4 * GIB, uncorrected=1), ISOLATE),
    ],
)
def test_memory(memory: Memory, severity: Severity) -> None:
    assert judge_memory(memory, EXPECTING).severity is severity


@pytest.mark.parametrize(
    ("processors", "severity"),
    [
        (Processors(96, 3500.0), OK),
        (Processors(96, None), OK),
        (Processors(95, 3500.0), DRAIN),
        (Processors(96, 1200.0), WARN),
        (Processors(96, 3500.0, ("powersave",)), WARN),
    ],
)
def test_processors(processors: Processors, severity: Severity) -> None:
    assert judge_processors(processors, EXPECTING).severity is severity


@pytest.mark.parametrize(
    ("clock", "severity"),
    [
        (Clock(True, 0.002, "tsc"), OK),
        (Clock(True, 1.5, "kvm-clock"), WARN),
        (Clock(True, 45.0, "tsc"), DRAIN),
        (Clock(False, None, "tsc"), WARN),
        (Clock(True, 0.002, "hpet"), WARN),
        (Clock(True, 0.002, ""), OK),
    ],
)
def test_clock(clock: Clock, severity: Severity) -> None:
    assert judge_clock(clock, HealthConfig()).severity is severity


@pytest.mark.parametrize(
    ("disk", "severity", "word"),
    [
        (Disk("/", 100 * GIB_BYTES, 50 * GIB_BYTES, 1000, 900, False), OK, "50 % free"),
        (Disk("/", 100 * GIB_BYTES, 9 * GIB_BYTES, 1000, 900, False), WARN, "space"),
        (Disk("/", 100 * GIB_BYTES, GIB_BYTES, 1000, 900, False), DRAIN, "space"),
        (Disk("/", 100 * GIB_BYTES, 50 * GIB_BYTES, 1000, 1, False), DRAIN, "inodes"),
        (Disk("/", 100 * GIB_BYTES, 50 * GIB_BYTES, 0, 0, False), OK, "free"),
        (Disk("/", 100 * GIB_BYTES, 50 * GIB_BYTES, 1000, 900, True), DRAIN, "read-only"),
        (Disk("/x", 0, 0, 0, 0, False), OK, "not there"),
    ],
)
def test_disks(disk: Disk, severity: Severity, word: str) -> None:
    verdict = judge_disk(disk, HealthConfig())
    assert verdict.severity is severity and word in verdict.detail


@pytest.mark.parametrize(
    ("shared", "severity"),
    [
        (Shared("/fsx", 0.02), OK),
        (Shared("/fsx", 6.0), WARN),
        (Shared("/fsx", 0.0, "Stale file handle"), DRAIN),
        (Shared("/fsx", 0.02, "", 1.5), WARN),
        (Shared("/fsx", 0.02, "", -90.0), DRAIN),
    ],
)
def test_shared_file_systems(shared: Shared, severity: Severity) -> None:
    assert judge_shared(shared, HealthConfig()).severity is severity


def test_a_missing_mount_is_named() -> None:
    verdict = judge_mounts(["/", "/home"], EXPECTING)
    assert verdict.severity is DRAIN and "/fsx" in verdict.detail and "/home" not in verdict.detail


@pytest.mark.parametrize(
    ("processes", "severity"),
    [
        (Processes(3), OK),
        (Processes(300), WARN),
        (Processes(0, ("nvidia-smi",)), WARN),
        (Processes(0, (), (Leftover(7, "42", "python"),)), DRAIN),
    ],
)
def test_processes(processes: Processes, severity: Severity) -> None:
    assert judge_processes(processes, HealthConfig()).severity is severity


@given(st.lists(st.sampled_from(Severity), max_size=6))
def test_several_verdicts_are_as_bad_as_their_worst(severities: list[Severity]) -> None:
    verdicts = [Verdict(severity, f"{index}") for index, severity in enumerate(severities)]
    assert combine(verdicts, "fine").severity is max(severities, default=OK)


def test_a_drains_reason_is_ours_short_and_begins_with_the_worst() -> None:
    results = [
        CheckResult("disk", DRAIN, "x" * 300),
        CheckResult("clock", WARN, "late"),
        CheckResult("gpus", ISOLATE, "GPU 3 is lost"),
    ]
    reason = drain_reason(results)
    assert reason.startswith(f"{REASON_PREFIX} gpus: GPU 3 is lost; disk: ")
    assert len(reason) == 200 and "late" not in reason
    assert drain_reason(results[1:2]) == ""


def test_where_a_service_replaces_nodes_the_worst_asks_it_to() -> None:
    lost, full = CheckResult("gpus", ISOLATE, "GPU 3 is lost"), CheckResult("disk", DRAIN, "full")
    hyperpod = HealthConfig(isolate_state="DOWN", isolate_reason="Action:Replace")
    assert wanted_state([full, lost], hyperpod) == ("DOWN", "Action:Replace")
    assert wanted_state([full], hyperpod) == ("DRAIN", "dsm-health: disk: full")
    assert wanted_state([lost], HealthConfig()) == ("DRAIN", "dsm-health: gpus: GPU 3 is lost")
    assert wanted_state([CheckResult("clock", WARN, "late")], hyperpod) is None


def test_what_the_kernel_says_of_this_machine() -> None:
    memory = read_memory()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    assert memory.total_kib == pages
    assert 0 < memory.available_kib <= memory.total_kib
    clock = read_clock()
    assert clock.synchronised is (clock.error_s is not None)


def test_a_shared_folder_is_written_and_left_clean(tmp_path: Path) -> None:
    shared = read_shared(tmp_path)
    assert shared.error == "" and abs(shared.clock_offset_s) < 1
    assert list(tmp_path.iterdir()) == []
    assert read_shared(tmp_path / "absent").error == "No such file or directory"


def test_a_check_that_hangs_is_given_up_and_its_processes_are_ended(tmp_path: Path) -> None:
    written = tmp_path / "pid"

    def hang() -> None:
        # As `nvidia-smi` would: the command outlives the child that waits for it, unless killed.
        process = subprocess.Popen(["sleep", "600"])
        written.write_text(str(process.pid))
        signal.pause()

    outcomes = measure_all([lambda: [1, 2], hang, lambda: 1 / 0, lambda: os._exit(3)], 2.0)
    assert outcomes[0].value == [1, 2]
    assert outcomes[1].timed_out and outcomes[1].error == "no answer in 2 s"
    assert outcomes[2].error == "ZeroDivisionError: division by zero"
    assert outcomes[3].error == "the check's process died"
    assert ends_soon(int(written.read_text()))


def test_a_hanging_file_system_drains_and_holds_nobody(tmp_path: Path) -> None:
    """Opening a FIFO for writing waits for a reader for ever, as a dead NFS server does."""
    pipe = tmp_path / "disk"
    os.mkfifo(pipe)
    config = HealthConfig(shared=(tmp_path,), disks=(), timeout_s=1.5)

    def stall(*arguments: object) -> Iterator[None]:
        with pipe.open("wb"):
            raise AssertionError("nobody reads")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.cluster.health.storage._write_through", stall)
        results = run_checks(config, Situation(Scope("n1"), lambda job, folder: False))
    shared = next(result for result in results if result.check.startswith("shared"))
    assert shared.severity is DRAIN and "no answer" in shared.detail
    assert next(result for result in results if result.check == "memory").severity <= WARN


def test_the_agents_call_works_beside_threads(tmp_path: Path) -> None:
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        results = check_node(HealthConfig(shared=(tmp_path, tmp_path / "absent"), disks=()))
    finally:
        waiting.set()
        thread.join()
    found = {result.check: result for result in results}
    assert found[f"shared {tmp_path}"].severity is OK
    assert found[f"shared {tmp_path / 'absent'}"].severity is DRAIN
    assert found["memory"].detail.endswith("% available")


@pytest.fixture
def straggler(tmp_path: Path) -> Iterator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """Starts a process that belongs to a job on a node, in a session of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(job_id: str, node: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["sleep", "600"],
            env={
                "SLURM_JOB_ID": job_id,
                "SLURMD_NODENAME": node,
                "SLURM_CLUSTER_NAME": "c1",
                "DSM_ATTEMPT_DIR": str(tmp_path),
                "PATH": os.environ["PATH"],
            },
            start_new_session=True,
        )
        started.append(process)
        deadline = time.monotonic() + 30
        while b"SLURM_JOB_ID" not in Path(f"/proc/{process.pid}/environ").read_bytes():
            assert time.monotonic() < deadline
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_processes_of_ended_jobs_are_found_and_ended(
    tmp_path: Path, straggler: Callable[[str, str], subprocess.Popen[bytes]]
) -> None:
    old, new, other = straggler("17", "n1"), straggler("18", "n1"), straggler("17", "n2")
    assert end_leftovers(Scope("n1"), ended_on_disk) == (), "nothing says that a job is over"
    (tmp_path / "exit.json").write_text('{"exit_code": 0, "job_id": "17"}')
    assert end_leftovers(Scope("n1", "other"), ended_on_disk) == ()
    assert end_leftovers(Scope("n1", "c1", started_before=1.0), ended_on_disk) == ()
    assert end_leftovers(Scope("n1", "c1"), ended_on_disk) == (Leftover(old.pid, "17", "sleep"),)
    assert ends_soon(old.pid)
    assert is_running(new.pid) and is_running(other.pid)


def test_the_epilog_ends_what_its_job_left(
    straggler: Callable[[str, str], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, other = straggler("17", "n1"), straggler("18", "n1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert main(["--epilog"]) == 0
    assert ends_soon(own.pid) and is_running(other.pid)
    assert "ended 1 process(es)" in capsys.readouterr().err


def test_the_prologs_exit_code_drains_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "health.yaml"
    settings.write_text(f"shared: [{tmp_path}]\ndisks: []\n")
    assert main(["--prolog", "--config", str(settings)]) == 0
    settings.write_text("shared: [/nonexistent]\ndisks: []\n")
    assert main(["--prolog", "--json", "--config", str(settings)]) == 4
    document = json.loads(capsys.readouterr().out.partition("\n{")[2].join(("{", "")))
    assert document["severity"] == "drain"


def test_a_wrong_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "health.yaml"
    settings.write_text("shard: [/fsx]\n")
    assert main(["--config", str(settings)]) == 2
    assert "shard" in capsys.readouterr().err
    with pytest.raises(UserError):
        HealthConfig.from_yaml(tmp_path / "absent.yaml")
