"""kill -9 at random moments of ingest, build_graph and build_datasets: the next run ends the same.

A run is killed while it processes, by itself, as the kernel does that is out of memory; the run
that goes on from there while it publishes, with its process group, as Slurm does. Both moments are
drawn from the length that the undisturbed run had there. A third run ends the work. One such pair
for each stage; `DSM_KILLS=20` draws twenty.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import small_stages
from processes import ends_soon
from small_stages import STAGES, folder_of, run_stage

from corpus import worker_pool
from workspace.manifest import Manifest, read_manifest

SEEDS = range(int(os.environ.get("DSM_KILLS", "1")))
# Reports, timings and cards hold seconds or a date.
SAME = (".parquet", ".graphml", ".html")


@dataclass(frozen=True)
class Undisturbed:
    """A finished run, what it began with, and the seconds of its phases."""

    stage: str
    before: Path
    workspace: Path
    seconds: dict[str, float] = field(default_factory=dict)


@contextmanager
def running(stage: str, workspace: Path) -> Iterator[subprocess.Popen[str]]:
    """The stage in a process group of its own, which is gone when the block ends."""
    repository = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(
        [sys.executable, small_stages.__file__, stage, str(workspace)],
        env={**os.environ, "PYTHONPATH": str(repository)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def phase_begins(process: subprocess.Popen[str], phase: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{phase}\n"


def run_undisturbed(stage: str, before: Path, workspace: Path) -> Undisturbed:
    shutil.copytree(before, workspace)
    with running(stage, workspace) as process:
        phase_begins(process, "process")
        started = time.monotonic()
        phase_begins(process, "publish")
        published = time.monotonic()
        assert process.wait() == 0
    seconds = {"process": published - started, "publish": time.monotonic() - published}
    return Undisturbed(stage, before, workspace, seconds)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    """Each stage upon the one before."""
    root = tmp_path_factory.mktemp("undisturbed")
    (root / "nothing").mkdir()
    found: dict[str, Undisturbed] = {}
    before = root / "nothing"
    for stage in STAGES:
        found[stage] = run_undisturbed(stage, before, root / stage)
        before = found[stage].workspace
    return found


def kill_within(run: Undisturbed, workspace: Path, phase: str, moment: float) -> list[int]:
    """Start the stage on `workspace` and kill it so far (0 .. 1) into a phase.

    Where this run was quicker and ended before, it is done again and killed earlier. Returns the
    processes that it had started.
    """
    kept = workspace.with_name(f"{workspace.name}-before-{phase}")
    shutil.copytree(workspace, kept)
    while True:
        with running(run.stage, workspace) as process:
            phase_begins(process, "process")
            if phase == "publish":
                phase_begins(process, "publish")
            time.sleep(moment * run.seconds[phase])
            children = worker_pool._descendants(process.pid)
            (os.killpg if phase == "publish" else os.kill)(process.pid, signal.SIGKILL)
            if process.wait() == -signal.SIGKILL:
                return children
        shutil.rmtree(workspace)
        shutil.copytree(kept, workspace)
        moment /= 2


def outcome(stage: str, manifest: Manifest, workspace: Path) -> dict[str, object]:
    """What a run has to give again: bytes of the tables and pages, counts, reasons."""
    folder = folder_of(stage, workspace)
    files = [entry for entry in manifest.files if entry.path.endswith(SAME)]
    assert files
    return {
        "counts": (manifest.counts_in, manifest.counts_out, manifest.rejects),
        **{entry.path: (folder / entry.path).read_bytes() for entry in files},
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_killed_twice_ends_like_one_that_was_not(
    undisturbed: dict[str, Undisturbed], tmp_path: Path, stage: str, seed: int
) -> None:
    run = undisturbed[stage]
    workspace = tmp_path / "w"
    shutil.copytree(run.before, workspace)
    moments = random.Random(f"{stage} {seed}")
    children = kill_within(run, workspace, "process", moments.random())
    # At once, while what the killed run started may still be there.
    children += kill_within(run, workspace, "publish", moments.random())
    phases: list[str] = []
    manifest = run_stage(stage, workspace, phases.append)
    expected = read_manifest(folder_of(stage, run.workspace))
    assert expected is not None
    assert outcome(stage, manifest, workspace) == outcome(stage, expected, run.workspace)
    assert "publish" not in phases or not (folder_of(stage, workspace) / ".work").exists()
    assert all(ends_soon(pid) for pid in children), "children outlived the run that they worked for"


@pytest.mark.parametrize("stage", ["build_graph", "build_datasets"])
def test_the_children_of_a_pool_end_with_a_run_that_is_killed_by_itself(
    undisturbed: dict[str, Undisturbed], tmp_path: Path, stage: str
) -> None:
    shutil.copytree(undisturbed[stage].before, tmp_path / "w")
    with running(stage, tmp_path / "w") as process:
        # multiprocessing's resource tracker, the fork server, and its two children.
        while len(children := worker_pool._descendants(process.pid)) < 4:
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert all(ends_soon(pid) for pid in children)
