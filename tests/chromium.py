"""A person's browser in tests: Debian's Chromium, driven by Playwright.

with open_chromium() as browser:
    page = browser.new_page()
    complaints = listen(page)     # errors, console output, and addresses beyond this machine
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_CHROMIUM = Path("/usr/bin/chromium")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_OF_THIS_MACHINE = ("http://127.0.0.1:", "file:///", "data:", "blob:")


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where none is installed."""
    if not _CHROMIUM.exists():
        pytest.skip(f"{_CHROMIUM} is not installed")
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS) as browser,
    ):
        yield browser


def listen(page: Page) -> list[str]:
    """What `page` complains of from now on, and what it asks of other machines."""
    complaints: list[str] = []

    def note_foreign(address: str) -> None:
        if not address.startswith(_OF_THIS_MACHINE):
            complaints.append(f"asked for {address}")

    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: note_foreign(request.url))
    return complaints
