"""Work folders of all shards -> the published graph, in a few streaming passes.

Candidates stay on disk: each pass reads them shard by shard in order, and only what is counted per
entity, relation and pair is held. Nothing here depends on the number of shards or workers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from knowledge_graph import cooccurrence, graphml, schema
from knowledge_graph.candidates import WORK_TABLES
from knowledge_graph.communities import Community, Edges, find_communities, pagerank
from knowledge_graph.community_text import describe_communities
from knowledge_graph.config import GraphConfig
from knowledge_graph.explorer import MAX_PLACES, GraphTables, shown_entities, write_explorer
from knowledge_graph.relations import (
    RelationKey,
    Statements,
    merge_statements,
    relation_row,
)
from knowledge_graph.resolution import (
    Acronyms,
    Tally,
    entity_id,
    entity_rows,
    mention_key,
    resolve_acronyms,
    select_entities,
    tally_mentions,
    vouched_keys,
)
from workspace.ids import derive_id
from workspace.manifest import FileEntry, describe_file
from workspace.shards import Row, ShardWriter, iterate_files, iterate_rows
from workspace.stage import StagePlan

# A table holds its row keys together as loosely as a shared sentence would.
TABLE_BOND: Final = 0.5
_TABLE_PREFIX: Final = "table:"
_MENTION_COLUMNS: Final = (
    "doc_id",
    "element_id",
    "page",
    "bbox_pt",
    "char_start",
    "char_end",
    "surface",
    "kind",
)


@dataclass
class Assembled:
    """What was written, for the manifest."""

    files: list[FileEntry] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    rejects: Counter[str] = field(default_factory=Counter)
    notes: dict[str, Any] = field(default_factory=dict)


def assemble(config: GraphConfig, folders: Sequence[Path], plan: StagePlan) -> Assembled:
    """Write all tables and exports of the graph into `plan.directory`."""
    made = Assembled()
    writer = _Writer(plan, made)
    acronyms = resolve_acronyms(_read(folders, "definitions"), made.rejects)
    tallies = tally_mentions(_read(folders, "mentions"), acronyms)
    kept = select_entities(
        tallies,
        vouched_keys(_read(folders, "relations"), acronyms),
        {*acronyms.everywhere.values(), *acronyms.in_document.values()},
        config.min_mentions,
        made.rejects,
    )
    writer.table("mentions", _mention_rows(folders, kept, acronyms, made.rejects))
    relations = _relations(config, folders, kept, acronyms, made.rejects)
    writer.table("relations", relations)
    edges = entity_edges(relations)
    ranks = pagerank(edges)
    entities = list(_ranked_entities(kept, edges, ranks))
    writer.table("entities", entities)
    communities = describe_communities(_communities(config, edges, relations), entities, relations)
    writer.table("communities", communities)
    made.notes["levels"] = len({row["level"] for row in communities})
    made.notes["aliases_from_acronyms"] = len(acronyms.everywhere) + len(acronyms.in_document)
    clustered = {name for row in communities for name in row["entity_ids"]}
    made.notes["entities_in_no_community"] = len(entities) - len(clustered)
    graphml.write(writer.path("export/graph.graphml"), entities, relations, communities)
    shown = {row["entity_id"] for row in shown_entities(entities, config.explorer_entities)}
    places = _first_places(folders, kept, acronyms, shown)
    tables = GraphTables(entities, relations, communities, _document_names(config), places)
    write_explorer(
        writer.path("explorer.html"), tables, limit=config.explorer_entities, seed=config.seed
    )
    writer.add("export/graph.graphml", "explorer.html")
    return made


class _Writer:
    """Writes into the graph's folder under names that the published graph does not use."""

    def __init__(self, plan: StagePlan, made: Assembled) -> None:
        self.directory = plan.directory
        self.prefix = f"part-{plan.key[:8]}"
        self.made = made

    def table(self, name: str, rows: Any) -> None:
        with ShardWriter(
            self.directory, name, schema.TABLES_BY_NAME[name], prefix=self.prefix
        ) as writer:
            writer.write_all(rows)
        self.made.files += writer.files
        self.made.counts[name] = writer.rows

    def path(self, name: str) -> Path:
        return self.directory / name

    def add(self, *names: str) -> None:
        self.made.files += [describe_file(self.directory, self.directory / n) for n in names]


def entity_edges(relations: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Pairs of entities with the sum of their relations' strengths, direction left out."""
    edges: dict[tuple[str, str], float] = defaultdict(float)
    for row in relations:
        head, tail = row["head_id"], row["tail_id"]
        if not tail or head == tail:
            continue
        strength = row["weight"] if row["kind"] == "co_occurs" else 1 + math.log(row["weight"])
        edges[(head, tail) if head < tail else (tail, head)] += strength
    return dict(edges)


def _communities(config: GraphConfig, edges: Edges, relations: Sequence[Row]) -> list[Community]:
    """Communities of entities; a table counts as a node that its row keys hang on."""
    found = find_communities(
        {**edges, **_table_edges(relations)},
        max_size=config.max_community_size,
        resolution=config.resolution,
        seed=config.seed,
    )
    bare = (
        item._replace(members=tuple(m for m in item.members if not m.startswith(_TABLE_PREFIX)))
        for item in found
    )
    return [item for item in bare if len(item.members) > 1]


def _table_edges(relations: Sequence[Row]) -> dict[tuple[str, str], float]:
    return {
        (row["head_id"], _TABLE_PREFIX + evidence["table_id"]): TABLE_BOND
        for row in relations
        if row["source"] == "table"
        for evidence in row["evidence"]
    }


def _ranked_entities(
    kept: Mapping[str, Tally], edges: Edges, ranks: Mapping[str, float]
) -> Iterator[Row]:
    degrees: Counter[str] = Counter()
    for a, b in edges:
        degrees[a] += 1
        degrees[b] += 1
    for row in entity_rows(kept):
        identity = row["entity_id"]
        yield {**row, "degree": degrees[identity], "pagerank": ranks.get(identity, 0.0)}


def _mention_rows(
    folders: Sequence[Path], kept: Mapping[str, Tally], acronyms: Acronyms, rejects: Counter[str]
) -> Iterator[Row]:
    for row in _read(folders, "mentions"):
        key = mention_key(row, acronyms)
        if key not in kept:
            rejects["mention_of_no_entity"] += 1
            continue
        place = (row["char_start"], row["char_end"], row["slot"])
        yield {
            "mention_id": derive_id("mention", row["element_id"], *place, row["kind"], key),
            "entity_id": entity_id(key),
            **{name: row[name] for name in _MENTION_COLUMNS},
        }


def _relations(
    config: GraphConfig,
    folders: Sequence[Path],
    kept: Mapping[str, Tally],
    acronyms: Acronyms,
    rejects: Counter[str],
) -> list[Row]:
    """Asserted and co-occurring, sorted by id."""
    merged = merge_statements(_read(folders, "relations"), kept, acronyms, rejects)
    rows = [relation_row(key, float(found.count), found) for key, found in merged.items()]
    if config.max_cooccurrences:
        rows += _cooccurrences(config, folders, kept, acronyms, rejects)
    return sorted(rows, key=lambda row: str(row["relation_id"]))


def _cooccurrences(
    config: GraphConfig,
    folders: Sequence[Path],
    kept: Mapping[str, Tally],
    acronyms: Acronyms,
    rejects: Counter[str],
) -> Iterator[Row]:
    def sentences(folder: Path) -> Iterator[cooccurrence.SentenceEntities]:
        keyed = ((row, mention_key(row, acronyms)) for row in _read([folder], "mentions"))
        return cooccurrence.sentences_of((row, entity_id(key)) for row, key in keyed if key in kept)

    counted = cooccurrence.count(item for folder in folders for item in sentences(folder))
    best = cooccurrence.strongest_pairs(
        counted,
        config.min_cooccurrences,
        config.min_npmi,
        config.max_cooccurrences,
        rejects,
    )
    seen: dict[cooccurrence.Pair, Statements] = defaultdict(Statements)
    for folder in folders:
        texts = {(row["element_id"], row["sentence"]): row for row in _read([folder], "sentences")}
        for item in sentences(folder):
            for pair in item.pairs & best.keys():
                seen[pair].add(texts[(item.element_id, item.sentence)], "")
    for pair, weight in best.items():
        key = RelationKey(pair[0], "co_occurs", pair[1], "", "", "co_occurs", "sentence")
        yield relation_row(key, weight, seen[pair])


def _document_names(config: GraphConfig) -> dict[str, str]:
    return {
        row["doc_id"]: row["name"] or row["uri"]
        for row in iterate_rows(config.where.corpus, "documents", ["doc_id", "name", "uri"])
    }


def _first_places(
    folders: Sequence[Path], kept: Mapping[str, Tally], acronyms: Acronyms, shown: Container[str]
) -> dict[str, list[Row]]:
    """For each shown entity its first mentions, at most one a page."""
    places: dict[str, list[Row]] = defaultdict(list)
    for row in _read(folders, "mentions"):
        identity = entity_id(mention_key(row, acronyms))
        if identity not in shown or len(places[identity]) >= MAX_PLACES:
            continue
        last = places[identity][-1:]
        if not last or (last[0]["doc_id"], last[0]["page"]) != (row["doc_id"], row["page"]):
            places[identity].append(row)
    return places


def _read(folders: Sequence[Path], table: str) -> Iterator[Row]:
    assert table in WORK_TABLES
    for folder in folders:
        yield from iterate_files(sorted((folder / table).glob("*.parquet")))
