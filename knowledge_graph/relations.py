"""Relation candidates -> relations: the same statement in several places is one row.

Evidence is kept in document order, at most `MAX_EVIDENCE` a relation; `weight` counts all of it.
A statement whose end is no entity is dropped as `endpoint_not_kept`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from knowledge_graph.resolution import Acronyms, entity_id
from workspace.ids import derive_id
from workspace.shards import Row

MAX_EVIDENCE: Final = 5


class RelationKey(NamedTuple):
    """What makes two statements the same."""

    head_id: str
    predicate: str
    tail_id: str
    value: str
    unit: str
    kind: str
    source: str

    @property
    def relation_id(self) -> str:
        return derive_id("relation", *self)


@dataclass
class Statements:
    """Where one relation was stated."""

    count: int = 0
    n_docs: int = 0
    last_doc: str = ""
    evidence: list[Row] = field(default_factory=list)

    def add(self, row: Row, table_id: str) -> None:
        """Count one statement; statements of a document come together."""
        self.count += 1
        if row["doc_id"] != self.last_doc:
            self.n_docs += 1
            self.last_doc = row["doc_id"]
        if len(self.evidence) < MAX_EVIDENCE:
            self.evidence.append(evidence_of(row, table_id))


def evidence_of(row: Row, table_id: str) -> Row:
    """The evidence struct of a candidate row."""
    return {
        "doc_id": row["doc_id"],
        "element_id": row["element_id"],
        "table_id": table_id,
        "page": row["page"],
        "bbox_pt": row["bbox_pt"],
        "text": row["text"],
    }


def merge_statements(
    candidates: Iterable[Row], kept: Container[str], acronyms: Acronyms, rejects: Counter[str]
) -> dict[RelationKey, Statements]:
    """Asserted relations between kept entities, or from one to a literal."""
    merged: dict[RelationKey, Statements] = {}
    for row in candidates:
        head, tail = row["head_key"], row["tail_key"]
        if row["source"] != "rtl":
            head = acronyms.resolve(row["doc_id"], head)
            tail = acronyms.resolve(row["doc_id"], tail) if tail else ""
        if head not in kept or (tail and tail not in kept):
            rejects["endpoint_not_kept"] += 1
            continue
        if head == tail:
            rejects["self_relation"] += 1
            continue
        key = RelationKey(
            entity_id(head),
            row["predicate"],
            entity_id(tail) if tail else "",
            row["value"],
            row["unit"],
            "asserted",
            row["source"],
        )
        merged.setdefault(key, Statements()).add(row, row["table_id"])
    return merged


def relation_row(key: RelationKey, weight: float, statements: Statements) -> Row:
    """The row of `relations`."""
    return {
        "relation_id": key.relation_id,
        **key._asdict(),
        "weight": weight,
        "n_docs": statements.n_docs,
        "evidence": statements.evidence,
    }
