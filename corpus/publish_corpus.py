"""Units of single documents -> the published corpus: one sorted set of shards per table.

Rows go out by document in order of doc_id, so the result depends neither on the order of the
sources nor on who parsed what. Documents that were published before with the same generation (stage
version and settings) are copied from the old shards. One document's batch is in memory at a time.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from corpus import changes, report, timings
from corpus.account import Account
from corpus.duplicates import duplicate_rows
from corpus.plan_file import IngestPlan
from corpus.published import KEPT, UNPACK_STAGE
from corpus.quarantine import Tries
from corpus.redaction import redaction_counts
from corpus.schema import DERIVED_TABLES, TABLES_BY_NAME
from corpus.sources import MEMBER, Given, Source
from corpus.units import RewrittenSummaries, RowGroups, Unit, UnitRows, find_units, quarantine_row
from workspace.errors import CorruptWorkspaceError
from workspace.manifest import (
    FileEntry,
    Manifest,
    code_version,
    describe_file,
    now,
    read_manifest,
    write_manifest,
)
from workspace.shards import Row, ShardWriter, iterate_files, manifest_files, remove_unlisted
from workspace.stage import StagePlan

# Page images are about 50 kB each.
BATCH_ROWS: Final[Mapping[str, int]] = {"pages": 32, "images": 16}


def publish(
    plan: StagePlan,
    ingested: IngestPlan,
    units: Path,
    *,
    settings: dict[str, Any],
    fingerprint: str,
    generation: str,
    similarity: float,
    limits: str,
    seconds: float,
    cpu_s: Mapping[str, timings.CpuSeconds],
    cost: float = 0.0,
) -> Manifest:
    """Write the tables, the report and the manifest, then drop what they replace.

    `cpu_s` holds the CPU seconds of each document that was parsed for it; the note of that name
    is their sum.
    """
    folder = plan.directory
    sources = ingested.sources
    fresh = [source for source in sources.documents if source.doc_id not in ingested.reused]
    found = find_units(units, fresh)
    failed = {doc_id for doc_id, unit in found.items() if unit.rejects}
    held = [source.doc_id for source in sources.documents]
    tries = Tries.read(folder).after(found, failed, held, limits)
    current = read_manifest(folder)
    if ingested.only_retries and current and _all_failed_again(folder, current, found):
        tries.write(folder)
        shutil.rmtree(folder / ".work", ignore_errors=True)
        return current
    merge = _Merge(folder, plan, ingested, found, RewrittenSummaries(units), similarity)
    merge.run()
    merge.account.check(sources)
    n_hashed = sources.n_files - len(sources.refused)
    manifest = Manifest(
        stage=plan.stage,
        key=plan.key,
        fingerprint=fingerprint,
        settings=settings,
        inputs=plan.inputs,
        code_version=code_version(),
        counts_in={
            "files": sources.n_files,
            "children": sum(MEMBER in uri for uri in sources.uris),
            "bytes": sum(source.bytes for source in sources.documents),
            "documents": len(sources.documents),
            "pages": merge.account.pages_in,
            "duplicates": n_hashed - len(sources.documents),
        },
        counts_out={
            **merge.counts,
            "quarantined": merge.counts["quarantine"],
            **merge.account.counts_out(),
        },
        rejects=dict(sorted(merge.rejects.items())),
        notes={
            "generation": generation,
            "hidden_left_out": sources.hidden,
            "excluded": sources.excluded,
            "reused_documents": len(ingested.reused),
            KEPT: dict(ingested.kept),
            "cpu_s": timings.sum_steps(cpu_s.values()),
            "summaries_by_method": dict(sorted(merge.methods.items())),
            "redacted": dict(sorted(merge.redacted.items())),
        },
        seconds=seconds,
        cost=cost,
        created=now(),
        files=merge.files,
    )
    tries.write(folder)
    shown = report.write(folder, manifest, prefix=f"report-{plan.key[:8]}")
    timed = _write_timings(folder, plan.key, ingested, cpu_s)
    history = changes.write_history(
        folder, plan.key, merge.account.listed(generation, ingested.kept)
    )
    entries = [describe_file(folder, path) for path in (*shown, timed, *history)]
    manifest = manifest.model_copy(update={"files": [*manifest.files, *entries]})
    write_manifest(folder, manifest)
    remove_unlisted(folder, manifest)
    report.remove_old(folder, shown)
    timings.remove_old(folder, timed)
    changes.forget(folder, history)
    shutil.rmtree(folder / ".work", ignore_errors=True)
    return manifest


def _all_failed_again(folder: Path, manifest: Manifest, units: Mapping[str, Unit]) -> bool:
    """Whether the units failed as the published documents did: then nothing is to be replaced."""
    columns = ["doc_id", "page", "stage", "reason"]
    before = _failures(_published_rows(folder, manifest, "quarantine", columns))
    rows = UnitRows("quarantine")
    return all(
        before[doc_id] == _failures(rows.of(units[doc_id]))[doc_id] for doc_id in sorted(units)
    )


def _failures(rows: Iterable[Row]) -> defaultdict[str, set[tuple[int, str, str]]]:
    found: defaultdict[str, set[tuple[int, str, str]]] = defaultdict(set)
    for row in rows:
        found[row["doc_id"]].add((row["page"], row["stage"], row["reason"]))
    return found


def _write_timings(
    folder: Path, key: str, ingested: IngestPlan, cpu_s: Mapping[str, timings.CpuSeconds]
) -> Path:
    old = read_manifest(folder)
    known = {**(timings.read(folder, old) if old else {}), **cpu_s}
    wanted = {source.doc_id for source in ingested.sources.documents}
    return timings.write(folder, key, {doc: known[doc] for doc in wanted & known.keys()})


class _Merge:
    """Copies rows document by document into new shards."""

    def __init__(
        self,
        folder: Path,
        plan: StagePlan,
        ingested: IngestPlan,
        units: Mapping[str, Unit],
        rewritten: RewrittenSummaries,
        similarity: float,
    ) -> None:
        self._folder = folder
        self._similarity = similarity
        self._prefix = f"part-{plan.key[:8]}"
        self._sources = ingested.sources
        self._reused = ingested.reused
        self._units = units
        self._rewritten = rewritten
        self.account = Account()
        self.rejects: Counter[str] = Counter()
        self.methods: Counter[str] = Counter()
        self.redacted: Counter[str] = Counter()
        self.counts: dict[str, int] = {}
        self.files: list[FileEntry] = []

    def run(self) -> None:
        for table in TABLES_BY_NAME:
            if table not in DERIVED_TABLES:
                self._write(table, self._rows(table))
        self._write("duplicates", duplicate_rows(self._folder, self.files, self._similarity))

    def _write(self, table: str, rows: Iterator[Row]) -> None:
        writer = ShardWriter(self._folder, table, TABLES_BY_NAME[table], prefix=self._prefix)
        with writer:
            writer.write_all(rows)
        self.counts[table] = writer.rows
        self.files += writer.files

    def _rows(self, table: str) -> Iterator[Row]:
        if table == "quarantine":
            yield from self._refused_rows()
        old = _old_rows(self._folder, table)
        new = UnitRows(table)
        for source in self._sources.documents:
            if source.doc_id in self._reused:
                rows = old.of(source.doc_id)
            else:
                rows = self._new_rows(new, self._unit(source), table)
            if table == "documents":
                rows = (self._named(row, source) for row in rows)
            elif table == "summaries":
                rows = self._counted(rows)
            elif table == "quarantine":
                rows = self._quarantined(rows, source)
            yield from (self.account.add(table, row) for row in rows)

    def _new_rows(self, new: UnitRows, unit: Unit, table: str) -> Iterator[Row]:
        if table == "summaries" and self._rewritten.has(unit.doc_id):
            return self._rewritten.of(unit.doc_id)
        return new.of(unit)

    def _unit(self, source: Source) -> Unit:
        unit = self._units.get(source.doc_id)
        if unit is None:
            raise CorruptWorkspaceError(
                f"{source.uris[0]} was not processed; run process on every shard before publish"
            )
        return unit

    def _named(self, row: Row, source: Source) -> Row:
        self.redacted.update(redaction_counts(row["metadata_json"]))
        place = {
            "uri": source.uris[0],
            "uris": list(source.uris),
            "parent_id": source.parent_id,
            "name": source.name,
        }
        return {**row, **place, **_described(row, source.given)}

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self.methods[row["method"]] += 1
            yield row

    def _quarantined(self, rows: Iterator[Row], source: Source) -> Iterator[Row]:
        """A lost document is recorded under each of its paths, a lost page under the first."""
        # Rows of an earlier run already stand under each path.
        unique = {(row["page"], row["stage"], row["reason"], row["detail"]): row for row in rows}
        found = [
            {**row, "uri": uri}
            for row in unique.values()
            for uri in (source.uris if row["page"] == 0 else source.uris[:1])
        ]
        for row in sorted(found, key=lambda row: (row["uri"], row["page"], row["reason"])):
            self.rejects[row["reason"]] += 1
            yield row

    def _refused_rows(self) -> Iterator[Row]:
        for item in self._sources.refused:
            self.rejects[item.reason] += 1
            row = quarantine_row(
                item.doc_id, 0, UNPACK_STAGE, item.reason, item.detail, size=item.bytes
            )
            yield self.account.add("quarantine", {**row, "uri": item.uri})


def _described(row: Row, given: Given) -> Row:
    """What a source list says goes before what the document says, which stays in the metadata."""
    metadata: dict[str, str] = json.loads(row["metadata_json"])
    stated = {
        # Rows of an earlier run may carry what an older list said.
        name: metadata.pop(f"document.{name}", row[name])
        for name in ("title", "licence")
    }
    metadata = {name: text for name, text in metadata.items() if not name.startswith("list.")}
    for name, said in (("title", given.title), ("licence", given.licence)):
        if said and said != stated[name]:
            metadata[f"document.{name}"] = stated[name]
            stated[name] = said
    metadata.update(given.metadata)
    text = json.dumps(metadata, sort_keys=True, ensure_ascii=False)
    return {**stated, "tags": list(given.tags), "metadata_json": text}


def _old_rows(folder: Path, table: str) -> RowGroups:
    manifest = read_manifest(folder)
    return RowGroups(_published_rows(folder, manifest, table) if manifest else ())


def _published_rows(
    folder: Path, manifest: Manifest, table: str, columns: list[str] | None = None
) -> Iterator[Row]:
    files = manifest_files(folder, manifest, table)
    return iterate_files(files, columns, batch_rows=BATCH_ROWS.get(table, 1024))
