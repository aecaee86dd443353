"""What an OCR engine reads from a picture, and how good that is.

Boxes are pixels of the picture as it was given to the engine; confidences go from 0 to 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from PIL.Image import Image

from corpus.parsed import Box
from corpus.parsers.text_quality import is_implausible
from workspace.errors import DsmError

# Below this a word counts against the reading: engines give garbage 0 to 0.5.
DOUBTFUL: Final = 0.5
CONVINCING: Final = 0.8
MIN_CONVINCING_LETTERS: Final = 20
# A word of so many letters is wider than high, unless its line runs up or down the page.
MIN_WIDE_LETTERS: Final = 4


class OcrError(DsmError):
    """The engine failed on this picture."""


class OcrWord(NamedTuple):
    text: str
    box: Box
    confidence: float


@dataclass(frozen=True)
class OcrLine:
    """Words from left to right; `block` numbers what the engine keeps together."""

    words: tuple[OcrWord, ...]
    block: int

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


class OcrEngine(Protocol):
    """One OCR library. `name` carries its version."""

    name: str

    def read(self, picture: Image, dpi: int) -> list[OcrLine]:
        """Lines of a greyscale picture in reading order. Raises `OcrError`."""
        ...

    def orientation(self, picture: Image, dpi: int) -> int | None:
        """Degrees clockwise that make the picture upright; None when it cannot tell."""
        ...


@dataclass(frozen=True)
class Reading:
    """One engine's result on the picture turned clockwise by `turn`, then by `skew` degrees."""

    lines: tuple[OcrLine, ...]
    turn: int
    engine: str
    skew: float = 0.0

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def confidence(self) -> float:
        """Mean over characters, 0 when nothing was read."""
        words = list(_words(self.lines))
        letters = sum(len(word.text) for word in words)
        return sum(len(word.text) * word.confidence for word in words) / letters if letters else 0.0

    @property
    def worth(self) -> float:
        """Characters weighted by how far their confidence is from doubtful."""
        return sum(
            len(word.text) * (word.confidence - DOUBTFUL) / (1 - DOUBTFUL)
            for word in _words(self.lines)
        )

    @property
    def is_sideways(self) -> bool:
        """Whether most longer words are higher than wide: engines read turned lines, too."""
        return is_sideways(_words(self.lines))

    @property
    def is_convincing(self) -> bool:
        return (
            self.confidence >= CONVINCING
            and sum(len(word.text) for word in _words(self.lines)) >= MIN_CONVINCING_LETTERS
            and not self.is_sideways
            and not is_implausible(self.text)
        )


def is_sideways(words: Iterable[OcrWord]) -> bool:
    long = [word.box for word in words if len(word.text) >= MIN_WIDE_LETTERS]
    tall = sum(1 for box in long if box.y1 - box.y0 > box.x1 - box.x0)
    return tall > len(long) / 2


def _words(lines: Sequence[OcrLine]) -> Iterable[OcrWord]:
    return (word for line in lines for word in line.words)


def type_sizes(lines: Sequence[OcrLine]) -> list[float]:
    """Font size of each line in pixels, alike for lines that were set alike.

    A line's box ends at its letters, so that its height says little before it is known whether
    some of them rise or fall. Sizes within an eighth of a more frequent one are noise.
    """
    sizes = [_type_size(line) for line in lines]
    settled: list[float] = []
    for size in sizes:
        near = [other for other in sizes if abs(other - size) <= size / 8]
        settled.append(statistics.median_low(near))
    # The second pass joins what the first drew close.
    return [
        max((other for other in settled if abs(other - size) <= size / 8), key=settled.count)
        for size in settled
    ]


def _type_size(line: OcrLine) -> float:
    heights = []
    for word in line.words:
        share = _ASCENT if any(char in _HIGH or char.isupper() for char in word.text) else _X_HEIGHT
        share += _DESCENT if any(char in _LOW for char in word.text) else 0
        heights.append((word.box.y1 - word.box.y0) / share)
    return statistics.median(heights)


# Shares of the font size, alike in the usual book and screen types.
_ASCENT: Final = 0.71
_X_HEIGHT: Final = 0.5
_DESCENT: Final = 0.21
_HIGH: Final = frozenset("bdfhklti0123456789()[]{}/|'\"!?")
_LOW: Final = frozenset("gjpqyQ,;()[]{}/|")
