"""deploy/slurm/one-host: a cluster that starts, heals and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm

ONE_HOST = Path(__file__).resolve().parents[2] / "deploy" / "slurm" / "one-host"


def one_host(
    action: str, folder: Path, *options: str, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ONE_HOST), action, "--dir", str(folder), *options],
        env={**os.environ, **({"PATH": path} if path else {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def living(folder: Path) -> list[str]:
    """Processes that have this cluster's configuration in their environment or arguments."""
    needle = f"{folder}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a one-host Slurm cluster needs root")
    if shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("not installed: slurmctld")
    yield tmp_path
    one_host("stop", tmp_path)


def slurm(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ORPHANS = """#!/bin/bash
setsid bash -c 'sleep 611 & disown; sleep 612' >/dev/null 2>&1 &
sleep 613
"""


def test_life_of_a_cluster(folder: Path) -> None:
    assert one_host("status", folder).returncode == 1

    started = one_host("start", folder, "--nodes", "2")
    assert started.returncode == 0, started.stderr
    assert slurm(folder, "srun", "-N2", "printenv", "SLURMD_NODENAME").split() in (
        ["node1", "node2"],
        ["node2", "node1"],
    )
    assert one_host("status", folder).returncode == 0
    assert one_host("env", folder).stdout == f"export SLURM_CONF={folder}/slurm.conf\n"

    pids = {path.name: path.read_text() for path in (folder / "run").glob("*.pid")}
    assert set(pids) == {"munged.pid", "slurmctld.pid", "node1.pid", "node2.pid"}
    assert one_host("start", folder, "--nodes", "2").returncode == 0
    assert pids == {path.name: path.read_text() for path in (folder / "run").glob("*.pid")}
    refused = one_host("start", folder, "--nodes", "3")
    assert refused.returncode == 1 and "stop it first" in refused.stderr

    os.kill(int(pids["node2.pid"]), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while one_host("status", folder).returncode == 0:
        assert time.monotonic() < deadline
    assert one_host("start", folder, "--nodes", "2").returncode == 0
    assert one_host("status", folder).returncode == 0

    script = folder / "orphans.sh"
    script.write_text(ORPHANS)
    slurm(folder, "sbatch", "--output=/dev/null", str(script))
    deadline = time.monotonic() + 30
    while not any("sleep 612" in command for command in living(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert one_host("stop", folder).returncode == 0
    assert living(folder) == []
    assert one_host("stop", folder).returncode == 0
    assert one_host("status", folder).returncode == 1


def test_two_clusters_side_by_side(folder: Path) -> None:
    first, second = folder / "a", folder / "b"
    try:
        with ThreadPoolExecutor() as both:  # started at once, each finds ports of its own
            started = list(
                both.map(lambda at: one_host("start", at, "--nodes", "1"), (first, second))
            )
        assert [each.returncode for each in started] == [0, 0], started
        assert one_host("stop", first).returncode == 0
        assert slurm(second, "srun", "printenv", "SLURMD_NODENAME") == "node1\n"
    finally:
        for each in (first, second):
            one_host("stop", each)
    assert living(folder) == []


def test_missing_packages_are_named_with_the_cure(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "sed", "realpath", "cat"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    refused = one_host("start", folder / "c", path=str(tools))
    assert refused.returncode == 1
    assert "sbatch" in refused.stderr
    assert "apt-get install --no-install-recommends -y slurmctld slurmd" in refused.stderr


def test_without_root_it_says_so(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        refused = one_host("start", tmp_path)
    else:
        refused = subprocess.run(
            ["setpriv", "--reuid=65534", "bash", str(ONE_HOST), "start"],
            capture_output=True,
            text=True,
        )
    assert refused.returncode == 1 and "needs root" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["restart"], ["start", "--nodes", "many"], ["start", "--dir", "/tmp/a b"]]
)
def test_wrong_usage_is_explained(arguments: list[str]) -> None:
    refused = subprocess.run([str(ONE_HOST), *arguments], capture_output=True, text=True)
    assert refused.returncode in (1, 2)
    assert refused.stderr
