"""Ingest: files -> the corpus tables. Stage functions over `IngestConfig`.

In: files, folders, globs, URLs, lists of them. Out: `WORKSPACE/corpus/` with the tables of
`corpus.schema`, a report and a manifest. Every given file, and every file inside an archive or a
mail, ends in `documents` or in `quarantine` with a reason.

    plan = ingest.plan(config)
    for shard in plan.shards: ingest.process(config, shard)
    ingest.publish(config, plan)

or `workspace.stage.run(config, ingest.plan, ingest.process, ingest.publish)`. A run adds to what
the workspace holds (`sync` mirrors the sources instead). Documents that were published before with
the same settings keep their rows without being parsed again. The caller holds the stage's lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from corpus import publish_corpus
from corpus.abstractive import rewrite_summaries
from corpus.ingest_config import IngestConfig
from corpus.parse_documents import DocumentScheduler, TimeLimits
from corpus.passwords import read_secrets, write_secrets
from corpus.plan_file import IngestPlan, read_plan, write_plan
from corpus.sources import Source
from corpus.survey import STAGE, survey
from corpus.timings import TimingLog, read_logs
from corpus.units import RewrittenSummaries, Unit, discard_locked, find_units
from corpus.work_folder import WorkFolder
from corpus.worker_pool import close_warm_pools, warm_pool
from workspace.llm import LlmClient
from workspace.llm_ledger import Ledger
from workspace.locking import file_lock
from workspace.manifest import Manifest
from workspace.paths import Workspace
from workspace.publish import sweep_temporary, write_json
from workspace.stage import Shard, ShardReport, StagePlan

SHARD_BYTES: Final = 32 << 20
MAX_SHARDS: Final = 500
ORPHANS_WAIT_S: Final = 180.0
SHARD_WAIT_S: Final = 3600.0


def plan(config: IngestConfig) -> StagePlan:
    """List and hash the sources. Raises `UserError` naming a source that is missing or empty."""
    seen = survey(config)
    folder = config.folder
    if seen.published is not None:
        close_warm_pools()
        return StagePlan(STAGE, seen.key, folder, (), seen.inputs, seen.published)
    folder.mkdir(parents=True, exist_ok=True)
    # Workers of a killed run on a cluster take a minute to end.
    with file_lock(_writers_lock(config), f"{folder}: a shard", wait_s=ORPHANS_WAIT_S):
        sweep_temporary(folder)
    work = WorkFolder(config)
    discard_locked(work.units, seen.passwords.keys())
    write_secrets(work.secrets, seen.passwords)
    write_plan(work.plan, IngestPlan(seen.found, seen.reused, seen.kept, seen.only_retries))
    return StagePlan(STAGE, seen.key, folder, tuple(make_shards(seen.fresh)), seen.inputs)


def make_shards(sources: list[Source]) -> list[Shard]:
    """About equal bytes each, in order of doc_id; `units` are kilobytes."""
    total = sum(source.bytes for source in sources)
    wanted = max(SHARD_BYTES, -(-total // MAX_SHARDS))
    shards: list[Shard] = []
    items: list[str] = []
    size = units = 0
    for source in sources:
        items.append(source.doc_id)
        size += source.bytes
        units += _kilobytes(source)
        if size >= wanted:
            shards.append(Shard(len(shards), tuple(items), units))
            items, size, units = [], 0, 0
    if items:
        shards.append(Shard(len(shards), tuple(items), units))
    return shards


def _kilobytes(source: Source) -> int:
    return 1 + (source.bytes >> 10)


class _Kilobytes:
    """Tells `advance` of the kilobytes done, also of documents that are read in part."""

    def __init__(self, sources: Iterable[Source], advance: Callable[[int], None]) -> None:
        self._left = {source.doc_id: _kilobytes(source) for source in sources}
        self._total = dict(self._left)
        self._advance = advance

    def reach(self, doc_id: str, share: float) -> None:
        """The document is done to `share`, 0 to 1."""
        left = round((1 - share) * self._total[doc_id])
        self._advance(self._left[doc_id] - left)
        self._left[doc_id] = left


def process(
    config: IngestConfig, shard: Shard, progress: Callable[[int], None] | None = None
) -> ShardReport:
    """Parse the shard's documents; `progress` is called with the kilobytes done."""
    own = WorkFolder(config).shard_lock(shard.index)
    # A worker that was believed lost may still be at this shard: two would share a spool.
    with (
        file_lock(_writers_lock(config), f"{config.folder}: a plan", shared=True, wait_s=60),
        file_lock(own, f"{config.folder}: shard {shard.index}", wait_s=SHARD_WAIT_S),
    ):
        return _process(config, shard, progress or (lambda kilobytes: None))


def _process(config: IngestConfig, shard: Shard, advance: Callable[[int], None]) -> ShardReport:
    started = time.monotonic()
    work = WorkFolder(config)
    units = work.units
    units.mkdir(parents=True, exist_ok=True)
    stored = read_plan(work.plan).sources
    documents = {source.doc_id: source for source in stored.documents}
    wanted = [documents[doc_id] for doc_id in shard.items]
    done = find_units(units, wanted)
    left = [source for source in wanted if source.doc_id not in done]
    advance(shard.units - sum(map(_kilobytes, left)))
    if left:
        limits = TimeLimits(config.page_timeout_s, config.document_timeout_s)
        setup = config.worker_setup(units)
        with TimingLog(work.timings) as log, warm_pool(config.workers, setup) as pool:
            counted = _Kilobytes(left, advance)

            def finish(doc_id: str, cpu_s: Mapping[str, float]) -> None:
                log.add(doc_id, cpu_s)
                counted.reach(doc_id, 1.0)

            passwords = read_secrets(work.secrets)
            DocumentScheduler(pool, units, limits, finish, passwords, counted.reach).run(left)
    if config.llm is not None:
        # Not in the parser children: they are killed when they wait, and read hostile bytes.
        rewrite_summaries(find_units(units, wanted), RewrittenSummaries(units), _llm_client(config))
    seconds = time.monotonic() - started
    write_json(work.timings / f"{shard.index}-{time.time_ns()}.json", seconds)
    return _report(shard, find_units(units, wanted), seconds)


def _llm_client(config: IngestConfig) -> LlmClient:
    assert config.llm is not None
    return LlmClient(config.llm, Workspace(config.workspace).llm, _purpose(config))


def _purpose(config: IngestConfig) -> str:
    """Under which name the ledger counts what this corpus cost."""
    return f"{STAGE} {config.generation}"


def _report(shard: Shard, units: Mapping[str, Unit], seconds: float) -> ShardReport:
    counts: Counter[str] = Counter()
    rejects: Counter[str] = Counter()
    for doc_id in shard.items:
        assert doc_id in units, f"document {doc_id} left neither rows nor a quarantine record"
        counts.update(units[doc_id].rows)
        rejects.update(units[doc_id].rejects)
    return ShardReport(shard.index, dict(counts), dict(rejects), seconds)


def publish(config: IngestConfig, plan: StagePlan) -> Manifest:
    """Merge the units and the rows of unchanged documents; write the manifest last."""
    close_warm_pools()
    work = WorkFolder(config)
    return publish_corpus.publish(
        plan,
        read_plan(work.plan),
        work.units,
        settings=config.output_settings(),
        fingerprint=config.fingerprint(),
        generation=config.generation,
        similarity=config.near_duplicate_similarity,
        limits=config.limits,
        seconds=sum(float(path.read_text()) for path in work.timings.glob("*.json")),
        cpu_s=read_logs(work.timings),
        cost=Ledger(Workspace(config.workspace).llm / "ledger.jsonl").spent(_purpose(config)),
    )


def _writers_lock(config: IngestConfig) -> Path:
    """Shared by all that process shards."""
    return Workspace(config.workspace).locks / f"{STAGE}-shards.lock"
