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

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import field_validator, model_validator

from corpus import publish_corpus
from corpus.abstractive import rewrite_summaries
from corpus.children import ContainerLimits
from corpus.given_files import Patterns
from corpus.parse_documents import DocumentScheduler, TimeLimits
from corpus.parsed import ParseOptions
from corpus.parsers import ocr_setup as ocr
from corpus.passwords import read_passwords, read_secrets, write_secrets
from corpus.plan_file import IngestPlan, read_plan, write_plan
from corpus.plan_sources import SourcePlanner, Wanted
from corpus.published import (
    ATTEMPTS,
    Published,
    Request,
    Selection,
    read_published,
    select,
)
from corpus.quarantine import Tries
from corpus.redaction import RedactionKind
from corpus.sources import Given, Source, SourceList
from corpus.timings import TimingLog, read_logs
from corpus.tokenizers import ESTIMATE, tokenizer_file
from corpus.units import RewrittenSummaries, Unit, discard_locked, find_units
from corpus.worker_pool import close_warm_pools, warm_pool
from workspace.config import StageConfig, hash_json, setting
from workspace.ids import hash_file
from workspace.llm import LlmClient, LlmConfig
from workspace.llm_ledger import Ledger
from workspace.locking import file_lock
from workspace.manifest import Manifest, stage_key
from workspace.paths import Workspace
from workspace.publish import sweep_temporary, write_json
from workspace.stage import Shard, ShardReport, StagePlan

STAGE: Final = "corpus"
VERSION: Final = "2"
SHARD_BYTES: Final = 32 << 20
MAX_SHARDS: Final = 500
# Settings that are read when the corpus is published, not when documents are parsed.
PUBLISH_ONLY: Final = frozenset({"near_duplicate_similarity"})
ORPHANS_WAIT_S: Final = 180.0
SHARD_WAIT_S: Final = 3600.0


class IngestConfig(StageConfig):
    """Settings of the ingest stage."""

    sources: list[str] = setting(
        default_factory=list,
        position=0,
        positional=True,
        affects_output=False,  # the files that they name are in the key
        description="Files, folders, globs, URLs (s3://, https://, ...) or @LISTs to ingest",
    )
    workspace: Path = setting(position=1, affects_output=False, description="Folder of all stages")
    include: list[str] = setting(
        default_factory=list,
        position=2,
        affects_output=False,
        description="Take only files whose name or path inside the source matches a pattern",
    )
    exclude: list[str] = setting(
        default_factory=list,
        position=3,
        affects_output=False,
        description="Leave out files whose name or path inside the source matches a pattern",
    )
    workers: int = setting(
        default_factory=lambda: os.cpu_count() or 1,
        position=4,
        ge=1,
        le=512,
        affects_output=False,
        description="Parser processes side by side",
    )
    page_dpi: int = setting(100, position=5, ge=36, le=600, description="Resolution of page images")
    pdf_backend: Literal["auto", "pymupdf", "pypdfium2"] = setting(
        "auto",
        position=6,
        description="Library that reads PDFs; auto takes pymupdf where it is installed. pypdfium2 "
        "has a permissive licence but finds no tables",
    )
    table_detection: Literal["fast", "routed", "full"] = setting(
        "routed",
        position=7,
        description="fast: ruled tables only; routed: a layout model on pages that show signs of a "
        "table; full: the model on every page (0.4 s of CPU each)",
    )
    chunk_tokens: int = setting(
        400, position=8, ge=32, le=8192, description="Most tokens in a chunk"
    )
    max_file_mb: int = setting(
        512,
        position=9,
        ge=1,
        le=16384,
        affects_output=False,
        description="Larger files go to quarantine, in MB",
    )
    max_page_pixels: int = setting(
        40_000_000,
        position=10,
        ge=100_000,
        le=400_000_000,
        description="Larger pages are rendered at a lower resolution",
    )
    page_timeout_s: float = setting(
        60.0,
        position=11,
        gt=0,
        le=3600,
        affects_output=False,
        description="CPU seconds that a page may take before it is given up",
    )
    document_timeout_s: float = setting(
        300.0,
        position=12,
        gt=0,
        le=86400,
        affects_output=False,
        description="CPU seconds for a document that is not read page by page",
    )
    memory_limit_mb: int = setting(
        4096,
        position=13,
        ge=1024,
        le=131072,
        affects_output=False,
        description="Address space of a parser process",
    )
    sync: bool = setting(
        False,
        position=20,
        affects_output=False,
        description="Make the corpus mirror the given sources: documents of earlier runs that are "
        "not among them go. Without it a run adds to what the workspace holds",
    )
    retry_quarantined: bool = setting(
        False,
        position=21,
        affects_output=False,
        description="Try everything in quarantine again, also what a plain run leaves alone",
    )
    max_tries: int = setting(
        3,
        position=22,
        ge=1,
        le=100,
        affects_output=False,
        description="How often runs try a document that takes too long or too much memory",
    )
    near_duplicate_similarity: float = setting(
        0.75,
        position=23,
        ge=0.6,
        le=1.0,
        description="Least share of equal word sequences in near duplicates and variants; numbers "
        "are left out of it and tell the two apart",
    )

    cluster: str = setting(
        "local",
        position=30,
        affects_output=False,
        description="Where shards run: local, slurm, or the path of a cluster file like "
        "flows/clusters/slurm.yaml",
    )

    ocr: Literal["auto", "off", "force"] = setting(
        "auto",
        position=14,
        description="auto: read pages by OCR whose text is missing, garbled or from a poor old "
        "scan; off: never; force: every page",
    )
    ocr_engine: Literal["auto", "both", "tesseract", "rapidocr", "none"] = setting(
        "auto",
        position=15,
        description="both: Tesseract, and RapidOCR where it is not sure; auto takes what is "
        "installed. With none, pages in need of OCR are flagged ocr_unavailable",
    )
    ocr_languages: list[str] = setting(
        default_factory=lambda: ["eng"],
        position=16,
        min_length=1,
        max_length=8,
        description="Tesseract's names of the languages to expect, e.g. eng deu chi_sim",
    )
    ocr_dpi: int = setting(
        200, position=17, ge=100, le=600, description="Resolution at which OCR sees PDF pages"
    )
    chunk_tokenizer: str = setting(
        ESTIMATE,
        position=37,
        min_length=1,
        description="What counts a chunk's tokens: `words` for an estimate without a model, or a "
        "folder with a tokenizer.json for that model's exact count",
    )
    chunk_overlap: int = setting(
        0,
        position=38,
        ge=0,
        le=4096,
        description="Tokens of the end of the chunk before that a text chunk begins with; at most "
        "half of chunk_tokens",
    )
    redact: list[RedactionKind] = setting(
        default_factory=list,
        position=39,
        description="Personal data to replace by placeholders: email, phone, iban, credit_card, ip",
    )
    llm: LlmConfig | None = setting(
        None,
        position=40,
        description="Endpoint that writes the summaries of documents and sections; without one "
        "they are sentences of the document",
    )

    source_list: list[Path] = setting(
        default_factory=list,
        position=45,
        affects_output=False,
        description="CSV, TSV or JSON lines with a column uri or path, and title, licence, tags, "
        "password as wanted; other columns become metadata",
    )
    passwords: Path | None = setting(
        None,
        position=41,
        affects_output=False,
        description="File with a password a line, tried on encrypted PDF and Office files and "
        "archives; keep it readable by yourself alone",
    )
    archive_depth: int = setting(
        3,
        position=42,
        ge=1,
        le=8,
        affects_output=False,  # what they let in is in the key
        description="How many archives and mails deep a document may lie",
    )
    archive_max_members: int = setting(
        10_000,
        position=43,
        ge=1,
        le=1_000_000,
        affects_output=False,
        description="Most files in a given archive, at all depths together",
    )
    archive_max_mb: int = setting(
        8192,
        position=44,
        ge=1,
        le=1_048_576,
        affects_output=False,
        description="Most MB that a given archive may unpack to, at all depths together",
    )

    @model_validator(mode="after")
    def _require_sources(self) -> Self:
        if not self.sources and not self.source_list:
            raise ValueError("sources: name at least one file, folder, pattern, URL or source_list")
        return self

    @field_validator("pdf_backend", mode="after")
    @classmethod
    def _resolve_backend(cls, value: str) -> str:
        """The choice is part of the fingerprint, so `auto` is settled before it is taken."""
        if value == "auto":
            return "pymupdf" if find_spec("pymupdf") else "pypdfium2"
        if find_spec(value) is None:
            raise ValueError(f"{value} is not installed: pip install {value}")
        return value

    @field_validator("ocr_engine", mode="after")
    @classmethod
    def _resolve_engine(cls, value: str) -> str:
        """Settled before the fingerprint is taken: other engines read other text."""
        if value == "auto":
            return ocr.find_engines()
        if missing := ocr.missing_engines(value):
            cures = "; ".join(f"{name}: {ocr.CURES[name]}" for name in missing)
            raise ValueError(f"not installed: {cures}")
        return value

    @model_validator(mode="after")
    def _check_ocr(self) -> Self:
        if self.ocr == "force" and self.ocr_engine == "none":
            cures = ", or ".join(ocr.CURES.values())
            raise ValueError(f"ocr=force needs an OCR engine, and none is in use: {cures}")
        if self.ocr != "off" and (fault := ocr.language_fault(self.ocr_engine, self.ocr_languages)):
            raise ValueError(f"ocr_languages: {fault}")
        return self

    @field_validator("redact", mode="after")
    @classmethod
    def _sort_kinds(cls, value: list[RedactionKind]) -> list[RedactionKind]:
        """Their order makes no difference to the output."""
        for package in ("phonenumbers", "stdnum") if value else ():
            if find_spec(package) is None:
                raise ValueError(f"{package} is not installed: pip install 'dsm-pipeline[redact]'")
        return sorted(set(value))

    @model_validator(mode="after")
    def _check_chunks(self) -> Self:
        if self.chunk_overlap > self.chunk_tokens // 2:
            raise ValueError("chunk_overlap must be at most half of chunk_tokens")
        tokenizer_file(self.chunk_tokenizer)
        return self

    def output_settings(self) -> dict[str, Any]:
        """With the tokenizer's contents instead of its place."""
        file = tokenizer_file(self.chunk_tokenizer)
        name = ESTIMATE if file is None else f"sha256:{hash_file(file)}"
        return {**super().output_settings(), "chunk_tokenizer": name}

    def parse_options(self) -> ParseOptions:
        return ParseOptions(
            page_dpi=self.page_dpi,
            max_page_pixels=self.max_page_pixels,
            pdf_backend=self.pdf_backend,
            table_detection=self.table_detection,
            ocr=self.ocr,
            ocr_engine=self.ocr_engine,
            ocr_languages=tuple(self.ocr_languages),
            ocr_dpi=self.ocr_dpi,
        )

    @property
    def folder(self) -> Path:
        return Workspace(self.workspace).corpus


class Survey(NamedTuple):
    """What the corpus is to hold, and what of it is done."""

    found: SourceList  # with what earlier runs brought in
    inputs: dict[str, str]
    key: str
    published: Manifest | None  # of exactly this work
    reused: frozenset[str]  # documents whose published rows are taken over
    kept: Mapping[str, str]  # those of them with rows of other settings
    only_retries: bool  # nothing is new but the failures that are tried again
    passwords: Mapping[str, str] = {}  # of documents to be parsed

    @property
    def fresh(self) -> list[Source]:
        return [source for source in self.found.documents if source.doc_id not in self.reused]


def survey(config: IngestConfig) -> Survey:
    """List, download, unpack and hash the sources; writes only what is kept for the next time.

    Raises `UserError` like `plan`.
    """
    folder, setup = config.folder, _worker_setup(config, _units(config))
    published = read_published(folder, rebuild=config.sync)
    tries = Tries.read(folder)
    with SourcePlanner(_wanted(config), lambda: warm_pool(config.workers, setup)) as planner:
        discovered = planner.find()
        passwords = planner.find_passwords(discovered, published, _generation(config))
        chosen = select(discovered.sources, published, tries, _request(config), passwords)
        unlocked = planner.remember(discovered, passwords, chosen.reused)
        seen = _compare(config, chosen, published, tries, unlocked)
        planner.materialise(seen.fresh)
    return seen._replace(passwords=passwords)


def _compare(
    config: IngestConfig,
    chosen: Selection,
    published: Published | None,
    tries: Tries,
    unlocked: frozenset[str],
) -> Survey:
    """What is chosen against what is published."""
    inputs = _inputs(chosen, unlocked)
    fingerprint = config.fingerprint()
    same = published is not None and published.holds(fingerprint, inputs)
    survey = Survey(
        found=chosen.sources,
        inputs=inputs,
        key="",
        published=None,
        reused=chosen.reused,
        kept=chosen.kept,
        only_retries=same and len(chosen.retried) > 0,
    )
    if published is not None and same and not survey.fresh:
        manifest = published.manifest
        return survey._replace(inputs=manifest.inputs, key=manifest.key, published=manifest)
    # Trying again may come to something else, so the same documents need not be the same work.
    attempts = tries.attempts(chosen.retried, [s.doc_id for s in chosen.sources.documents])
    if attempts:
        inputs = {**inputs, ATTEMPTS: hash_json(attempts)}
    return survey._replace(inputs=inputs, key=stage_key(STAGE, VERSION, fingerprint, inputs))


def _request(config: IngestConfig) -> Request:
    return Request(
        generation=_generation(config),
        limits=_limits(config),
        sync=config.sync,
        retry_quarantined=config.retry_quarantined,
        max_tries=config.max_tries,
    )


def _inputs(chosen: Selection, unlocked: frozenset[str]) -> dict[str, str]:
    sources = chosen.sources
    inputs = {
        "documents": hash_json([source.doc_id for source in sources.documents]),
        "sources": hash_json(sorted(sources.uris)),
    }
    # Only where there are any, so that the key of a plain run depends on its files alone.
    given = [[s.doc_id, asdict(s.given)] for s in sources.documents if s.given != Given()]
    extra = {
        "kept": chosen.kept,
        "given": given,
        "refused": [[item.uri, item.reason, item.doc_id] for item in sources.refused],
        "unlocked": sorted(unlocked),
    }
    return inputs | {name: hash_json(value) for name, value in extra.items() if value}


def _limits(config: IngestConfig) -> str:
    """A document that failed may succeed under other limits; one that succeeded stays as it is."""
    return hash_json(
        [
            config.max_file_mb,
            config.page_timeout_s,
            config.document_timeout_s,
            config.memory_limit_mb,
        ]
    )


def unfinished(config: IngestConfig, sources: Sequence[Source]) -> list[Source]:
    """Those that an earlier run, stopped before it could publish, did not finish."""
    done = find_units(_units(config), sources)
    return [source for source in sources if source.doc_id not in done]


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
    discard_locked(_units(config), seen.passwords.keys())
    write_secrets(_secrets_path(config), seen.passwords)
    write_plan(
        _plan_path(config), IngestPlan(seen.found, seen.reused, seen.kept, seen.only_retries)
    )
    return StagePlan(STAGE, seen.key, folder, tuple(make_shards(seen.fresh)), seen.inputs)


def _wanted(config: IngestConfig) -> Wanted:
    limits = ContainerLimits(
        depth=config.archive_depth,
        members=config.archive_max_members,
        total_bytes=config.archive_max_mb << 20,
        member_bytes=config.max_file_mb << 20,
    )
    return Wanted(
        folder=config.folder,
        sources=config.sources,
        lists=config.source_list,
        patterns=Patterns(config.include, config.exclude),
        passwords=read_passwords(config.passwords),
        limits=limits,
        cpu_limit_s=config.document_timeout_s,
    )


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


def process(
    config: IngestConfig, shard: Shard, progress: Callable[[int], None] | None = None
) -> ShardReport:
    """Parse the shard's documents; `progress` is called with the kilobytes done."""
    own = config.folder / ".work" / "locks" / f"shard-{shard.index}.lock"
    # A worker that was believed lost may still be at this shard: two would share a spool.
    with (
        file_lock(_writers_lock(config), f"{config.folder}: a plan", shared=True, wait_s=60),
        file_lock(own, f"{config.folder}: shard {shard.index}", wait_s=SHARD_WAIT_S),
    ):
        return _process(config, shard, progress or (lambda kilobytes: None))


def _process(config: IngestConfig, shard: Shard, advance: Callable[[int], None]) -> ShardReport:
    started = time.monotonic()
    units = _units(config)
    units.mkdir(parents=True, exist_ok=True)
    stored = read_plan(_plan_path(config)).sources
    documents = {source.doc_id: source for source in stored.documents}
    wanted = [documents[doc_id] for doc_id in shard.items]
    done = find_units(units, wanted)
    left = [source for source in wanted if source.doc_id not in done]
    advance(shard.units - sum(map(_kilobytes, left)))
    if left:
        limits = TimeLimits(config.page_timeout_s, config.document_timeout_s)
        setup = _worker_setup(config, units)
        with TimingLog(_timings(units)) as log, warm_pool(config.workers, setup) as pool:

            def finish(doc_id: str, cpu_s: Mapping[str, float]) -> None:
                log.add(doc_id, cpu_s)
                advance(_kilobytes(documents[doc_id]))

            passwords = read_secrets(_secrets_path(config))
            DocumentScheduler(pool, units, limits, finish, passwords).run(left)
    if config.llm is not None:
        # Not in the parser children: they are killed when they wait, and read hostile bytes.
        rewrite_summaries(find_units(units, wanted), RewrittenSummaries(units), _llm_client(config))
    seconds = time.monotonic() - started
    write_json(_timings(units) / f"{shard.index}-{time.time_ns()}.json", seconds)
    return _report(shard, find_units(units, wanted), seconds)


def _llm_client(config: IngestConfig) -> LlmClient:
    assert config.llm is not None
    return LlmClient(config.llm, Workspace(config.workspace).llm, _purpose(config))


def _purpose(config: IngestConfig) -> str:
    """Under which name the ledger counts what this corpus cost."""
    return f"{STAGE} {_generation(config)}"


def _worker_setup(config: IngestConfig, units: Path) -> dict[str, Any]:
    return {
        "units": str(units),
        "spool": str(units.with_name(f"spool-{units.name}")),
        "options": vars(config.parse_options()),
        "chunk_tokens": config.chunk_tokens,
        "chunk_overlap": config.chunk_overlap,
        "chunk_tokenizer": config.chunk_tokenizer,
        "redact": list(config.redact),
        "max_bytes": config.max_file_mb << 20,
        "memory_limit_mb": config.memory_limit_mb,
    }


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
    ingested = read_plan(_plan_path(config))
    return publish_corpus.publish(
        plan,
        ingested,
        _units(config),
        settings=config.output_settings(),
        fingerprint=config.fingerprint(),
        generation=_generation(config),
        similarity=config.near_duplicate_similarity,
        limits=_limits(config),
        seconds=sum(float(path.read_text()) for path in _timings(_units(config)).glob("*.json")),
        cpu_s=read_logs(_timings(_units(config))),
        cost=Ledger(Workspace(config.workspace).llm / "ledger.jsonl").spent(_purpose(config)),
    )


def _generation(config: IngestConfig) -> str:
    """Documents parsed under the same generation have the same rows."""
    settings = config.output_settings()
    parsing = {name: value for name, value in settings.items() if name not in PUBLISH_ONLY}
    return f"{VERSION}-{hash_json(parsing)}"


def _units(config: IngestConfig) -> Path:
    # Not under the plan's key: a file added after a kill must not cost the work done before it.
    return config.folder / ".work" / f"units-{_generation(config)}"


def _writers_lock(config: IngestConfig) -> Path:
    """Shared by all that process shards."""
    return Workspace(config.workspace).locks / f"{STAGE}-shards.lock"


def _timings(units: Path) -> Path:
    """Seconds and timing log of each call of `process`, since several may have been needed."""
    return units.with_name(f"seconds-{units.name}")


def _plan_path(config: IngestConfig) -> Path:
    """`process` runs in other processes and knows the config alone."""
    return config.folder / ".work" / f"plan-{_identity(config)}.json"


def _secrets_path(config: IngestConfig) -> Path:
    return config.folder / ".work" / f"passwords-{_identity(config)}.json"


def _identity(config: IngestConfig) -> str:
    return hash_json(config.model_dump(mode="json", exclude={"workers", "workspace", "cluster"}))
