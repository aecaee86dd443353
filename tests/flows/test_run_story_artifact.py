"""The story of a run in the Prefect UI: one artifact, kept up to date, and inert."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import client_of

from tasks._markdown import inert, run_markdown
from training.cluster.job import JobState
from training.progress import TrainProgress
from training.run_events import EVENTS_NAME, EventLog, RunEvent
from training.run_page import write_page
from training.run_record import RunFolder, RunRecord
from training.run_story import Told, tell
from workspace.manifest import now

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    "<img src=x onerror=alert(1)> | ![p](http://e.org/p.png) [k](javascript:alert(1)) `c` **b**"
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has not started."""
    folder = RunFolder(tmp_path / "runs" / "r1")
    folder.write_record(
        RunRecord(
            run="r1", key="k", settings={}, lineage={}, base_model="b", stages=("sft",),
            created=now(),
        )
    )  # fmt: skip
    return folder


def say(run: RunFolder, event: str, detail: str, *nodes: str) -> None:
    log = EventLog(run.root / EVENTS_NAME, stage="sft", attempt=1)
    log.add(RunEvent(time.time(), event, detail, "sft", 1, nodes=nodes))


def told(run: RunFolder) -> Told:
    found = tell(run.root)
    assert found is not None
    return found


def stories(client: Any) -> list[Any]:
    return [found for found in client.read_artifacts() if found.key == "train-page"]


def test_it_is_replaced_in_place_when_the_page_is_and_at_the_end(
    run: RunFolder, prefect_server: str
) -> None:
    from prefect.client.orchestration import get_client

    from tasks.train import TrainingDisplay

    seen = TrainProgress("sft", 1, JobState.PENDING, page=run.root / "run.html")
    with get_client(sync_client=True) as client:
        before = {found.id for found in stories(client)}

        def shown() -> str:
            [story] = [found for found in stories(client) if found.id not in before]
            assert story.type == "markdown"
            return str(story.data)

        with TrainingDisplay() as display:
            say(run, "submitted", "Slurm job 17")
            write_page(run.root)
            display.observe(seen)
            first = shown()
            assert "Job submitted" in first and inert("Slurm job 17") in first
            assert str(run.root / "run.html") in first and "file:" not in first
            assert "has not started yet" in first
            say(run, "node_lost", "gpu-07 fell silent", "gpu-07")
            display.observe(seen)
            assert shown() == first, "no oftener than the page"
            write_page(run.root)
            os.utime(seen.page or "", ns=(1, 1))
            display.observe(seen)
            assert "A node is lost" in shown() and inert("gpu-07") in shown()
            say(run, "decided", "given up")
            write_page(run.root)
        assert "given up" in shown(), "the end is told"


def test_a_server_that_is_gone_ends_no_training(
    run: RunFolder, prefect_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    from tasks.train import TrainingDisplay

    write_page(run.root)
    away = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(away), TrainingDisplay() as display:
        display.observe(TrainProgress("sft", 1, JobState.PENDING, page=run.root / "run.html"))
    assert "not up to date" in caplog.text


def test_the_newest_lines_and_attempts_are_shown_and_the_rest_is_counted(run: RunFolder) -> None:
    for number in range(50):
        say(run, "waiting", f"line {number}")
    text = run_markdown(told(run), run.root / "run.html")
    assert "line 49" in text and "line 20" in text and "line 19" not in text
    assert text.index("line 49") < text.index("line 20")
    assert "20 older lines are on that page" in text


@pytest.mark.browser
def test_the_page_shows_what_users_wrote_letter_by_letter(
    ui: str, page: Page, run: RunFolder
) -> None:
    from prefect.client.schemas.actions import ArtifactCreate

    say(run, "decided", HOSTILE, "<b>n1</b>")
    markdown = run_markdown(told(run), run.root / "run.html")
    with client_of(ui) as client:
        made = client.create_artifact(
            ArtifactCreate(key="train-page", type="markdown", data=markdown)
        )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{ui}/artifacts/artifact/{made.id}")
    page.get_by_text("What happened, newest first").first.wait_for()
    shown = page.locator("body").inner_text()
    assert HOSTILE in shown and "<b>n1</b>" in shown
    cell = page.locator("td", has_text="onerror").first
    assert cell.inner_text().strip() == HOSTILE, "one cell holds all of it"
    assert cell.locator("img, a, code, strong").count() == 0
    assert not [url for url in asked if "e.org" in url]
    if keep := os.environ.get("DSM_SCREENSHOTS"):
        page.screenshot(path=str(Path(keep) / "run-story.png"))
