"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import settings
from slurm_on_one_host import Cluster, require_slurm
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from corpus import ingest
from corpus.worker_pool import close_warm_pools

# Machines are shared and noisy: no test here judges by wall time. The same examples each time, so
# that a change fails for its own faults; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

REPOSITORY = Path(__file__).resolve().parent.parent
SLURM, PREFECT = "slurm", "prefect"  # groups of tests that share a server


class Together(LoadScopeScheduling):
    """Which tests stay in one process when several run them (`make test`).

    The tests of a Slurm cluster are one group, those of a Prefect API another: both wait more than
    they compute. Of the others a file stays together, for what its fixtures make.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _group(nodeid: str) -> str:
    path = PurePosixPath(nodeid.partition("::")[0])
    if "slurm" in path.name or "one_host" in path.name:
        return SLURM
    return PREFECT if path.parent.name == "flows" else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The two that wait come first, to be beside each other; then the files that train models.

    Those take minutes each: one that began last would leave the other processes without work.
    """
    training = {_group(item.nodeid) for item in items if item.get_closest_marker("model")}

    def place(item: pytest.Item) -> tuple[bool, bool]:
        group = _group(item.nodeid)
        return group not in (SLURM, PREFECT), group not in training

    items.sort(key=place)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real documents with ground truth; tests that need it skip without it."""
    root = Path(os.environ.get("DSM_SHARED", REPOSITORY.parent / "shared"))
    data = root / "data"
    if not data.is_dir():
        pytest.skip(f"real documents not found at {data}; set DSM_SHARED to their folder")
    return data


@pytest.fixture(scope="session", autouse=True)
def warm_parsers() -> Iterator[None]:
    """Parser processes stay for the next test's run: starting one costs 4 s of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "close_warm_pools", lambda: None)
        yield
    close_warm_pools()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm of three nodes; `SLURM_CONF` points at it while it runs."""
    require_slurm()
    running = Cluster(tmp_path_factory.mktemp("slurm"))
    running.call("start")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.folder / "slurm.conf"))
        yield running
    running.call("stop")
