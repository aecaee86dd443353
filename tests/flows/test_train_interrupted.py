"""Ctrl-C on `python -m flows.train`: its job saves and ends, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from training.checkpoints import newest_complete
from training.cluster.job import JobState
from training.cluster.reconcile import reconcile
from training.ledger import audit
from training.run_record import StageFolder
from workspace.manifest import require_manifest
from workspace.paths import Workspace

pytestmark = pytest.mark.model

STEPS = 200


def test_ctrl_c_saves_and_the_same_command_trains_to_the_end(
    tiny: ModuleType, tiny_base: Path, tmp_path: Path, prefect_server: str
) -> None:
    tiny.write_dataset(tmp_path / "W", [tiny.question(number) for number in range(64)])
    config = tiny.tiny_config(tmp_path / "W", tiny_base, steps=STEPS)
    config = config.model_copy(update={"sft": config.sft.model_copy(update={"token_budget": 0})})
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    command = [sys.executable, "-m", "flows.train", "--config", str(settings)]

    process = start(command, prefect_server)
    wait_for_steps(tmp_path / "W", process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    assert "Traceback" not in said

    [root] = tmp_path.glob("W/runs/*/sft")
    stage = StageFolder(root, "sft")
    assert f'"state": "{JobState.RESUMABLE}"' in (stage.attempt(1) / "outcome.json").read_text()
    assert reconcile(Workspace(tmp_path / "W")) == [], "no job is left behind"
    saved = newest_complete(stage.checkpoints)
    assert saved is not None and 0 < saved.step < STEPS

    again = start(command, prefect_server)
    shown, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert require_manifest(root.parent / "final", made_by="train").counts_out == {
        "sft_steps": STEPS
    }
    assert "final" in shown
    trained = audit(stage.root)
    assert trained.stretches == [("1", 1, saved.step), ("2", saved.step + 1, STEPS)]
    assert (trained.faults, trained.retrained_steps) == ([], 0)


def start(command: Sequence[str], api: str) -> subprocess.Popen[str]:
    """In a group of its own, as a shell starts what a terminal's Ctrl-C reaches."""
    # What ignores interrupts, as a shell's background jobs do, hands that on to its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command,
            env={**os.environ, "PREFECT_API_URL": api},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_steps(workspace: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not any(path.stat().st_size for path in workspace.glob("runs/*/sft/attempts/1/metrics*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
