"""The train flow with a real small job: it completes, and a cancelled one ends with its job."""

from __future__ import annotations

import contextvars
import json
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("prefect_server")]


def settings(tiny: ModuleType, workspace: Path, base: Path, *, steps: int) -> dict[str, Any]:
    tiny.write_dataset(workspace, [tiny.question(number) for number in range(64)])
    config = tiny.tiny_config(workspace, base, steps=steps)
    values: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    return values


def test_a_run_completes_and_shows_its_steps(
    tiny: ModuleType, tiny_base: Path, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client

    from flows.train import train

    result = train(settings(tiny, tmp_path, tiny_base, steps=4))
    assert result.manifest.counts_out == {"sft_steps": 4}
    with get_client(sync_client=True) as client:
        shown = client.read_artifacts()
    expected = {"train-sft-progress", "train-steps", "train-report", "train-page"}
    assert expected <= {artifact.key for artifact in shown}
    [page] = tmp_path.glob("runs/*/run.html")
    [story] = [str(a.data) for a in shown if a.key == "train-page" and str(page) in str(a.data)]
    assert story.startswith("# Finished\\: 4 steps"), "its last state"
    assert "| sft | 1 |" in story and "The stage is finished" in story


def test_cancelling_the_flow_run_ends_the_job(
    tiny: ModuleType, tiny_base: Path, tmp_path: Path
) -> None:
    from flows.train import train
    from training.cluster.job import TERMINAL, JobState
    from training.cluster.reconcile import reconcile
    from workspace.paths import Workspace

    values = settings(tiny, tmp_path, tiny_base, steps=8_000)
    # A thread starts without the context that holds the tests' Prefect settings.
    here = contextvars.copy_context()
    canceller = threading.Thread(target=here.run, args=(cancel_when_training, tmp_path))
    canceller.start()
    state = train(values, return_state=True)
    canceller.join()
    assert state.is_cancelled()
    assert "newest checkpoint: step" in state.message
    (outcome,) = tmp_path.glob("runs/*/sft/attempts/1/outcome.json")
    assert JobState(json.loads(outcome.read_text())["state"]) in TERMINAL
    assert reconcile(Workspace(tmp_path)) == [], "nothing is left to mend"


def cancel_when_training(workspace: Path) -> None:
    """Do what the UI's button does, once the first step is written."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterState,
    )
    from prefect.states import Cancelling

    deadline = time.monotonic() + 300
    while not any(path.stat().st_size for path in workspace.glob("runs/*/sft/attempts/*/metrics*")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    running = FlowRunFilter(state=FlowRunFilterState(type={"any_": ["RUNNING"]}))
    training = FlowFilter(name=FlowFilterName(any_=["train"]))
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_filter=training, flow_run_filter=running)
        # Runs that other tests killed on this server count as running for ever.
        configs = {run.id: run.parameters["config"] for run in found}
        (run_id,) = (r for r, c in configs.items() if c.get("workspace") == str(workspace))
        client.set_flow_run_state(run_id, Cancelling())
