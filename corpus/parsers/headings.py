"""Which paragraphs of a PDF are headings, and how deep.

The document's own bookmarks decide where there are any; otherwise numbering ("3.2 Timing"), type
size against the body's, and bold type. Levels count from 1.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from corpus.parsers.paragraphs import Paragraph
from corpus.parsers.pdf_raw import Bookmark

MAX_CHARS: Final = 150
MAX_LEVEL: Final = 6
LARGER: Final = 1.12
# With at least this many bookmarks, bold type alone makes no heading.
ENOUGH_BOOKMARKS: Final = 5
_NUMBER: Final = re.compile(r"^(?:(\d{1,2}(?:\.\d{1,3}){0,4})|([A-Z](?:\.\d{1,3}){1,4}))\.?\s+\S")
_CHAPTER: Final = re.compile(r"^(?:chapter|appendix|part)\s+[\dA-Z]+\b", re.IGNORECASE)
_LEADER: Final = re.compile(r"(?:\.\s?){4,}")
_BULLET: Final = re.compile(r"^[^\w\s(\"'“]\s*\S")
_PROSE_END: Final = re.compile(r"[.,;:]$")


def is_leader(text: str) -> bool:
    """A line of a table of contents: dots up to a page number."""
    return bool(_LEADER.search(text))


class HeadingModel:
    """Learns a document's body size and heading sizes, then judges its paragraphs."""

    def __init__(
        self, paragraphs: Sequence[tuple[int, Paragraph]], bookmarks: Sequence[Bookmark]
    ) -> None:
        self._titles: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for mark in bookmarks:
            self._titles[_normalise(mark.title)].append((mark.page, mark.level))
        self._few_bookmarks = len(bookmarks) < ENOUGH_BOOKMARKS
        self.body_size = _body_size(paragraph for _, paragraph in paragraphs)
        self._level_of_size = self._learn(paragraphs)

    def level(self, page: int, paragraph: Paragraph) -> int:
        """Depth from 1, or 0 when it is no heading."""
        text = paragraph.text
        if not _could_be_heading(paragraph, text):
            return 0
        marked = self._bookmark_level(page, text)
        if marked:
            return marked
        if not self._stands_out(paragraph, text):
            return 0
        return self._numbered_level(text) or self._sized_level(paragraph)

    def _bookmark_level(self, page: int, text: str) -> int:
        near = [
            (abs(at - page), level)
            for at, level in self._titles.get(_normalise(text), ())
            if abs(at - page) <= 1
        ]
        return min(min(near)[1], MAX_LEVEL) if near else 0

    def _stands_out(self, paragraph: Paragraph, text: str) -> bool:
        if paragraph.size >= LARGER * self.body_size:
            return not _PROSE_END.search(text) or bool(_NUMBER.match(text))
        if not paragraph.bold or paragraph.size < 0.95 * self.body_size:
            return False
        if self._numbered_level(text):
            return True
        short = len(paragraph.lines) == 1 and len(text.split()) <= 10
        return self._few_bookmarks and short and not _PROSE_END.search(text)

    @staticmethod
    def _numbered_level(text: str) -> int:
        if _CHAPTER.match(text):
            return 1
        match = _NUMBER.match(text)
        if not match:
            return 0
        return min((match[1] or match[2]).count(".") + 1, MAX_LEVEL)

    def _sized_level(self, paragraph: Paragraph) -> int:
        size = round(paragraph.size)
        if size in self._level_of_size:
            return self._level_of_size[size]
        return min(1 + sum(1 for known in self._level_of_size if known > size), MAX_LEVEL)

    def _learn(self, paragraphs: Sequence[tuple[int, Paragraph]]) -> dict[int, int]:
        """Level of each heading size: as bookmarks and numbers say, else by rank."""
        votes: dict[int, Counter[int]] = defaultdict(Counter)
        for page, paragraph in paragraphs:
            text = paragraph.text
            if not _could_be_heading(paragraph, text):
                continue
            marked = self._bookmark_level(page, text)
            if not marked and not self._stands_out(paragraph, text):
                continue
            votes[round(paragraph.size)][marked or self._numbered_level(text)] += 1
        levels: dict[int, int] = {}
        deepest = 0
        for size in sorted(votes, reverse=True):
            known = {level: n for level, n in votes[size].items() if level}
            if known:
                level = min(known, key=lambda level: (-known[level], level))
            else:
                level = min(deepest + 1, MAX_LEVEL)
            levels[size] = level
            deepest = max(deepest, level)
        return levels


def _could_be_heading(paragraph: Paragraph, text: str) -> bool:
    return (
        paragraph.upright
        and not paragraph.mono
        and len(paragraph.lines) <= 3
        and 2 <= len(text) <= MAX_CHARS
        and any(char.isalpha() for char in text)
        and not is_leader(text)
        and not _BULLET.match(text)
    )


def _body_size(paragraphs: Iterable[Paragraph]) -> float:
    """The size in which most characters are set."""
    weights: Counter[float] = Counter()
    for paragraph in paragraphs:
        for line in paragraph.lines:
            if not line.mono:
                weights[line.size] += len(line.text)
    if not weights:
        return 10.0
    return min(weights, key=lambda size: (-weights[size], size))


def _normalise(title: str) -> str:
    """Letters and digits alone, without the number in front."""
    bare = re.sub(r"^(?:chapter|appendix|section)?\s*[\dA-Z]{0,2}(?:\.\d+)*\.?\s+", "", title)
    return re.sub(r"[\W_]+", "", bare or title).casefold()
