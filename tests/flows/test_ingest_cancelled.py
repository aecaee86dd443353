"""Cancelling an ingest run on the server: it stops, and the next one goes on from there."""

from __future__ import annotations

import contextvars
import threading
import time
from pathlib import Path

import pymupdf
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
)
from prefect.states import Cancelling

from corpus import worker_pool
from flows.ingest import ingest
from workspace.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_a_cancelled_run_stops_and_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(24):
        with pymupdf.open() as document:
            for page in range(4):
                document.new_page().insert_text(
                    (72, 72), f"Lot {number}, page {page}, is complete."
                )
            document.save(folder / f"{number:02d}.pdf")
    values = {
        "sources": [str(folder)],
        "workspace": str(tmp_path / "w"),
        "workers": 1,
        "page_dpi": 300,
        "table_detection": "fast",
    }
    units = tmp_path / "w/corpus/.work"
    # A thread starts without the context that holds the tests' Prefect settings.
    here = contextvars.copy_context()
    canceller = threading.Thread(target=here.run, args=(cancel_when_at_work, units))
    canceller.start()
    state = ingest(values, return_state=True)
    canceller.join()
    assert state.is_cancelled()
    assert read_manifest(tmp_path / "w/corpus") is None
    assert not worker_pool._warm
    kept = {path.parent.name for path in units.glob("units-*/*/unit.json")}
    assert 0 < len(kept) < 24
    ingest(values)
    manifest = read_manifest(tmp_path / "w/corpus")
    assert manifest is not None
    assert manifest.counts_out["documents"] == 24
    assert manifest.counts_out["pages"] == 96


def cancel_when_at_work(units: Path) -> None:
    """Do what the UI's button does, once the first document is done."""
    deadline = time.monotonic() + 300
    while not list(units.glob("units-*/*/unit.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    running = FlowRunFilter(state=FlowRunFilterState(type={"any_": ["RUNNING"]}))
    named = FlowFilter(name=FlowFilterName(any_=["ingest"]))
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(flow_filter=named, flow_run_filter=running)
        client.set_flow_run_state(run.id, Cancelling())
