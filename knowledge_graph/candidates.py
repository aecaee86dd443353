"""What extractors return, and how it lies in a shard's work folder until `publish`.

Candidates carry keys (`knowledge_graph.names`), not ids: which keys are one entity, and which are
worth an entity, is known only when all documents have been read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from corpus.schema import BOX

NOT_FROM_TEXT: Final = -1
# The category of a text that belongs to an element but is not its text.
CAPTION: Final = "caption"


class TextUnit(NamedTuple):
    """The text of one element, or the caption of one table (`table_id` set)."""

    doc_id: str
    element_id: str
    page: int
    order: int
    bbox_pt: list[float] | None
    category: str
    text: str


class Mention(NamedTuple):
    """One place where a name stands. Columns of the work table `mentions`, in this order."""

    doc_id: str
    page: int
    order: int
    element_id: str
    char_start: int
    char_end: int
    sentence: int  # of the element, NOT_FROM_TEXT when not from prose
    kind: str
    key: str
    name: str  # how the entity is to be called if this mention decides
    surface: str
    slot: int  # tells mentions apart that share all of the above (row and column of a cell)
    bbox_pt: list[float] | None


class Relation(NamedTuple):
    """One statement with its evidence. `tail_key` or `value` is empty."""

    doc_id: str
    page: int
    order: int
    element_id: str
    table_id: str
    head_key: str
    predicate: str
    tail_key: str
    value: str
    unit: str
    source: str  # table | rtl | sentence
    text: str
    bbox_pt: list[float] | None


class Sentence(NamedTuple):
    """A sentence with at least two mentions: evidence for co-occurrence."""

    doc_id: str
    page: int
    order: int
    element_id: str
    sentence: int
    text: str
    bbox_pt: list[float] | None


class Definition(NamedTuple):
    """`short` was introduced as the acronym of `long` in this element."""

    doc_id: str
    element_id: str
    short_key: str
    long_key: str
    short: str
    long: str


@dataclass
class Extraction:
    """All that was found in a piece of work, and what was refused by reason code."""

    mentions: list[Mention] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)

    def add(self, other: Extraction) -> None:
        """Append everything of `other`."""
        self.mentions += other.mentions
        self.relations += other.relations
        self.sentences += other.sentences
        self.definitions += other.definitions
        self.rejects.update(other.rejects)


_WHERE: Final[list[tuple[str, pa.DataType]]] = [
    ("doc_id", pa.string()),
    ("page", pa.int32()),
    ("order", pa.int32()),
    ("element_id", pa.string()),
]

WORK_TABLES: Final[dict[str, pa.Schema]] = {
    "mentions": pa.schema(
        [
            *_WHERE,
            ("char_start", pa.int32()),
            ("char_end", pa.int32()),
            ("sentence", pa.int32()),
            ("kind", pa.string()),
            ("key", pa.string()),
            ("name", pa.string()),
            ("surface", pa.string()),
            ("slot", pa.int32()),
            ("bbox_pt", BOX),
        ]
    ),
    "relations": pa.schema(
        [
            *_WHERE,
            ("table_id", pa.string()),
            ("head_key", pa.string()),
            ("predicate", pa.string()),
            ("tail_key", pa.string()),
            ("value", pa.string()),
            ("unit", pa.string()),
            ("source", pa.string()),
            ("text", pa.string()),
            ("bbox_pt", BOX),
        ]
    ),
    "sentences": pa.schema(
        [*_WHERE, ("sentence", pa.int32()), ("text", pa.string()), ("bbox_pt", BOX)]
    ),
    "definitions": pa.schema(
        [
            ("doc_id", pa.string()),
            ("element_id", pa.string()),
            ("short_key", pa.string()),
            ("long_key", pa.string()),
            ("short", pa.string()),
            ("long", pa.string()),
        ]
    ),
}
