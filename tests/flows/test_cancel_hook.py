"""A cancelled flow run whose process can no longer hear of it: the worker's hook ends its job.

The real thing: `python -m flows.serve`, a job, and the state that the page's button sets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from served import PATIENCE_MS, client_of

from training.attempt_history import OUTCOME_NAME
from training.cluster.reconcile import reconcile
from workspace.paths import Workspace

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

pytestmark = pytest.mark.model


@pytest.fixture
def client(ui: str) -> Iterator[SyncPrefectClient]:
    with client_of(ui) as opened:
        yield opened


def test_the_worker_ends_the_job_of_a_process_that_could_not(
    client: SyncPrefectClient, tiny: ModuleType, tiny_base: Path, tmp_path: Path
) -> None:
    from prefect.states import Cancelling

    tiny.write_dataset(tmp_path, [tiny.question(number) for number in range(64)])
    config = tiny.tiny_config(tmp_path, tiny_base, steps=8_000)
    settings = config.model_dump(mode="json", exclude_unset=True)
    deployment = client.read_deployment_by_name("train/train")
    run = client.create_flow_run_from_deployment(deployment.id, parameters={"config": settings})
    until(lambda: list(tmp_path.glob("runs/*/sft/attempts/1/metrics.jsonl")), "trained")

    # It hears neither its wait loop nor SIGTERM: the worker kills it 30 s later.
    process = int(str(client.read_flow_run(run.id).infrastructure_pid).rpartition(":")[2])
    os.kill(process, signal.SIGSTOP)
    client.set_flow_run_state(run.id, Cancelling())
    until(lambda: state_of(client, run.id) == "Cancelled", "was cancelled")

    [attempt] = tmp_path.glob("runs/*/sft/attempts/1")
    assert (attempt / OUTCOME_NAME).exists()
    assert (attempt / "exit.json").exists(), "its job saved and ended"
    assert reconcile(Workspace(tmp_path)) == [], "nothing is left to mend"
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def state_of(client: SyncPrefectClient, flow_run: object) -> str:
    return str(client.read_flow_run(flow_run).state_name)  # type: ignore[arg-type]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, f"it never {what}"
        time.sleep(0.3)
