"""The most central sentences of a set: PageRank over TF-IDF similarity (TextRank)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_DAMPING: Final = 0.85
_ROUNDS: Final = 60
_TOO_SIMILAR: Final = 0.6
_LEAD: Final = 0.5  # extra restart weight of the first sentence, halved by the fifth


def rank(sentences: Sequence[str], count: int) -> list[int]:
    """Indexes of up to `count` sentences, best first, none nearly repeating a better one.

    Deterministic: scores are rounded, and the earlier sentence wins a tie.
    """
    if len(sentences) <= 1:
        return list(range(min(len(sentences), count)))
    similarity = _similarity(sentences)
    if similarity is None:
        return list(range(min(len(sentences), count)))
    scores = _page_rank(similarity)
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
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        vectors = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(sentences)
    except ValueError:  # an empty vocabulary
        return None
    return (vectors @ vectors.T).toarray()


def _page_rank(similarity: Any) -> list[float]:
    import numpy as np

    weights = similarity.copy()
    np.fill_diagonal(weights, 0.0)
    totals = weights.sum(axis=1, keepdims=True)
    n = len(weights)
    steps = np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), 1.0 / n)
    # Writers say first what matters, so the walk restarts more often near the beginning.
    restart = 1.0 + _LEAD / (1.0 + 0.25 * np.arange(n))
    restart /= restart.sum()
    scores = restart.copy()
    for _ in range(_ROUNDS):
        scores = (1 - _DAMPING) * restart + _DAMPING * (steps.T @ scores)
    return [float(score) for score in scores]
