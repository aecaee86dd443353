"""One real Slurm cluster for all tests of a session that ask for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from slurm_on_one_host import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`SLURM_CONF` points at it while it runs."""
    if os.geteuid() != 0:
        pytest.skip("a one-host Slurm cluster needs root")
    missing = [
        program
        for program in ("slurmctld", "slurmd", "munged", "sbatch")
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    running = Cluster(tmp_path_factory.mktemp("slurm"))
    running.call("start")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.folder / "slurm.conf"))
        yield running
    running.call("stop")
