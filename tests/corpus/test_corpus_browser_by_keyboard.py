"""A person with a keyboard in a real browser, before the served corpus and before the folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_corpora import HOSTILE_NAME, SCRIPT
from chromium import listen, open_chromium

from corpus.browser.__main__ import main

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def served(hostile_workspace: Path) -> Iterator[str]:
    """The address of `python -m corpus.browser`."""
    command = [
        sys.executable,
        "-m",
        "corpus.browser",
        "--workspace",
        str(hostile_workspace),
        "--serve",
        "0",
    ]
    command += ["--workspace", str(hostile_workspace)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line
    yield found[0]
    server.send_signal(signal.SIGINT)
    assert server.wait(timeout=60) in (0, 130)


@pytest.fixture(scope="module")
def folder(hostile_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an exported folder."""
    target = tmp_path_factory.mktemp("export") / "folder"
    assert main(["--workspace", str(hostile_workspace), "--static", str(target)]) == 0
    return (target / "index.html").as_uri()


@pytest.fixture
def page() -> Iterator[Page]:
    """A browser without a network beyond this machine, which fails on any complaint of the page."""
    with open_chromium() as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.set_default_timeout(120_000)
        complaints = listen(opened)
        yield opened
        title = opened.title()
    assert not complaints
    assert title != "owned"


@pytest.mark.parametrize("form", ["served", "folder"])
def test_from_a_search_to_the_box_and_back(
    page: Page, form: str, request: pytest.FixtureRequest
) -> None:
    page.goto(request.getfixturevalue(form))
    page.get_by_text("4 documents").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("overview")
    page.keyboard.press("Enter")
    page.locator(".hits li").first.wait_for()
    assert page.locator(".hits mark").first.inner_text().lower() == "overview"
    page.keyboard.press("Escape")  # out of the field
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    box = page.locator("svg.page rect.box.chosen")
    box.wait_for()
    chosen = page.locator(".items li[aria-current]")
    assert "Overview" in chosen.inner_text() and "Title" in chosen.inner_text()
    picture = page.locator("svg.page image").get_attribute("href")
    load = """async (address) => {
        const image = new Image(); image.src = address; await image.decode();
        return image.naturalWidth;
    }"""
    assert page.evaluate(load, picture) > 500
    before = page.locator(".turn input").input_value()
    page.keyboard.press("ArrowRight" if before == "1" else "ArrowLeft")
    page.wait_for_function("n => document.querySelector('.turn input').value !== n", arg=before)
    page.keyboard.press("Escape")
    page.locator("table.documents").wait_for()


def test_a_link_to_a_search_shows_its_words(page: Page, served: str) -> None:
    page.goto(f"{served}#/search?text=overview")
    page.locator(".hits li").first.wait_for()
    assert page.locator("#search").input_value() == "overview"


@pytest.mark.parametrize("form", ["served", "folder"])
def test_a_table_beside_its_picture(page: Page, form: str, request: pytest.FixtureRequest) -> None:
    page.goto(request.getfixturevalue(form))
    page.get_by_role("link", name="manual.pdf").click()
    page.locator("svg.page rect.of-table").first.click()
    page.keyboard.press("Enter")
    card = page.locator(".card[aria-current]")
    card.locator("table.grid tr").first.wait_for()
    assert card.locator("svg.crop image").count() == 1
    page.keyboard.press("2")
    assert "/tables" in page.url
    page.keyboard.press("4")
    page.get_by_text("summaries", exact=False).first.wait_for()


@pytest.mark.parametrize("form", ["served", "folder"])
def test_hostile_texts_are_shown_and_do_nothing(
    page: Page, form: str, request: pytest.FixtureRequest
) -> None:
    page.goto(request.getfixturevalue(form))
    page.get_by_role("link", name=HOSTILE_NAME).click()
    page.locator(".flow").get_by_text(f"{SCRIPT} Title").wait_for()
    page.keyboard.press("2")
    page.locator("table.grid th", has_text="</table>").wait_for()
    assert page.locator("main script, main img[src=x]").count() == 0
    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("8")
    page.get_by_text("CPU seconds to read").wait_for()
    if keep := os.environ.get("DSM_SCREENSHOTS"):
        page.screenshot(path=str(Path(keep) / f"browser-{form}.png"))
