"""What a run of ingest has to do: the sources that there are against what is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final, NamedTuple

from corpus.children import ContainerLimits
from corpus.given_files import Patterns
from corpus.ingest_config import VERSION, IngestConfig
from corpus.passwords import read_passwords
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
from corpus.sources import Given, Source, SourceList
from corpus.units import find_units
from corpus.work_folder import WorkFolder
from corpus.worker_pool import warm_pool
from workspace.config import hash_json
from workspace.manifest import Manifest, stage_key

STAGE: Final = "corpus"


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
    folder, setup = config.folder, config.worker_setup(WorkFolder(config).units)
    published = read_published(folder, rebuild=config.sync)
    tries = Tries.read(folder)
    with SourcePlanner(_wanted(config), lambda: warm_pool(config.workers, setup)) as planner:
        discovered = planner.find()
        passwords = planner.find_passwords(discovered, published, config.generation)
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
        generation=config.generation,
        limits=config.limits,
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


def unfinished(config: IngestConfig, sources: Sequence[Source]) -> list[Source]:
    """Those that an earlier run, stopped before it could publish, did not finish."""
    done = find_units(WorkFolder(config).units, sources)
    return [source for source in sources if source.doc_id not in done]


def _wanted(config: IngestConfig) -> Wanted:
    limits = ContainerLimits(
        depth=config.archive_depth,
        members=config.archive_max_members,
        total_bytes=config.archive_max_mb << 20,
        member_bytes=config.max_file_mb << 20,
    )
    return Wanted(
        folder=config.folder,
        workspace=config.workspace,
        sources=config.sources,
        lists=config.source_list,
        patterns=Patterns(config.include, config.exclude),
        passwords=read_passwords(config.passwords),
        limits=limits,
        cpu_limit_s=config.document_timeout_s,
    )
