"""A person in a browser: open a deployment's form, change it, start, see it end with its artifacts.

The real thing throughout: `python -m flows.serve` (server, worker, deployments) and Chromium.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from served import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SHOWN = ("report", "files", "counts", "progress", "slowest", "quarantine")
RELOAD_MS = 30_000
SHOWS = "text => new RegExp(text).test(document.body.innerText)"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A note with a table, and a page of a scan."""
    from PIL import Image, ImageDraw

    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "timer.md").write_text(
        "# Timer\n\nThe timer counts to 15.\n\n| signal | width |\n| --- | --- |\n| count | 4 |\n"
    )
    scan = Image.new("RGB", (600, 800), "white")
    ImageDraw.Draw(scan).text((60, 60), "Timer block", fill="black")
    scan.save(folder / "scan.pdf")
    return folder


def test_a_run_from_the_form_completes_and_shows_its_artifacts(
    ui: str, page: Page, documents: Path, tmp_path: Path
) -> None:
    _open_form(page, ui, "ingest")
    sources, workspace = page.locator("textarea").nth(0), page.locator("textarea").nth(1)
    assert sources.input_value() == "examples/documents"
    sources.fill(str(documents))
    workspace.fill(str(tmp_path / "W"))
    field = page.locator(".schema-form-property", has_text="Page Dpi").last
    resolution = field.locator("input[type=number]")
    resolution.fill("5")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("5 is less than the minimum of 36").first.wait_for()
    resolution.fill("72")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("View run").last.click()

    page.get_by_text("Completed", exact=True).first.wait_for()
    assert (tmp_path / "W" / "corpus" / "manifest.json").exists()
    run = page.url
    _sees(page, run, r"ingest: \d+ kB in")  # a library's line, shipped
    page.get_by_text("Artifacts", exact=True).last.click()
    shown = {key: _address(page, key) for key in SHOWN}
    sheet = _address(page, "contact-sheet")

    _sees(page, shown["report"], "ingest: published")
    _sees(page, shown["files"], r"timer\.md")
    _sees(page, shown["counts"], r"documents\s+2")
    _sees(page, shown["slowest"], r"scan\.pdf[\s\S]*timer\.md|timer\.md[\s\S]*scan\.pdf")
    _sees(page, shown["progress"], r"(\d+) of \1 kB")
    page.goto(sheet)
    picture = page.locator('img[src^="data:image/jpeg"]')
    picture.wait_for()
    assert picture.evaluate("image => image.naturalWidth") > 100
    if keep := os.environ.get("DSM_SCREENSHOTS"):
        page.screenshot(path=str(Path(keep) / "contact-sheet.png"))


def _open_form(page: Page, ui: str, deployment: str) -> None:
    page.goto(f"{ui}/deployments")
    page.get_by_text(deployment, exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.locator("textarea").nth(1).wait_for()


def _address(page: Page, key: str) -> str:
    """Of the run's artifact `ingest-<key>`."""
    card = page.locator("a[href*='/artifacts/artifact/']", has_text=f"ingest-{key}").first
    card.wait_for()
    path = card.get_attribute("href")
    return re.sub(r"/runs/.*", str(path), page.url)


def _sees(page: Page, address: str, pattern: str) -> None:
    """Waits until the page at `address` shows a text like `pattern`.

    Loaded anew now and then: the UI stops asking for logs when a run ends, and the last lines may
    reach the server after that.
    """
    from playwright.sync_api import TimeoutError as NotShownError

    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        page.goto(address)
        try:
            page.wait_for_function(SHOWS, arg=pattern, timeout=RELOAD_MS)
            return
        except NotShownError:
            shown = page.locator("body").inner_text()
            assert time.monotonic() < deadline, f"{address} shows no {pattern!r}: {shown}"
