"""The one HTML page of the browser, and its style and scripts, for the server and for files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from workspace.page_style import page_style

# In the order in which the page loads them.
SCRIPTS: Final = (
    "make.js", "lists.js", "sheet.js", "document.js", "panels.js", "browser.js",
)  # fmt: skip
SOURCES: Final = ("source-served.js", "source-files.js")
STYLE: Final = "browser.css"
ICON: Final = "icon.svg"
ASSETS: Final = frozenset({STYLE, ICON, *SCRIPTS, *SOURCES})
# `file:` because browsers do not agree on what 'self' means for a page that is a file.
_FILES_POLICY: Final = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; "
    "base-uri 'none'; form-action 'none'"
)
_TEMPLATES: Final = Path(__file__).with_name("templates")


def served(name: str) -> str:
    """The page for the server, which sends the policy as a header."""
    return _render(name, ["source-served.js", *SCRIPTS], policy="")


def for_files(name: str) -> str:
    """The page of the folder that works without a server."""
    return _render(name, ["source-files.js", *SCRIPTS], policy=_FILES_POLICY)


@cache
def asset(name: str) -> str:
    """Text of one of `ASSETS`."""
    assert name in ASSETS
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    return page_style() + text if name == STYLE else text


def _render(name: str, scripts: list[str], policy: str) -> str:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True)
    template = environment.get_template("browser.html.j2")
    return template.render(name=name, scripts=scripts, style=STYLE, policy=policy)
