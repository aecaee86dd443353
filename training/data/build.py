"""Corpus and graph -> verified rows, leak-free splits, trainers' views, a card.

    python -m flows.build_datasets --workspace W

In: the published `corpus/` and `graph/`. Out: `datasets/<name>/rows/*.parquet`
(`training.data.schema.ROWS`), `views/<trainer>/<split>.parquet`, `README.md`, `manifest.json`.

Documents are split first (`splits`), then every generator runs over every document and every fact
of training documents (`generation`), each row is checked against its own verifier (`checks`), and
the budgeted, balanced selection (`selection`) is published after a proof that nothing of the test
stands in the training rows (`leaks`). Not covered: decontamination against public benchmarks,
rows written by a language model.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from training.data.card import render_card
from training.data.config import DatasetConfig
from training.data.documents import Document, read_documents
from training.data.facts import read_facts
from training.data.generation import GENERATORS, rows_of_document, rows_of_fact
from training.data.generators import closed_book
from training.data.generators.generator import Limits
from training.data.leaks import assert_no_leak
from training.data.rows import Tally
from training.data.schema import ROWS
from training.data.selection import select
from training.data.shard_work import load_shard, save_shard
from training.data.splits import Splits, make_splits
from training.data.statistics import count_rows, coverage, majority_baselines, units_of
from training.data.units import iterate_units
from training.data.views import write_views
from workspace.errors import UserError
from workspace.locking import stage_lock
from workspace.manifest import (
    FileEntry,
    Manifest,
    code_version,
    describe_file,
    find_published,
    now,
    require_manifest,
    stage_key,
    write_manifest,
)
from workspace.paths import Workspace
from workspace.pool_child import end_with_parent
from workspace.publish import atomic_directory, sweep_temporary, write_text
from workspace.shards import Row, iterate_rows, remove_unlisted, write_table
from workspace.stage import Shard, ShardReport, StagePlan

__all__ = ["STAGE", "VERSION", "DatasetConfig", "plan", "process", "publish"]

STAGE: Final = "dataset"
VERSION: Final = "2"

SHARD_WEIGHT: Final = 3000  # pages and modules (a module is simulated: ten pages' worth)
MODULE_WEIGHT: Final = 10
FACTS: Final = "facts"
RELATIONS_PER_SHARD: Final = 500_000


def plan(config: DatasetConfig) -> StagePlan:
    """Shards of documents and of facts. Raises `MissingInputError` without corpus and graph."""
    planned = _identify(config)
    shards = _shards(Workspace(config.workspace))
    return StagePlan(
        stage=planned.stage,
        key=planned.key,
        directory=planned.directory,
        shards=shards,
        inputs=planned.inputs,
        published=find_published(planned.directory, planned.key),
    )


def _identify(config: DatasetConfig) -> StagePlan:
    """The plan without its shards."""
    workspace = Workspace(config.workspace)
    corpus = require_manifest(workspace.corpus, made_by="ingest")
    graph = require_manifest(workspace.graph, made_by="build_graph")
    if graph.inputs.get("corpus", corpus.key) != corpus.key:
        raise UserError(
            f"{workspace.graph} was made from another state of the corpus: "
            "run `python -m flows.build_graph` again"
        )
    inputs = {"corpus": corpus.key, "graph": graph.key}
    version = "/".join(
        [VERSION, closed_book.VERSION, *(f"{g.name}{g.version}" for g in GENERATORS)]
    )
    key = stage_key(STAGE, version, config.fingerprint(), inputs)
    return StagePlan(STAGE, key, workspace.dataset(config.name), (), inputs)


def _shards(workspace: Workspace) -> tuple[Shard, ...]:
    """Documents in id order up to a weight, then parts of the graph."""
    groups: list[tuple[list[str], int]] = [([], 0)]
    columns = ["doc_id", "n_pages", "n_modules"]
    documents = sorted(
        iterate_rows(workspace.corpus, "documents", columns), key=lambda row: str(row["doc_id"])
    )
    for row in documents:
        weight = 1 + row["n_pages"] + MODULE_WEIGHT * row["n_modules"]
        items, total = groups[-1]
        if items and total + weight > SHARD_WEIGHT:
            items, total = [], 0
            groups.append((items, total))
        items.append(row["doc_id"])
        groups[-1] = (items, total + weight)
    relations = require_manifest(workspace.graph, made_by="build_graph").files
    n_relations = sum(f.rows or 0 for f in relations if f.path.startswith("relations/"))
    parts = 1 + n_relations // RELATIONS_PER_SHARD
    found = [(tuple(items), weight) for items, weight in groups if items]
    found += [((FACTS, str(part), str(parts)), 1) for part in range(parts)]
    return tuple(Shard(index, items, weight) for index, (items, weight) in enumerate(found))


def process(config: DatasetConfig, shard: Shard) -> ShardReport:
    """Make the candidate rows of one shard; a shard that is done is not done again."""
    planned = _identify(config)
    done = load_shard(planned.work, shard.index)
    if done is not None:
        return done.report
    started = time.monotonic()
    splits = load_splits(config, planned)
    tally = Tally()
    rows = list(_candidates(config, shard, splits, tally))
    tally.made("candidates", len(rows))
    return save_shard(planned.work, shard.index, rows, tally, time.monotonic() - started)


def _candidates(config: DatasetConfig, shard: Shard, splits: Splits, tally: Tally) -> Iterator[Row]:
    workspace = Workspace(config.workspace)
    if shard.items[0] == FACTS:
        licences = {
            row["doc_id"]: row["licence"]
            for row in iterate_rows(workspace.corpus, "documents", ["doc_id", "licence"])
        }
        part, parts = int(shard.items[1]), int(shard.items[2])
        for fact in read_facts(workspace.graph, splits, tally, part=part, parts=parts):
            yield from rows_of_fact(
                fact, splits, licences, config.seed, config.forms_per_fact, tally
            )
        return
    documents = list(read_documents(workspace.corpus, shard.items, splits))
    limits = config.limits(_count_modules(workspace.corpus))
    for rows, of_document in _map_documents(documents, limits, config.seed, config.workers):
        tally.add(of_document)
        yield from rows


def _count_modules(corpus: Path) -> int:
    return sum(row["n_modules"] for row in iterate_rows(corpus, "documents", ["n_modules"]))


def _map_documents(
    documents: list[Document], limits: Limits, seed: int, workers: int
) -> Iterator[tuple[list[Row], Tally]]:
    """Each document's rows, in order; in child processes when that pays."""
    work = [(document, limits, seed) for document in documents]
    workers = min(workers, len(documents))
    if workers <= 1:
        yield from map(_of_document, work)
        return
    # Children must not inherit threads or locks of the flow's process; the server they are forked
    # from imports the generators once.
    context = get_context("forkserver")
    context.set_forkserver_preload(["training.data.generation"])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
        yield from pool.map(_of_document, work)


def _of_document(work: tuple[Document, Limits, int]) -> tuple[list[Row], Tally]:
    document, limits, seed = work
    tally = Tally()
    return list(rows_of_document(document, limits, seed, tally)), tally


def load_splits(config: DatasetConfig, planned: StagePlan) -> Splits:
    """The decision, made by whichever shard comes first and kept in the work folder."""
    workspace = Workspace(config.workspace)
    path = planned.work / "splits.json"
    # The others need it too and would wait for the same answer; an hour is 10^7 chunks.
    with stage_lock(workspace, f"{STAGE}-{config.name}-splits", wait_s=3600):
        if path.exists():
            return Splits.load(path)
        doc_ids = [row["doc_id"] for row in iterate_rows(workspace.corpus, "documents", ["doc_id"])]
        splits = make_splits(doc_ids, iterate_units(workspace.corpus), config.split_settings)
        splits.save(path)
        return splits


def publish(config: DatasetConfig, plan: StagePlan) -> Manifest:
    """Choose, prove, write. Raises `LeakError` when a test row could be found in training."""
    started = time.monotonic()
    workspace = Workspace(config.workspace)
    sweep_temporary(plan.directory)
    tally, seconds, candidates = Tally(), 0.0, list[Row]()
    for shard in plan.shards:
        done = load_shard(plan.work, shard.index)
        if done is None:
            raise UserError(f"{plan.work}: shard {shard.index} is not done; run `process` on it")
        tally.add(Tally(dict(done.report.counts), dict(done.report.rejects)))
        seconds += done.report.seconds
        candidates += done.rows()
    splits = load_splits(config, plan)
    rows = select(candidates, config.budget, tally)
    assert_no_leak(rows, workspace.corpus)
    notes = _notes(workspace, splits, candidates, rows)
    files = write_table(plan.directory, "rows", ROWS, rows, prefix=f"part-{plan.key[:8]}")
    with atomic_directory(plan.directory / "views") as folder:
        notes["views"] = write_views(folder, rows)
    files += _view_files(plan.directory)
    manifest = Manifest(
        stage=STAGE,
        key=plan.key,
        fingerprint=config.fingerprint(),
        settings=config.output_settings(),
        inputs=plan.inputs,
        code_version=code_version(),
        counts_in={"documents": len(splits.split), "candidates": len(candidates)},
        counts_out=count_rows(rows),
        rejects=dict(sorted(tally.rejects.items())),
        notes=notes,
        seconds=round(seconds + time.monotonic() - started, 3),
        created=now(),
        files=files,
    )
    return _finish(config, plan, manifest, rows)


def _finish(
    config: DatasetConfig, plan: StagePlan, manifest: Manifest, rows: list[Row]
) -> Manifest:
    """Write the card and the manifest, then clear away what they replace."""
    card = plan.directory / "README.md"
    write_text(card, render_card(config.name, manifest, rows))
    described = describe_file(plan.directory, card)
    manifest = manifest.model_copy(update={"files": [*manifest.files, described]})
    write_manifest(plan.directory, manifest)
    remove_unlisted(plan.directory, manifest)
    shutil.rmtree(plan.work.parent, ignore_errors=True)
    return manifest


def _view_files(directory: Path) -> list[FileEntry]:
    return [
        describe_file(directory, path) for path in sorted((directory / "views").rglob("*.parquet"))
    ]


def _notes(
    workspace: Workspace, splits: Splits, candidates: list[Row], rows: list[Row]
) -> dict[str, Any]:
    asked = {unit for row in candidates for unit in units_of(row)}
    published = {unit for row in rows for unit in units_of(row)}
    units = iterate_units(workspace.corpus)
    return {
        "documents": dict(sorted(Counter(splits.split.values()).items())),
        "links": splits.links,
        "shared_units": len(splits.shared),
        "coverage": coverage(units, splits.shared, asked, published),
        "majority_baseline": majority_baselines(rows),
    }
