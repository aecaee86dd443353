"""Columns of the graph tables: what `build_graph` writes and the later stages read.

A document's contribution is its mentions and the evidence of its relations; entities and
communities are aggregates over them. Every fact points back to element, page and box.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from corpus.schema import BOX, STRINGS

ENTITIES: Final = pa.schema(
    [
        ("entity_id", pa.string()),  # derived from norm_key
        ("name", pa.string()),  # most frequent surface form
        ("norm_key", pa.string()),
        ("type", pa.string()),  # module port parameter identifier attribute term, by vote
        ("aliases", STRINGS),  # other surface forms, most frequent first
        ("n_mentions", pa.int32()),
        ("n_docs", pa.int32()),
        ("degree", pa.int32()),
        ("pagerank", pa.float64()),
    ]
)

MENTIONS: Final = pa.schema(
    [
        ("mention_id", pa.string()),
        ("entity_id", pa.string()),
        ("doc_id", pa.string()),
        ("element_id", pa.string()),
        ("page", pa.int32()),
        ("bbox_pt", BOX),
        ("char_start", pa.int32()),  # in the element's text, -1 when not from text
        ("char_end", pa.int32()),
        ("surface", pa.string()),
        # noun_chunk | identifier | acronym | module | port | parameter | instance |
        # table_header | table_key
        ("kind", pa.string()),
    ]
)

EVIDENCE: Final = pa.struct(
    [
        ("doc_id", pa.string()),
        ("element_id", pa.string()),
        ("table_id", pa.string()),  # "" when the evidence is a sentence or source line
        ("page", pa.int32()),
        ("bbox_pt", BOX),
        ("text", pa.string()),  # the sentence, table row or source line
    ]
)

RELATIONS: Final = pa.schema(
    [
        ("relation_id", pa.string()),
        ("head_id", pa.string()),
        ("predicate", pa.string()),  # has_port, has_parameter, instantiates, is_a, <table header>
        ("tail_id", pa.string()),  # entity, "" when the tail is a literal
        ("value", pa.string()),  # literal tail (number, text), "" when the tail is an entity
        ("unit", pa.string()),
        ("kind", pa.string()),  # asserted | co_occurs
        ("source", pa.string()),  # table | rtl | sentence
        ("weight", pa.float64()),
        ("n_docs", pa.int32()),
        ("evidence", pa.list_(EVIDENCE)),  # at most 5, in document order
    ]
)

COMMUNITIES: Final = pa.schema(
    [
        ("community_id", pa.string()),
        ("level", pa.int32()),  # 0 = coarsest
        ("parent_id", pa.string()),
        ("size", pa.int32()),
        ("label", pa.string()),
        ("summary", pa.string()),
        ("entity_ids", STRINGS),
    ]
)

TABLES_BY_NAME: Final[dict[str, pa.Schema]] = {
    "entities": ENTITIES,
    "mentions": MENTIONS,
    "relations": RELATIONS,
    "communities": COMMUNITIES,
}
