"""Entities that share sentences more often than chance: `co_occurs` relations.

Weight is the normalised pointwise mutual information (Bouma 2009), from 0 (chance) to 1 (never
apart), over sentences with at least one entity. Kept apart from asserted relations: sharing a
sentence states nothing. Pairs that overlap in the text (a term inside a term) do not count, nor
do sentences with too many entities, which are lists.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from knowledge_graph.candidates import NOT_FROM_TEXT
from workspace.shards import Row

MAX_ENTITIES_PER_SENTENCE: Final = 15

Pair = tuple[str, str]


class SentenceEntities(NamedTuple):
    """The entities of one sentence, and those pairs of them that do not overlap."""

    doc_id: str
    element_id: str
    sentence: int
    entity_ids: frozenset[str]
    pairs: frozenset[Pair]


class Cooccurrences(NamedTuple):
    """Counts over all sentences."""

    n_sentences: int
    singles: Counter[str]
    pairs: Counter[Pair]


def sentences_of(mentions: Iterable[tuple[Row, str]]) -> Iterator[SentenceEntities]:
    """Group (mention candidate, entity id) pairs, in order of place, by sentence."""
    prose = (item for item in mentions if item[0]["sentence"] != NOT_FROM_TEXT)
    for (doc_id, element_id, number), group in itertools.groupby(
        prose, key=lambda item: (item[0]["doc_id"], item[0]["element_id"], item[0]["sentence"])
    ):
        spans: dict[str, tuple[int, int]] = {}
        for row, entity in group:
            spans.setdefault(entity, (row["char_start"], row["char_end"]))
        yield SentenceEntities(
            doc_id, element_id, number, frozenset(spans), frozenset(_pairs(spans))
        )


def _pairs(spans: Mapping[str, tuple[int, int]]) -> Iterator[Pair]:
    if len(spans) > MAX_ENTITIES_PER_SENTENCE:
        return
    for a, b in itertools.combinations(sorted(spans), 2):
        (a_start, a_end), (b_start, b_end) = spans[a], spans[b]
        if a_end <= b_start or b_end <= a_start:
            yield a, b


def count(sentences: Iterable[SentenceEntities]) -> Cooccurrences:
    """Sentences by entity and by pair."""
    counted = Cooccurrences(0, Counter(), Counter())
    total = 0
    for sentence in sentences:
        total += 1
        counted.singles.update(sentence.entity_ids)
        counted.pairs.update(sentence.pairs)
    return counted._replace(n_sentences=total)


def score(counted: Cooccurrences, pair: Pair) -> float:
    """Normalised pointwise mutual information of a pair that occurs."""
    n = counted.n_sentences
    joint = counted.pairs[pair] / n
    if joint >= 1:
        return 0.0  # in every sentence there is: nothing to learn
    a, b = (counted.singles[entity] / n for entity in pair)
    return math.log(joint / (a * b)) / -math.log(joint)


def strongest_pairs(
    counted: Cooccurrences, min_count: int, min_score: float, per_entity: int, rejects: Counter[str]
) -> dict[Pair, float]:
    """Pairs worth an edge: among the `per_entity` best of one of their ends."""
    scored: dict[str, list[tuple[float, int, Pair]]] = defaultdict(list)
    for pair, together in counted.pairs.items():
        if together < min_count:
            rejects["pair_too_rare"] += 1
            continue
        value = score(counted, pair)
        if value < min_score:
            rejects["pair_by_chance"] += 1
            continue
        for entity in pair:
            scored[entity].append((value, together, pair))
    best: dict[Pair, float] = {}
    for items in scored.values():
        items.sort(key=lambda item: (-item[0] * math.log1p(item[1]), item[2]))
        best.update((pair, value) for value, _, pair in items[:per_entity])
    kept_out = sum(len(items) for items in scored.values()) // 2 - len(best)
    rejects["pair_beyond_cap"] += max(kept_out, 0)
    return dict(sorted(best.items()))
