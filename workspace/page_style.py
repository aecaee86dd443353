"""The look that the project's pages share; light and dark.

`page_style`: colours, header, footer, keys. `report_style`: the same for pages that are read from
top to bottom, with tables and notes.
"""

from __future__ import annotations

from pathlib import Path


def page_style() -> str:
    """CSS that comes before a page's own."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def report_style() -> str:
    """CSS that comes before that of a page for reading."""
    own = Path(__file__).with_name("report_style.css").read_text(encoding="utf-8")
    return page_style() + own
