"""Acronyms with their long forms: Schwartz and Hearst (2003), and initials in running text.

`find_definitions` reads "long form (SF)" and "SF (long form)": the long form is the shortest
stretch of words before (or inside) the brackets that holds the short form's letters in order and
starts with its first letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from knowledge_graph.extractors.identifiers import Span

_BRACKETED: Final = re.compile(r"\(\s*([^()]{2,120}?)\s*\)")
_WORD: Final = re.compile(r"[^\s()]+")
_SHORT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.&/+-]*")


class AcronymDefinition(NamedTuple):
    """Where the short and the long form stand."""

    short: Span
    long: Span


def find_definitions(text: str) -> Iterator[AcronymDefinition]:
    """Definitions in order of their brackets."""
    for bracket in _BRACKETED.finditer(text):
        inside = re.split(r"[;,]\s", bracket.group(1))[0].strip()
        start = bracket.start(1)
        if is_short_form(inside):
            short = Span(start, start + len(inside), inside)
            long = _long_form_before(inside, text, bracket.start())
        else:
            found = _word_before(text, bracket.start())
            if found is None or not is_short_form(found.text):
                continue
            short = found
            long = _long_form_inside(found.text, bracket.group(1), start)
        if long is not None:
            yield AcronymDefinition(short, long)


def is_short_form(text: str) -> bool:
    """2-10 characters, one or two words' worth, a letter in it, not an ordinary word."""
    if not 2 <= len(text) <= 10 or not _SHORT.fullmatch(text):
        return False
    return any(map(str.isupper, text)) and not re.fullmatch(r"[A-Z][a-z]+", text)


def _long_form_before(short: str, text: str, end: int) -> Span | None:
    window = text[:end].rstrip()
    words = list(_WORD.finditer(window[max(0, len(window) - 240) :]))
    offset = max(0, len(window) - 240)
    size = len(short)
    limit = min(size + 5, size * 2)
    candidates = words[-limit:]
    if not candidates:
        return None
    start = offset + candidates[0].start()
    begin = _match_backwards(short, text[start : len(window)])
    if begin is None:
        return None
    return _checked(short, Span(start + begin, len(window), text[start + begin : len(window)]))


def _long_form_inside(short: str, inside: str, start: int) -> Span | None:
    begin = _match_backwards(short, inside)
    if begin != 0:
        return None
    return _checked(short, Span(start, start + len(inside), inside))


def _match_backwards(short: str, long: str) -> int | None:
    """Schwartz and Hearst's scan: the start of the shortest long form, or None."""
    position = len(long) - 1
    for index in range(len(short) - 1, -1, -1):
        char = short[index].lower()
        if not char.isalnum():
            continue
        while position >= 0 and (
            long[position].lower() != char
            or (index == 0 and position > 0 and long[position - 1].isalnum())
        ):
            position -= 1
        if position < 0:
            return None
        position -= 1
    return position + 1


def _checked(short: str, long: Span) -> Span | None:
    words = re.findall(r"[^\s-]+", long.text)
    letters = sum(map(str.isalnum, short))
    if len(long.text) <= len(short) or not words or short in words:
        return None
    if len(words) > min(letters + 5, letters * 2) or any(mark in long.text for mark in ":;"):
        return None
    return long


def _word_before(text: str, end: int) -> Span | None:
    match = re.search(r"([^\s()]+)\s*$", text[max(0, end - 40) : end])
    if match is None:
        return None
    offset = max(0, end - 40)
    return Span(offset + match.start(1), offset + match.end(1), match.group(1))
