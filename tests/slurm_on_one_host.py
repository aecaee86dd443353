"""A handle on the cluster that `deploy/slurm/one-host` runs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ONE_HOST = Path(__file__).resolve().parents[1] / "deploy" / "slurm" / "one-host"


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
