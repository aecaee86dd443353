"""What `plan` found, kept on disk for `process` and `publish`, which know the config alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from corpus.sources import SourceList
from workspace import publish
from workspace.errors import MissingInputError


class IngestPlan(NamedTuple):
    """All sources, and the ids of those whose published rows are taken over.

    Of these, `kept` have rows of other settings (id -> generation). With `only_retries`, what is
    published differs from the plan in nothing but the failures that are tried again.
    """

    sources: SourceList
    reused: frozenset[str]
    kept: Mapping[str, str]
    only_retries: bool


def write_plan(path: Path, plan: IngestPlan) -> None:
    value = {
        "sources": plan.sources.to_json(),
        "reused": sorted(plan.reused),
        "kept": dict(plan.kept),
        "only_retries": plan.only_retries,
    }
    publish.write_json(path, value)


def read_plan(path: Path) -> IngestPlan:
    """Raises `MissingInputError` when `plan` was not called with these settings."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingInputError(
            f"{path.parent}: nothing is planned with these settings; call plan(config) first"
        ) from None
    sources = SourceList.from_json(value["sources"])
    return IngestPlan(sources, frozenset(value["reused"]), value["kept"], value["only_retries"])
