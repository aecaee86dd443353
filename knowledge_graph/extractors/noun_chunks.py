"""Noun chunks trimmed to terms: "each of the new clock generators" -> "clock generators".

A parsed sentence in, terms out. Articles, pronouns, counts and general adjectives at the edges go;
what is left is a term unless it is too long, a number, or made of words that name nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from knowledge_graph.generic_terms import is_generic
from knowledge_graph.names import is_quantity, words_key

MAX_WORDS: Final = 7
# Adjectives that compare or count instead of naming a kind.
_LOOSE_WORDS: Final = """
such other several different various many new additional certain particular specific given
following previous next above below same similar first second third last own entire whole
respective corresponding available possible necessary main typical common single multiple few
current present more most less least both all each every another any some no only very
"""
_LOOSE: Final = frozenset(_LOOSE_WORDS.split())
_TRIMMED_POS: Final = frozenset(
    {"DET", "PRON", "PUNCT", "SPACE", "CCONJ", "ADP", "PART", "SYM", "SCONJ"}
)
_TERM: Final = re.compile(r"[\w][\w\s.,'’&+/()#°µΩα-ω-]*", re.UNICODE)


class Term(NamedTuple):
    """A term in a parsed text: characters of that text, and the index of its head token."""

    start: int
    end: int
    text: str
    root: int


def find_terms(parsed: Any, rejects: Counter[str]) -> Iterator[Term]:
    """Terms of a spaCy `Doc` or sentence `Span`, left to right; refusals are counted."""
    for chunk in parsed.noun_chunks:
        tokens = _trim(list(chunk))
        if not tokens:
            rejects["generic_term"] += 1
            continue
        start, end = tokens[0].idx, tokens[-1].idx + len(tokens[-1].text)
        text = parsed.doc.text[start:end]
        reason = refuse(text, len(tokens))
        if reason:
            rejects[reason] += 1
            continue
        yield Term(start, end, text, chunk.root.i)


def refuse(text: str, n_words: int) -> str:
    """The reason code for which `text` is no term, "" when it is one."""
    letters = sum(map(str.isalpha, text))
    if letters == 0:
        return "number_only"
    if len(text) < 2 or letters < 2:
        return "too_short"
    if n_words > MAX_WORDS:
        return "too_long"
    if is_quantity(text):
        return "number_only"
    if not _TERM.fullmatch(text) or 2 * letters < len(text):
        return "symbols"
    # An abbreviation that reads like a stop word (CAN, IT) is a name when written in capitals.
    if is_generic(words_key(text)) and not (text.isupper() and len(text) <= 5):
        return "generic_term"
    return ""


def _trim(tokens: list[Any]) -> list[Any]:
    tokens = _after_break(tokens)
    while tokens and _is_loose(tokens, 0):
        tokens = tokens[1:]
    while tokens and (tokens[-1].pos_ in _TRIMMED_POS or tokens[-1].text in {"'s", "’s"}):
        tokens = tokens[:-1]
    return tokens


def _after_break(tokens: list[Any]) -> list[Any]:
    """The part after the last bracket, bullet or colon inside the chunk."""
    for index in range(len(tokens) - 1, -1, -1):
        if tokens[index].text in {"(", ")", "[", "]", ":", ";", "•", "–", "—", "|", '"'}:
            return tokens[index + 1 :]
    return tokens


def _is_loose(tokens: list[Any], index: int) -> bool:
    token = tokens[index]
    if token.pos_ in _TRIMMED_POS or token.lower_ in _LOOSE:
        return True
    # A count ("three modes"), but not the "32" of "32-bit".
    followed = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return bool(token.like_num) and followed != "-"
