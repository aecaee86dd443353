"""From a run back to the documents that its rows were made of.

    write_sources(run, dataset, corpus, {"sft": run.data("sft")})     # when the run begins
    read_sources(run)

The rows that a run is given name their canonical rows (`row_id`), these their documents, the
corpus knows where each document came from. All of it is written down while it is there: a data set
or a corpus that is built anew later does not change where a model came from.

    runs/<run>/data/documents.jsonl    a line per document: doc_id, uri, licence, rows, tokens
    runs/<run>/data/sources.json       keys and hashes, rows and tokens by licence

Not covered: rows of a data set that was made elsewhere and has no `rows` table are counted as
untraced, with the licences that they state themselves; a model that a run started from is traced by
its own run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from training.run_record import RunFolder
from training.trainers.settings import StageName
from workspace import publish
from workspace.ids import hash_file
from workspace.manifest import MANIFEST_NAME, Manifest, read_manifest
from workspace.shards import iterate_rows

SOURCES_NAME: Final = "sources.json"
DOCUMENTS_NAME: Final = "documents.jsonl"
NOT_STATED: Final = "not stated"


@dataclass(frozen=True)
class LicenceShare:
    """Rows that a run was given, and their tokens by the data set's count."""

    rows: int
    tokens: int


@dataclass(frozen=True)
class Sources:
    """`sources.json`."""

    dataset: str  # key
    dataset_manifest: str  # SHA-256 of its manifest.json
    corpus: str = ""  # key
    corpus_changed: bool = False  # it was built anew since: where documents came from is not known
    documents: int = 0
    rows: int = 0
    untraced_rows: int = 0
    licences: dict[str, LicenceShare] = field(default_factory=dict)


@dataclass
class _Used:
    """A document's part."""

    licence: str
    rows: int = 0
    tokens: int = 0


def write_sources(
    folder: RunFolder, dataset: Path, corpus: Path, held: Mapping[StageName, Path]
) -> Sources:
    """Trace the rows of `held`. Raises `CorruptWorkspaceError` when a table cannot be read."""
    manifest = read_manifest(dataset)
    assert manifest is not None, dataset  # the run was planned from it
    uses, total = _uses(held)
    documents, licences = _by_document(dataset, manifest, uses)
    traced = sum(share.rows for share in licences.values())
    licences = licences or _stated(held)
    places, changed = _places(corpus, manifest, set(documents))
    lines = [
        {"doc_id": doc_id, "uri": "", **asdict(used), **places.get(doc_id, {})}
        for doc_id, used in sorted(documents.items())
    ]
    sources = Sources(
        dataset=manifest.key,
        dataset_manifest=hash_file(dataset / MANIFEST_NAME),
        corpus=manifest.inputs.get("corpus", ""),
        corpus_changed=changed,
        documents=len(documents),
        rows=total,
        untraced_rows=total - traced,
        licences=licences,
    )
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    publish.write_text(folder.root / "data" / DOCUMENTS_NAME, text)
    publish.write_json(folder.root / "data" / SOURCES_NAME, asdict(sources))
    return sources


def read_sources(folder: RunFolder) -> Sources | None:
    """What was traced when the run began; None for a run of an older version."""
    try:
        text = (folder.root / "data" / SOURCES_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    values: dict[str, Any] = json.loads(text)
    licences = {name: LicenceShare(**share) for name, share in values.pop("licences").items()}
    return Sources(**values, licences=licences)


def documents_file(folder: RunFolder) -> Path:
    """The list of documents."""
    return folder.root / "data" / DOCUMENTS_NAME


def _uses(held: Mapping[StageName, Path]) -> tuple[Counter[str], int]:
    """How many stages use each canonical row, and how many rows they were given in all."""
    uses: Counter[str] = Counter()
    total = 0
    for path in held.values():
        total += pq.read_metadata(path).num_rows
        if "row_id" in pq.read_schema(path).names:
            uses.update(pq.read_table(path, columns=["row_id"])["row_id"].to_pylist())
    return uses, total


def _by_document(
    dataset: Path, manifest: Manifest, uses: Counter[str]
) -> tuple[dict[str, _Used], dict[str, LicenceShare]]:
    documents: dict[str, _Used] = {}
    rows: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    if not any(file.path.startswith("rows/") for file in manifest.files):
        return {}, {}
    for row in iterate_rows(dataset, "rows", ["row_id", "doc_ids", "licence", "tokens"]):
        times = uses[row["row_id"]]
        if not times:
            continue
        licence = row["licence"] or NOT_STATED
        rows[licence] += times
        tokens[licence] += times * row["tokens"]
        for doc_id in set(row["doc_ids"]):
            used = documents.setdefault(doc_id, _Used(licence))
            used.rows += times
            used.tokens += times * row["tokens"]
    shares = {name: LicenceShare(rows[name], tokens[name]) for name, _ in tokens.most_common()}
    return documents, shares


def _stated(held: Mapping[StageName, Path]) -> dict[str, LicenceShare]:
    """Licences that the given rows state themselves, where nothing else is known of them."""
    rows: Counter[str] = Counter()
    for path in held.values():
        if "licence" in pq.read_schema(path).names:
            column = pq.read_table(path, columns=["licence"])["licence"]
            rows.update(value or NOT_STATED for value in column.to_pylist())
    return {name: LicenceShare(count, 0) for name, count in rows.most_common()}


def _places(
    corpus: Path, dataset: Manifest, wanted: set[str]
) -> tuple[dict[str, dict[str, str]], bool]:
    """Each document's place and licence, and whether the corpus is another one by now."""
    if not wanted:
        return {}, False
    manifest = read_manifest(corpus)
    if manifest is None or manifest.key != dataset.inputs.get("corpus"):
        return {}, True
    found = {
        row["doc_id"]: {"uri": row["uri"], "licence": row["licence"] or NOT_STATED}
        for row in iterate_rows(corpus, "documents", ["doc_id", "uri", "licence"])
        if row["doc_id"] in wanted
    }
    return found, False
