"""One shard of documents: corpus tables -> candidates in a work folder.

Reads `documents`, `elements`, `tables` and `modules` of the shard's documents, runs the chosen
extractors, and leaves the work tables of `knowledge_graph.candidates`, sorted by place. Prose is
cut into batches which child processes may parse; the result does not depend on how many.

Headers, footers, page numbers, addresses, formulas and code that is not RTL are not read.
"""

from __future__ import annotations

import multiprocessing
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from corpus.rows import in_flow
from knowledge_graph.candidates import (
    CAPTION,
    WORK_TABLES,
    Definition,
    Extraction,
    Mention,
    Relation,
    Sentence,
    TextUnit,
)
from knowledge_graph.extractors.prose import extract_prose
from knowledge_graph.extractors.rtl import extract_module
from knowledge_graph.extractors.tables import extract_table
from workspace.errors import TransientError
from workspace.manifest import Manifest
from workspace.pool_child import end_with_parent
from workspace.shards import Row, manifest_files, write_table

PROSE_CATEGORIES: Final = frozenset(
    {"Title", "NarrativeText", "ListItem", "FigureCaption", "UncategorizedText"}
)
# The parser speaks English; "" is a document too short to tell.
PARSED_LANGUAGES: Final = frozenset({"en", "eng", ""})
# Dots that lead to a page number: a line of a table of contents repeats a heading.
_LEADER: Final = re.compile(r"(?:\.\s?){6,}\s*\d|(?:\s\.){6,}")
_NEEDS_PARSER: Final = frozenset({"noun_chunk", "sentence"})
BATCH_CHARS: Final = 60_000


def extract_shard(
    corpus: Path,
    manifest: Manifest,
    doc_ids: Sequence[str],
    extractors: Sequence[str],
    workers: int,
) -> Extraction:
    """All candidates of the documents `doc_ids`, sorted; rejects counted."""
    languages = {
        row["doc_id"]: row["language"] or ""
        for row in _rows(corpus, manifest, "documents", doc_ids, ["doc_id", "language"])
    }
    elements = _rows(corpus, manifest, "elements", doc_ids, _ELEMENT_COLUMNS)
    tables = _rows(corpus, manifest, "tables", doc_ids, _TABLE_COLUMNS)
    found = Extraction()
    flowing = [row for row in elements if in_flow(row)]
    found.rejects["table_of_contents"] += sum(
        row["category"] in PROSE_CATEGORIES and not in_flow(row) for row in elements
    )
    english, foreign = _prose(flowing, tables, languages, found.rejects)
    if _NEEDS_PARSER & set(extractors):
        found.rejects["language_not_parsed"] += len(foreign)
    for part in _map_prose(english, frozenset(extractors), workers):
        found.add(part)
    found.add(extract_prose(foreign, frozenset(extractors) - _NEEDS_PARSER))
    if "table" in extractors:
        for table in tables:
            found.add(extract_table(table))
    if "rtl" in extractors:
        places = {row["element_id"]: row for row in elements}
        for module in _rows(corpus, manifest, "modules", doc_ids, None):
            place = places.get(module["element_id"], {"page": 1, "bbox_pt": None})
            found.add(extract_module(module, place["page"], place["bbox_pt"]))
    return _ordered(found)


def write_extraction(folder: Path, found: Extraction) -> dict[str, int]:
    """Write the work tables into `folder`; returns rows by table."""
    rows: dict[str, Sequence[Mention | Relation | Sentence | Definition]] = {
        "mentions": found.mentions,
        "relations": found.relations,
        "sentences": found.sentences,
        "definitions": found.definitions,
    }
    for name, items in rows.items():
        write_table(folder, name, WORK_TABLES[name], (item._asdict() for item in items))
    return {name: len(items) for name, items in rows.items()}


_ELEMENT_COLUMNS: Final = [
    "element_id",
    "doc_id",
    "page",
    "order",
    "category",
    "text",
    "bbox_pt",
    "metadata_json",
]
_TABLE_COLUMNS: Final = [
    "table_id",
    "element_id",
    "doc_id",
    "page",
    "order",
    "caption",
    "n_rows",
    "n_cols",
    "cells",
    "bbox_pt",
]


def _rows(
    corpus: Path,
    manifest: Manifest,
    table: str,
    doc_ids: Sequence[str],
    columns: Sequence[str] | None,
) -> list[Row]:
    """Rows of the shard's documents. Shards are sorted by document, so little else is read."""
    rows: list[Row] = []
    for path in manifest_files(corpus, manifest, table):
        part = pq.read_table(
            path,
            columns=list(columns) if columns else None,
            filters=[("doc_id", "in", list(doc_ids))],
            partitioning=None,
        )
        rows.extend(part.to_pylist())
    return rows


def _prose(
    elements: Sequence[Row],
    tables: Sequence[Row],
    languages: Mapping[str, str],
    rejects: Counter[str],
) -> tuple[list[TextUnit], list[TextUnit]]:
    """Texts that can be parsed, and those in other languages."""
    english: list[TextUnit] = []
    foreign: list[TextUnit] = []
    for unit in (*_element_units(elements), *_caption_units(tables, elements)):
        if _LEADER.search(unit.text):
            rejects["table_of_contents"] += 1
        elif languages.get(unit.doc_id, "") in PARSED_LANGUAGES:
            english.append(unit)
        else:
            foreign.append(unit)
    return english, foreign


def _element_units(elements: Iterable[Row]) -> Iterator[TextUnit]:
    for row in elements:
        if row["category"] in PROSE_CATEGORIES and row["text"]:
            yield TextUnit(
                row["doc_id"],
                row["element_id"],
                row["page"],
                row["order"],
                row["bbox_pt"],
                row["category"],
                row["text"],
            )


def _caption_units(tables: Iterable[Row], elements: Iterable[Row]) -> Iterator[TextUnit]:
    """Captions of tables that are not elements of their own."""
    known = {
        (row["doc_id"], " ".join(row["text"].split()))
        for row in elements
        if row["category"] == "FigureCaption"
    }
    for row in tables:
        if row["caption"] and (row["doc_id"], " ".join(row["caption"].split())) not in known:
            yield TextUnit(
                row["doc_id"],
                row["element_id"],
                row["page"],
                row["order"],
                row["bbox_pt"],
                CAPTION,
                row["caption"],
            )


def _map_prose(
    units: Sequence[TextUnit], extractors: Collection[str], workers: int
) -> Iterator[Extraction]:
    """Batches in order, by `workers` child processes when there is more than one batch."""
    batches = list(_batches(units))
    if workers == 1 or len(batches) < 2:
        for batch in batches:
            yield extract_prose(batch, extractors)
        return
    context = multiprocessing.get_context("forkserver")
    workers = min(workers, len(batches))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
        try:
            yield from pool.map(extract_prose, batches, [extractors] * len(batches))
        except BrokenProcessPool as error:
            raise TransientError(
                "a process that parses prose was killed, most often for lack of memory: "
                f"use fewer than {workers} workers"
            ) from error


def _batches(units: Sequence[TextUnit]) -> Iterator[list[TextUnit]]:
    batch: list[TextUnit] = []
    size = 0
    for unit in units:
        batch.append(unit)
        size += len(unit.text)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _ordered(found: Extraction) -> Extraction:
    """Sorted by place, each mention once."""
    mentions = {_mention_order(item): item for item in found.mentions}
    found.mentions = [mentions[order] for order in sorted(mentions)]
    found.relations.sort(key=lambda item: item[:12])
    found.sentences.sort(key=lambda item: item[:5])
    found.definitions.sort()
    return found


def _mention_order(item: Mention) -> tuple[str | int, ...]:
    return (*_place(item), item.char_start, item.char_end, item.slot, item.kind, item.key)


def _place(item: Mention) -> tuple[str, int, int, str]:
    return (item.doc_id, item.page, item.order, item.element_id)
