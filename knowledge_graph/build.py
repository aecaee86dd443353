"""Corpus tables -> knowledge graph: entities, mentions, relations, communities, exports.

In: `corpus/` (documents, elements, tables, modules). Out: `graph/` with the tables of
`knowledge_graph.schema`, `export/graph.graphml` and `explorer.html`. On a laptop:

    from workspace import stage
    config = GraphConfig(workspace=Path("W"))
    stage.run(config, plan, process, publish)          # or: python -m flows.build_graph

Without a language model endpoint: terms come from a small English parser, identifiers and acronyms
from their form, structure from RTL and tables. Not covered: names in figures, other languages than
English for terms (identifiers, tables and RTL work in any), aliases by meaning.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Final

from knowledge_graph.assembly import assemble
from knowledge_graph.config import GraphConfig
from knowledge_graph.extraction import extract_shard, write_extraction
from workspace import publish as atomic
from workspace.errors import CorruptWorkspaceError
from workspace.manifest import (
    Manifest,
    code_version,
    find_published,
    now,
    require_manifest,
    stage_key,
    write_manifest,
)
from workspace.shards import iterate_rows, remove_unlisted
from workspace.stage import Shard, ShardReport, StagePlan

__all__ = ["STAGE", "VERSION", "GraphConfig", "plan", "process", "publish"]

STAGE: Final = "graph"
VERSION: Final = "2"
# About five minutes of parsing on one core.
SHARD_ELEMENTS: Final = 20_000
MAX_SHARDS: Final = 500
REPORT_NAME: Final = "report.json"


def plan(config: GraphConfig) -> StagePlan:
    """Group the corpus' documents into shards of about equal size."""
    where = config.where
    corpus = require_manifest(where.corpus, made_by="ingest")
    inputs = {"corpus": corpus.key}
    key = stage_key(STAGE, VERSION, config.fingerprint(), inputs)
    sizes = sorted(
        (row["doc_id"], row["n_elements"] or 0)
        for row in iterate_rows(where.corpus, "documents", ["doc_id", "n_elements"])
    )
    return StagePlan(
        stage=STAGE,
        key=key,
        directory=where.graph,
        shards=_group(sizes),
        inputs=inputs,
        published=find_published(where.graph, key),
    )


def process(config: GraphConfig, shard: Shard) -> ShardReport:
    """Extract the candidates of one shard's documents into the work folder."""
    where = config.where
    folder = _shard_folder(plan(config), shard.index)
    if folder.is_dir():
        return _read_report(folder)
    start = time.monotonic()
    corpus = require_manifest(where.corpus, made_by="ingest")
    found = extract_shard(where.corpus, corpus, shard.items, config.extractors, config.workers)
    with atomic.atomic_directory(folder) as temporary:
        counts = write_extraction(temporary, found)
        report = ShardReport(
            shard.index,
            {"documents": len(shard.items), **counts},
            dict(sorted(item for item in found.rejects.items() if item[1])),
            time.monotonic() - start,
        )
        atomic.write_json(temporary / REPORT_NAME, vars(report))
    return report


def publish(config: GraphConfig, plan: StagePlan) -> Manifest:
    """Resolve, aggregate and cluster all candidates; write the tables, then the manifest."""
    start = time.monotonic()
    folders = [_shard_folder(plan, shard.index) for shard in plan.shards]
    reports = [_read_report(folder) for folder in folders]
    made = assemble(config, folders, plan)
    for report in reports:
        made.rejects.update(report.rejects)
    counts_in = {
        name: sum(report.counts.get(name, 0) for report in reports)
        for name in ("documents", "mentions", "relations", "sentences", "definitions")
    }
    manifest = Manifest(
        stage=STAGE,
        key=plan.key,
        fingerprint=config.fingerprint(),
        settings=config.output_settings(),
        inputs=plan.inputs,
        code_version=code_version(),
        counts_in=counts_in,
        counts_out=made.counts,
        rejects=dict(sorted((reason, n) for reason, n in made.rejects.items() if n)),
        notes=made.notes,
        seconds=round(sum(report.seconds for report in reports) + time.monotonic() - start, 3),
        created=now(),
        files=made.files,
    )
    write_manifest(plan.directory, manifest)
    remove_unlisted(plan.directory, manifest)
    shutil.rmtree(plan.directory / ".work", ignore_errors=True)
    return manifest


def _group(sizes: list[tuple[str, int]]) -> tuple[Shard, ...]:
    target = max(SHARD_ELEMENTS, sum(size for _, size in sizes) // MAX_SHARDS + 1)
    shards: list[Shard] = []
    items: list[str] = []
    units = 0
    for doc_id, size in sizes:
        if items and units + size > target:
            shards.append(Shard(len(shards), tuple(items), units))
            items, units = [], 0
        items.append(doc_id)
        units += size
    if items:
        shards.append(Shard(len(shards), tuple(items), units))
    return tuple(shards)


def _shard_folder(plan: StagePlan, index: int) -> Path:
    return plan.work / f"shard-{index:05d}"


def _read_report(folder: Path) -> ShardReport:
    path = folder / REPORT_NAME
    try:
        return ShardReport(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise CorruptWorkspaceError(
            f"{path} is missing: process every shard before publishing"
        ) from error
