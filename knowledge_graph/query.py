"""Read a published graph: look entities up, walk to neighbours, take a piece as networkx.

    graph = Graph.open(Workspace(Path("W")))
    uart = graph.entity("UART")
    graph.neighbours(uart.entity_id)
    graph.subgraph(uart.entity_id, hops=2)      # networkx.MultiDiGraph

Relations between entities are indexed in memory; mentions are read from disk on demand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from knowledge_graph.names import identifier_key, norm_key, words_key
from workspace.errors import UserError
from workspace.manifest import require_manifest
from workspace.paths import Workspace
from workspace.shards import Row, iterate_rows, table_files


@dataclass(frozen=True)
class Entity:
    """One row of `entities`."""

    entity_id: str
    name: str
    norm_key: str
    type: str
    aliases: tuple[str, ...]
    n_mentions: int
    n_docs: int
    degree: int
    pagerank: float


@dataclass(frozen=True)
class Evidence:
    """Where a relation is stated. `bbox_pt` is None where the format has no geometry."""

    doc_id: str
    element_id: str
    table_id: str
    page: int
    bbox_pt: tuple[float, ...] | None
    text: str


@dataclass(frozen=True)
class Relation:
    """One row of `relations`; `tail_id` or `value` is ""."""

    relation_id: str
    head_id: str
    predicate: str
    tail_id: str
    value: str
    unit: str
    kind: str
    source: str
    weight: float
    n_docs: int
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Mention:
    """One row of `mentions`."""

    mention_id: str
    entity_id: str
    doc_id: str
    element_id: str
    page: int
    bbox_pt: tuple[float, ...] | None
    char_start: int
    char_end: int
    surface: str
    kind: str


@dataclass
class Graph:
    """A published graph. Make it with `Graph.open`."""

    folder: Path
    _entities: dict[str, Entity] = field(default_factory=dict)
    _by_key: dict[str, str] = field(default_factory=dict)
    _by_alias: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _relations: dict[str, Relation] = field(default_factory=dict)
    _touching: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def open(cls, workspace: Workspace) -> Self:
        """Load entities and relations. Raises `MissingInputError` when nothing is published."""
        require_manifest(workspace.graph, made_by="build_graph")
        graph = cls(workspace.graph)
        for row in iterate_rows(workspace.graph, "entities"):
            graph._add_entity(Entity(**{**row, "aliases": tuple(row["aliases"])}))
        for row in iterate_rows(workspace.graph, "relations"):
            graph._add_relation(_relation(row))
        return graph

    def entities(self) -> Iterator[Entity]:
        """All entities, in order of id."""
        return iter(self._entities.values())

    def find(self, name: str) -> list[Entity]:
        """Entities that `name` may mean: by key first, then by alias; most mentioned first."""
        keys = (identifier_key(name.strip()), norm_key(name), words_key(name))
        ids = [self._by_key[key] for key in dict.fromkeys(keys) if key in self._by_key]
        aliased = (self._entities[i] for i in self._by_alias.get(name.strip().casefold(), ()))
        ids += [e.entity_id for e in sorted(aliased, key=lambda e: (-e.n_mentions, e.entity_id))]
        return [self._entities[i] for i in dict.fromkeys(ids)]

    def entity(self, name: str) -> Entity:
        """The entity with this id, or the best that `find` gives. Raises `UserError` for none."""
        if name in self._entities:
            return self._entities[name]
        found = self.find(name)
        if not found:
            raise UserError(f"no entity named {name!r} in {self.folder}")
        return found[0]

    def relations(self, entity_id: str) -> list[Relation]:
        """All relations that the entity is an end of, in order of id."""
        return [self._relations[i] for i in self._touching.get(entity_id, ())]

    def neighbours(self, entity_id: str) -> list[Entity]:
        """Entities one relation away, highest ranked first."""
        ids = {
            end
            for relation in self.relations(entity_id)
            for end in (relation.head_id, relation.tail_id)
            if end and end != entity_id
        }
        return sorted((self._entities[i] for i in ids), key=lambda e: (-e.pagerank, e.entity_id))

    def mentions(self, entity_id: str) -> list[Mention]:
        """All places where the entity stands, in document order."""
        found: list[Mention] = []
        for path in table_files(self.folder, "mentions"):
            part = pq.read_table(path, filters=[("entity_id", "=", entity_id)], partitioning=None)
            found += [
                Mention(**{**row, "bbox_pt": _box(row["bbox_pt"])}) for row in part.to_pylist()
            ]
        return found

    def subgraph(self, seed: str, hops: int = 1) -> Any:
        """The entities within `hops` of `seed` and all relations among them.

        A `networkx.MultiDiGraph`: nodes carry the entity's fields, edges (keyed by relation id)
        the relation's. Raises `UserError` for an unknown id.
        """
        import networkx

        ids = self._within(self.entity(seed).entity_id, hops)
        graph = networkx.MultiDiGraph()
        for identity in sorted(ids):
            graph.add_node(identity, **vars(self._entities[identity]))
        for identity in sorted(ids):
            for relation in self.relations(identity):
                if relation.head_id == identity and relation.tail_id in ids:
                    graph.add_edge(
                        identity, relation.tail_id, key=relation.relation_id, **vars(relation)
                    )
        return graph

    def _within(self, seed: str, hops: int) -> set[str]:
        reached = {seed}
        frontier = [seed]
        for _ in range(hops):
            frontier = [
                entity.entity_id
                for identity in frontier
                for entity in self.neighbours(identity)
                if entity.entity_id not in reached
            ]
            reached.update(frontier)
        return reached

    def _add_entity(self, entity: Entity) -> None:
        self._entities[entity.entity_id] = entity
        self._by_key[entity.norm_key] = entity.entity_id
        for alias in (entity.name, *entity.aliases):
            self._by_alias[alias.casefold()].append(entity.entity_id)

    def _add_relation(self, relation: Relation) -> None:
        self._relations[relation.relation_id] = relation
        for end in {relation.head_id, relation.tail_id} - {""}:
            self._touching[end].append(relation.relation_id)


def _relation(row: Row) -> Relation:
    evidence = tuple(
        Evidence(**{**item, "bbox_pt": _box(item["bbox_pt"])}) for item in row["evidence"]
    )
    return Relation(**{**row, "evidence": evidence})


def _box(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)
