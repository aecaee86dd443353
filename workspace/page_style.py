"""The look that all pages of the project share: colours, header, footer, keys; light and dark."""

from __future__ import annotations

from pathlib import Path


def page_style() -> str:
    """CSS that comes before a page's own."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
