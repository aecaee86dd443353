"""A handle on the cluster that `deploy/slurm/one-host` runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ONE_HOST = Path(__file__).resolve().parents[1] / "deploy" / "slurm" / "one-host"


def require_slurm() -> None:
    """Skip the test where no such cluster can be started."""
    if os.geteuid() != 0:
        pytest.skip("a one-host Slurm cluster needs root")
    missing = [
        program
        for program in ("slurmctld", "slurmd", "munged", "sbatch")
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@dataclass(frozen=True)
class Cluster:
    """A running one-host cluster of three nodes."""

    folder: Path

    def call(self, action: str) -> str:
        done = subprocess.run(
            [str(ONE_HOST), action, "--dir", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def daemon(self, name: str) -> int:
        """Process id of `slurmctld`, `munged` or a node's slurmd (`node1`)."""
        return int((self.folder / "run" / f"{name}.pid").read_text())
