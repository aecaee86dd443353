"""A person suspends a pipeline in the browser while it trains, and resumes it later.

The real thing throughout: `python -m flows.serve` (server, worker, deployments) and Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from served import PATIENCE_MS, client_of

from training.cluster.reconcile import reconcile
from workspace.manifest import read_manifest
from workspace.paths import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from prefect.client.orchestration import SyncPrefectClient

pytestmark = [pytest.mark.browser, pytest.mark.model]

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def client(ui: str) -> Iterator[SyncPrefectClient]:
    """Of the served API."""
    with client_of(ui) as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path, tiny_base: Path) -> dict[str, Any]:
    """Of a pipeline over two documents whose training takes a while."""
    folder = tmp_path / "documents"
    shutil.copytree(REPOSITORY / "examples" / "documents" / "rtl", folder / "rtl")
    shutil.copy(REPOSITORY / "examples" / "documents" / "bring-up-notes.md", folder)
    return {
        "sources": [str(folder)],
        "workspace": str(tmp_path / "W"),
        "base_model": str(tiny_base),
        "graph": {"extractors": ["table", "rtl", "identifier"]},
        "datasets": {"open_book_test_rows": 4, "skill_test_rows": 1, "closed_book_facts": 20},
        "train": {
            "sft": {"epochs": 24, "token_budget": 2_000_000, "max_length": 512},
            "rlvr": {"steps": 0},
            "checkpoint_every_steps": 50,
        },
        "score": {
            "limit": 2, "samples_per_problem": 1, "ks": [1], "benchmarks": ["domain_qa_closed_book"]
        },
    }  # fmt: skip


def test_a_suspended_pipeline_holds_nothing_and_goes_on_when_it_is_resumed(
    ui: str, page: Page, client: SyncPrefectClient, settings: dict[str, Any]
) -> None:
    workspace = Workspace(Path(settings["workspace"]))
    deployment = client.read_deployment_by_name("pipeline/pipeline")
    run = client.create_flow_run_from_deployment(deployment.id, parameters={"config": settings})
    until(lambda: client.read_flow_run(run.id).state_name == "Running", "began")

    # The dialog is open before there is a step: its clicks are no part of the training's time.
    page.goto(f"{ui}/runs/flow-run/{run.id}")
    page.get_by_role("button", name="Suspend", exact=True).click()
    page.locator("input[type=number]").fill("86400")
    keep(page, "suspend-dialog")
    until(lambda: list(workspace.runs.glob("*/sft/attempts/1/metrics.jsonl")), "trained")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    until(lambda: list(workspace.runs.glob("*/sft/attempts/1/outcome.json")), "stopped its job")
    until(lambda: parts(client, run.id).get("train") == "WaitsForParent", "at rest")
    assert client.read_flow_run(run.id).state_name == "Suspended"
    assert reconcile(workspace) == [], "nothing is left to mend"
    keep(page, "suspended")

    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Submit").click()
    # The rest of the training, and the scores: twice as long as anything else takes.
    page.get_by_text("Completed", exact=True).first.wait_for(timeout=2 * PATIENCE_MS)
    assert set(parts(client, run.id).values()) == {"Completed"}
    [folder] = workspace.runs.glob("*")
    assert read_manifest(folder / "final") is not None
    assert sorted(path.name for path in folder.glob("sft/attempts/*")) == ["1", "2"]
    first, second = steps(folder, 1), steps(folder, 2)
    assert second[0] == first[-1] + 1, "from the checkpoint of its last step"


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, f"it never {what}"
        time.sleep(0.3)


def parts(client: SyncPrefectClient, pipeline: UUID) -> dict[str, str]:
    """Names of the states of a pipeline's flow runs, by flow; each has one."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    own = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[pipeline]))
    found = client.read_flow_runs(flow_run_filter=own)
    names = {run.name.split()[0]: str(run.state_name) for run in found}
    assert len(names) == len(found)
    return names


def steps(run: Path, attempt: int) -> list[int]:
    lines = (run / f"sft/attempts/{attempt}/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def keep(page: Page, name: str) -> None:
    """A picture for people, where one is wanted."""
    if folder := os.environ.get("DSM_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
