"""Ingest in one call, and the tables that come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus import ingest
from corpus.ingest_config import IngestConfig
from corpus.schema import TABLES_BY_NAME
from workspace import stage
from workspace.manifest import Manifest
from workspace.shards import iterate_rows


def configure(workspace: Path, *sources: Path | str, **settings: Any) -> IngestConfig:
    return IngestConfig(
        sources=[str(source) for source in sources],
        workspace=workspace,
        **{"workers": 1, "table_detection": "fast", **settings},
    )


def run_ingest(workspace: Path, *sources: Path | str, **settings: Any) -> Manifest:
    """The whole stage; `settings` are those of `IngestConfig`."""
    config = configure(workspace, *sources, **settings)
    return stage.run(config, ingest.plan, ingest.process, ingest.publish).manifest


def rows(workspace: Path, table: str) -> list[dict[str, Any]]:
    return list(iterate_rows(workspace / "corpus", table))


def tables(workspace: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    return {name: rows(workspace, name) for name in TABLES_BY_NAME}


def reasons(workspace: Path) -> dict[str, str]:
    """File name -> reason, for documents in quarantine as a whole."""
    return {
        Path(row["uri"]).name: row["reason"]
        for row in rows(workspace, "quarantine")
        if row["page"] == 0
    }
