"""Whether text reads like language: tells extraction garbage and bad OCR from real text.

Two tests. Characters: replacements, private use, controls. Letters: the mean log probability of a
word's letter pairs under the best-fitting Latin-script language of langdetect's profiles (n-gram
counts of Wikipedia, 32 languages). A font without a map to Unicode, or with a wrong one, yields
letters that are fluent but shifted or permuted; such text scores below -4.4 where identifiers,
names of cells and formulas stay above -4.3 and prose of any of these languages is near -2.6.

Says nothing about other scripts, and nothing about texts of a few words.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Final

# From this share of unreadable characters on, the page's text is not to be trusted.
GARBLED_SHARE: Final = 0.1
MIN_GARBLED_CHARS: Final = 20
_BAD: Final = frozenset({"Cc", "Cn", "Cs"})
# Alone they are bullets and the pieces of large brackets in formulas.
_UNMAPPED_RUN: Final = re.compile(r"[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]{3,}")

# The more words, the surer the mean.
MIN_WORDS: Final = 12
SURE_WORDS: Final = 30
IMPLAUSIBLE_FEW: Final = -5.0
IMPLAUSIBLE: Final = -4.5
PLAUSIBLE: Final = -4.0
MAX_WORDS: Final = 400
MIN_LATIN_SHARE: Final = 0.6

_LANGUAGES: Final = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "da", "no", "fi", "cs", "hu", "ro"),
    *("tr", "hr", "sk", "sl", "ca", "et", "lt", "lv", "id", "vi", "af", "cy", "sq", "so", "sw"),
    *("tl",),
)
_WORD: Final = re.compile(r"[^\W\d_]{3,40}")
_LATIN: Final = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def is_garbled(text: str) -> bool:
    """Whether too many characters are unreadable, or the words are no language's."""
    return _has_bad_characters(text) or is_implausible(text)


def is_implausible(text: str) -> bool:
    """Whether the words, where there are enough, have letters that no language puts together."""
    words = _latin_words(text)
    if len(words) < MIN_WORDS:
        return False
    limit = IMPLAUSIBLE if len(words) >= SURE_WORDS else IMPLAUSIBLE_FEW
    return _best_mean(words, enough=limit) < limit


def plausibility(text: str) -> float | None:
    """Mean log probability of a letter after the one before it; None with too few Latin words."""
    words = _latin_words(text)
    return _best_mean(words, enough=0.0) if len(words) >= MIN_WORDS else None


def readable_letters(text: str) -> int:
    """Letters in words that each look like language; words of other scripts count in full."""
    total = 0
    for word in _WORD.findall(text.lower()):
        if not _LATIN.match(word) or _best_mean([word], enough=PLAUSIBLE) >= PLAUSIBLE:
            total += len(word)
    return total


def _has_bad_characters(text: str) -> bool:
    marks = sum(1 for char in text if not char.isspace())
    bad = sum(len(run) for run in _UNMAPPED_RUN.findall(text))
    bad += sum(1 for char in text if unicodedata.category(char) in _BAD and not char.isspace())
    return marks >= MIN_GARBLED_CHARS and bad >= GARBLED_SHARE * marks


def _latin_words(text: str) -> list[str]:
    """Different words of Latin letters in order; none when another script prevails."""
    letters = [char for char in text if char.isalpha()]
    latin = sum(1 for char in letters if _LATIN.match(char))
    if not letters or latin < MIN_LATIN_SHARE * len(letters):
        return []
    # A word counts once: libraries repeat the names of their cells on every line.
    found = dict.fromkeys(_WORD.findall(text.lower()))
    return [word for word in found if all(map(_LATIN.match, word))][:MAX_WORDS]


def _best_mean(words: list[str], enough: float) -> float:
    """The best language's score; stops at the first that reaches `enough`."""
    best = -math.inf
    for code in _LANGUAGES:
        best = max(best, _mean(_pairs(code), words))
        if best >= enough:
            break
    return best


def _mean(pairs: _LetterPairs, words: list[str]) -> float:
    total, count = 0.0, 0
    for word in words:
        framed = f" {word} "
        total += sum(
            pairs.log_probability(first, second) for first, second in itertools.pairwise(framed)
        )
        count += len(framed) - 1
    return total / count


class _LetterPairs:
    """How likely one letter follows another in a language; a blank is a word's border."""

    def __init__(self, counts: dict[str, int]) -> None:
        folded: dict[str, int] = {}
        for gram, count in counts.items():
            folded[gram.lower()] = folded.get(gram.lower(), 0) + count
        self._counts = folded
        self._borders = sum(n for gram, n in folded.items() if len(gram) == 2 and gram[0] == " ")
        self._known: dict[str, float] = {}

    def log_probability(self, first: str, second: str) -> float:
        pair = first + second
        if pair not in self._known:
            before = self._borders if first == " " else self._counts.get(first, 1)
            # Half a count for what was never seen, spread over some sixty letters.
            self._known[pair] = math.log((self._counts.get(pair, 0) + 0.5) / (before + 30))
        return self._known[pair]


@cache
def _pairs(language: str) -> _LetterPairs:
    import langdetect

    path = Path(langdetect.__file__).parent / "profiles" / language
    return _LetterPairs(json.loads(path.read_text(encoding="utf-8"))["freq"])
