"""The leaderboard as one HTML file that needs nothing else, not even a script.

Model names and paths are other people's text: the template escapes everything.
"""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from evaluation.leaderboard import Board
from workspace.page_style import report_style
from workspace.page_templates import page_templates

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(board: Board) -> str:
    """The page's HTML."""
    environment = page_templates(_TEMPLATES)
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}"
    names = ("bars.css", "leaderboard.css")
    own = "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names)
    return environment.get_template("leaderboard.html").render(
        board=board,
        style=Markup(report_style() + own),  # noqa: S704  our own files
    )
