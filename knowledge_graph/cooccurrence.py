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
    """Pairs worth an edge: among the `per_entity` best of one of their ends.

    An entity that all its pairs would be refused to keeps one, with the partner that is met most
    often, so that it has a place in the graph. The other refused pairs are counted by reason.
    """
    scores = {pair: score(counted, pair) for pair in counted.pairs}
    good: dict[str, list[Pair]] = defaultdict(list)
    for pair, value in scores.items():
        if counted.pairs[pair] >= min_count and value >= min_score:
            for entity in pair:
                good[entity].append(pair)
    chosen: set[Pair] = set()
    for pairs in good.values():
        pairs.sort(key=lambda pair: (-scores[pair] * math.log1p(counted.pairs[pair]), pair))
        chosen.update(pairs[:per_entity])
    chosen |= _last_resorts(counted, {entity for pair in chosen for entity in pair})
    for pair in counted.pairs.keys() - chosen:
        if counted.pairs[pair] < min_count:
            rejects["pair_too_rare"] += 1
        else:
            chance = scores[pair] < min_score
            rejects["pair_by_chance" if chance else "pair_beyond_cap"] += 1
    return {pair: max(scores[pair], 0.0) for pair in sorted(chosen)}


def _last_resorts(counted: Cooccurrences, placed: set[str]) -> set[Pair]:
    """For each entity that is not `placed`, its pair with the most frequent partner."""
    offers: dict[str, tuple[int, str]] = {}
    for a, b in counted.pairs:
        for entity, partner in ((a, b), (b, a)):
            if entity not in placed:
                offer = (-counted.singles[partner], partner)
                offers[entity] = min(offers.get(entity, offer), offer)
    return {(min(a, b), max(a, b)) for a, (_, b) in offers.items()}
