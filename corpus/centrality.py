"""The most central sentences of a set: LexRank without a threshold, weighted by position.

PageRank over TF-IDF cosine similarities (Erkan and Radev 2004, the continuous form), times a weight
for where the sentence stands: writers say first what matters. `benchmarks/ingest/summaries.py`
chose it over lead, TextRank, centroid and MMR forms. Cost is quadratic in the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

_DAMPING: Final = 0.85
_ROUNDS: Final = 60
_TOO_SIMILAR: Final = 0.6
_SECTION_DECAY: Final = 10.0  # a document's last section weighs a tenth of its first
_PLACE_DECAY: Final = 0.25  # the fifth sentence of a section weighs half of its first


def position_weight(section: int, n_sections: int, place: int) -> float:
    """Weight of the sentence at `place` (from 0) of a section; 1 for the first of all."""
    return 1.0 / ((1.0 + _SECTION_DECAY * section / n_sections) * (1.0 + _PLACE_DECAY * place))


def rank(sentences: Sequence[str], count: int, weights: Sequence[float]) -> list[int]:
    """Indexes of up to `count` sentences, best first, none nearly repeating a better one.

    Deterministic: scores are rounded, and the earlier sentence wins a tie.
    """
    if len(sentences) <= 1:
        return list(range(min(len(sentences), count)))
    similarity = _similarity(sentences)
    if similarity is None:
        return list(range(min(len(sentences), count)))
    scores = [s * w for s, w in zip(_page_rank(similarity), weights, strict=True)]
    order = sorted(range(len(sentences)), key=lambda index: (-round(scores[index], 9), index))
    chosen: list[int] = []
    for index in order:
        if len(chosen) == count:
            break
        if all(similarity[index, other] < _TOO_SIMILAR for other in chosen):
            chosen.append(index)
    return chosen


def _similarity(sentences: Sequence[str]) -> Any | None:
    """Cosine similarities, or None when the sentences have no words in common use."""
    try:
        vectors = _vectorizer().fit_transform(sentences)
    except ValueError:  # an empty vocabulary
        return None
    return (vectors @ vectors.T).toarray()


@lru_cache(maxsize=1)
def _vectorizer() -> Any:
    """One for all: a new one checks its list of stop words for 5 ms."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(stop_words="english", sublinear_tf=True)


def _page_rank(similarity: Any) -> list[float]:
    import numpy as np

    weights = similarity.copy()
    np.fill_diagonal(weights, 0.0)
    totals = weights.sum(axis=1, keepdims=True)
    n = len(weights)
    steps = np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), 1.0 / n)
    scores = np.full(n, 1.0 / n)
    for _ in range(_ROUNDS):
        scores = (1 - _DAMPING) / n + _DAMPING * (steps.T @ scores)
    return [float(score) for score in scores]
