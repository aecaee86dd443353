"""Shared sentences: the association measure against hand-made counts, and what does not count."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_graph.candidates import NOT_FROM_TEXT
from knowledge_graph.cooccurrence import (
    MAX_ENTITIES_PER_SENTENCE,
    count,
    score,
    sentences_of,
    strongest_pairs,
)


def mentions(*sentences: str) -> list[tuple[dict[str, Any], str]]:
    """One-letter entities, each letter of a sentence one mention at its own place."""
    return [
        (
            {
                "doc_id": "d",
                "element_id": f"e{number}",
                "sentence": 0,
                "char_start": 10 * place,
                "char_end": 10 * place + 5,
            },
            letter,
        )
        for number, sentence in enumerate(sentences)
        for place, letter in enumerate(sentence)
    ]


def test_score_is_normalised_mutual_information() -> None:
    counted = count(sentences_of(mentions("ab", "ab", "ac", "c", "d", "d", "d", "d")))
    joint, a, b = 2 / 8, 3 / 8, 2 / 8
    assert score(counted, ("a", "b")) == pytest.approx(
        math.log2(joint / (a * b)) / -math.log2(joint)
    )


def test_entities_that_never_part_score_one() -> None:
    counted = count(sentences_of(mentions("ab", "ab", "c", "d")))
    assert score(counted, ("a", "b")) == pytest.approx(1.0)


def test_a_term_inside_a_term_is_no_pair() -> None:
    inner = ({**mentions("a")[0][0], "char_start": 0, "char_end": 20}, "long")
    other = ({**mentions("a")[0][0], "char_start": 5, "char_end": 12}, "short")
    assert count(sentences_of([inner, other])).pairs == {}


def test_lists_and_mentions_outside_prose_are_left_out() -> None:
    crowd = "abcdefghijklmnopqrstuvwxyz"[: MAX_ENTITIES_PER_SENTENCE + 1]
    rows = [*mentions(crowd), ({**mentions("a")[0][0], "sentence": NOT_FROM_TEXT}, "z")]
    counted = count(sentences_of(rows))
    assert counted.pairs == {}
    assert counted.n_sentences == 1


def test_refused_pairs_are_counted_by_reason() -> None:
    texts = ("ab", "ab", "ab", "ac", "ac", "cd", "cd", "bc", "f", "f", "f")
    counted = count(sentences_of(mentions(*texts)))
    rejects: Counter[str] = Counter()
    assert list(strongest_pairs(counted, 2, 0.1, 20, rejects)) == [("a", "b"), ("c", "d")]
    assert rejects == {"pair_too_rare": 1, "pair_by_chance": 1}
    rejects.clear()
    assert list(strongest_pairs(counted, 1, -1.0, 1, rejects)) == [("a", "b"), ("c", "d")]
    assert rejects == {"pair_beyond_cap": 2}


def test_an_entity_alone_keeps_its_most_frequent_partner() -> None:
    counted = count(sentences_of(mentions("ab", "ab", "c", "xa", "xd", "d")))
    best = strongest_pairs(counted, 2, 0.1, 20, Counter())
    assert list(best) == [("a", "b"), ("a", "x"), ("d", "x")]


@given(st.lists(st.text(alphabet="abcdef", min_size=1, max_size=6), min_size=1, max_size=30))
def test_scores_stay_within_their_bounds(sentences: list[str]) -> None:
    counted = count(sentences_of(mentions(*sentences)))
    for pair in counted.pairs:
        assert -1.0 - 1e-9 <= score(counted, pair) <= 1.0 + 1e-9
