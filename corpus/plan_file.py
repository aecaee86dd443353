"""What `plan` found, kept on disk for `process` and `publish`, which know the config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from corpus.sources import SourceList
from workspace import publish
from workspace.errors import MissingInputError


class IngestPlan(NamedTuple):
    """All sources, and the ids of those whose published rows are taken over."""

    sources: SourceList
    reused: frozenset[str]


def write_plan(path: Path, plan: IngestPlan) -> None:
    publish.write_json(path, {"sources": plan.sources.to_json(), "reused": sorted(plan.reused)})


def read_plan(path: Path) -> IngestPlan:
    """Raises `MissingInputError` when `plan` was not called with these settings."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingInputError(
            f"{path.parent}: nothing is planned with these settings; call plan(config) first"
        ) from None
    return IngestPlan(SourceList.from_json(value["sources"]), frozenset(value["reused"]))
