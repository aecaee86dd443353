"""Sentences of a text, with their places in it. Punctuation rules, no model; abbreviations are
English, Chinese and Japanese full stops are known.

A full stop ends a sentence when a space and a capital, digit or quote follow, unless the word
before it is an abbreviation, an initial or a number of a list.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final, NamedTuple

_END: Final = re.compile(
    r"[.!?][\"'”’)\]]*(?=\s+[\"'“‘(\[]?[A-ZÀ-ÖØ-ÞΑ-ΩА-Я0-9])|[。！？][\"”’」』）]*|\n\s*\n"
)
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|resp|no|nos|fig|figs|eq|eqs|sec|sect|ch|ref|refs|tab|vol|"
    r"pp|p|ed|eds|dr|mr|mrs|ms|prof|inc|ltd|co|corp|st|dept|est|max|min|typ|nom|temp|rev|ver|"
    r"u\.s|a\.k\.a|w\.r\.t|et al|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)|"
    # An initial, but not the unit of a value; the number of a list item.
    r"(?:^|(?<!\d)\s)\(?[A-Za-z]|(?:^|\n)\s*\(?\d{1,3})$",
    re.IGNORECASE,
)
# Abbreviations that end a sentence as well, so a capitalised word after them does begin one.
_OFTEN_LAST: Final = re.compile(r"\b(?:etc|max|min|typ|no|co|st|ed|est|temp)$", re.IGNORECASE)
_LOOK_BACK: Final = 12


class Sentence(NamedTuple):
    """`text` is the stripped slice [start, end) of the source."""

    text: str
    start: int
    end: int


def split_sentences(text: str) -> list[Sentence]:
    """Sentences in order; together they hold all but the spaces between them."""
    borders = [0]
    for match in _END.finditer(text):
        if match[0].startswith(".") and not _is_end(text, match.start(), match.end()):
            continue
        borders.append(match.end())
    borders.append(len(text))
    found = []
    for start, end in pairwise(borders):
        part = text[start:end]
        stripped = part.strip()
        if stripped:
            offset = start + len(part) - len(part.lstrip())
            found.append(Sentence(stripped, offset, offset + len(stripped)))
    return found


def _is_end(text: str, stop: int, after: int) -> bool:
    before = text[max(0, stop - _LOOK_BACK) : stop]
    if not _ABBREVIATION.search(before):
        return True
    follows = text[after : after + 40].lstrip()
    return bool(_OFTEN_LAST.search(before)) and re.match(r"[A-Z][a-z]+\s", follows) is not None
