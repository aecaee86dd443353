"""The templates of a page: what they are given is escaped, and a missing name is a fault."""

from __future__ import annotations

from pathlib import Path

import jinja2


def page_templates(folder: Path) -> jinja2.Environment:
    """An environment for the HTML templates of `folder`."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
