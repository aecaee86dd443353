"""Prose -> mentions (terms, identifiers, acronyms), statements and the sentences that show them.

One parse per text serves terms and statements. Without `noun_chunk` and `sentence` among the
extractors nothing is parsed, and sentences end at full stops.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from knowledge_graph.candidates import (
    CAPTION,
    NOT_FROM_TEXT,
    Definition,
    Extraction,
    Mention,
    Relation,
    Sentence,
    TextUnit,
)
from knowledge_graph.extractors import language
from knowledge_graph.extractors.acronyms import find_definitions
from knowledge_graph.extractors.identifiers import find_identifiers, find_short_forms
from knowledge_graph.extractors.noun_chunks import find_terms, refuse
from knowledge_graph.extractors.statements import find_statements
from knowledge_graph.names import clean_surface, identifier_key, norm_key, words_key

# Titles and captions name things; only whole sentences state something.
_STATING: Final = frozenset({"NarrativeText", "ListItem", "UncategorizedText"})
MAX_SENTENCE_CHARS: Final = 1_000
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])")


class _Name(NamedTuple):
    """A mention inside one unit, before it has a sentence."""

    start: int
    end: int
    kind: str
    key: str


class _Parsed(NamedTuple):
    """What the parser says of one unit: sentence borders, terms, statements."""

    sentences: list[tuple[int, int]]
    terms: list[_Name]
    statements: list[tuple[str, str, str, int]]  # head key, predicate, tail key, sentence


def extract_prose(units: Iterable[TextUnit], extractors: Collection[str]) -> Extraction:
    """Mentions, relations, sentences and acronym definitions of `units`, in their order."""
    found = Extraction()
    wanted = list(units)
    parses = _parse(wanted, extractors, found.rejects)
    for unit in wanted:
        parsed = parses.get(unit.element_id) or _Parsed(_split_sentences(unit.text), [], [])
        names = list(parsed.terms)
        if "identifier" in extractors:
            names += [
                _Name(s.start, s.end, "identifier", identifier_key(s.text))
                for s in find_identifiers(unit.text)
            ]
        if "acronym" in extractors:
            names += _acronyms(unit, found)
        _collect(unit, parsed, _settle(names), found)
    return found


def _parse(
    units: list[TextUnit], extractors: Collection[str], rejects: Counter[str]
) -> dict[str, _Parsed]:
    if not {"noun_chunk", "sentence"} & set(extractors):
        return {}
    parses: dict[str, _Parsed] = {}
    for unit, offset, doc in language.parse(units):
        parsed = parses.setdefault(unit.element_id, _Parsed([], [], []))
        first = len(parsed.sentences)
        parsed.sentences.extend(
            (offset + sentence.start_char, offset + sentence.end_char) for sentence in doc.sents
        )
        terms = {term.root: term for term in find_terms(doc, rejects)}
        keys = {root: norm_key(term.text) for root, term in terms.items()}
        if "noun_chunk" in extractors:
            parsed.terms.extend(
                _Name(offset + term.start, offset + term.end, "noun_chunk", keys[root])
                for root, term in terms.items()
            )
        if "sentence" in extractors and unit.category in _STATING:
            parsed.statements.extend(_statements(doc, keys, first, rejects))
    return parses


def _statements(
    doc: Any, keys: dict[int, str], first: int, rejects: Counter[str]
) -> Iterator[tuple[str, str, str, int]]:
    sentence_of = {
        token.i: first + index for index, sentence in enumerate(doc.sents) for token in sentence
    }
    for statement in find_statements(doc, keys, sentence_of, rejects):
        head, tail = keys[statement.head], keys[statement.tail]
        if head and tail and head != tail:
            yield head, statement.predicate, tail, statement.sentence


def _acronyms(unit: TextUnit, found: Extraction) -> Iterator[_Name]:
    """Short forms wherever they stand; long forms where they are introduced."""
    shorts = {(s.start, s.end): s.text for s in find_short_forms(unit.text)}
    for definition in find_definitions(unit.text):
        short, long = definition
        shorts[(short.start, short.end)] = short.text
        short_key, long_key = norm_key(short.text), words_key(long.text)
        if long_key and short_key != long_key:
            found.definitions.append(
                Definition(
                    unit.doc_id,
                    unit.element_id,
                    short_key,
                    long_key,
                    short.text,
                    clean_surface(long.text),
                )
            )
            yield _Name(long.start, long.end, "acronym", long_key)
    for (start, end), text in sorted(shorts.items()):
        yield _Name(start, end, "acronym", norm_key(text))


# Of two names at the same place the first kind in this order stays.
_STRENGTH: Final = {"identifier": 0, "acronym": 1, "noun_chunk": 2}


def _settle(names: Iterable[_Name]) -> list[_Name]:
    """One name per place, sorted by place. Names inside longer names stay: both are meant."""
    by_place: dict[tuple[int, int], _Name] = {}
    for name in names:
        if not name.key:
            continue
        place = (name.start, name.end)
        known = by_place.get(place)
        if known is None or _STRENGTH[name.kind] < _STRENGTH[known.kind]:
            by_place[place] = name
    return [by_place[place] for place in sorted(by_place)]


def _collect(unit: TextUnit, parsed: _Parsed, names: list[_Name], found: Extraction) -> None:
    """Rows for the names, sentences and statements of one unit."""
    used: Counter[int] = Counter()
    index = 0
    for name in names:
        surface = clean_surface(unit.text[name.start : name.end])
        if name.kind != "identifier" and (reason := refuse(surface, 1)):
            found.rejects[reason] += 1
            continue
        while index + 1 < len(parsed.sentences) and parsed.sentences[index][1] <= name.start:
            index += 1
        used[index] += 1
        place = (name.start, name.end)
        start, end = place if unit.category != CAPTION else (NOT_FROM_TEXT, NOT_FROM_TEXT)
        found.mentions.append(
            Mention(
                unit.doc_id,
                unit.page,
                unit.order,
                unit.element_id,
                start,
                end,
                index,
                name.kind,
                name.key,
                surface,
                surface,
                name.start if unit.category == CAPTION else 0,
                unit.bbox_pt,
            )
        )
    for number, count in sorted(used.items()):
        if count > 1:
            found.sentences.append(
                Sentence(
                    unit.doc_id,
                    unit.page,
                    unit.order,
                    unit.element_id,
                    number,
                    _sentence_text(unit, parsed, number),
                    unit.bbox_pt,
                )
            )
    for head, predicate, tail, number in parsed.statements:
        found.relations.append(
            Relation(
                unit.doc_id,
                unit.page,
                unit.order,
                unit.element_id,
                "",
                head,
                predicate,
                tail,
                "",
                "",
                "sentence",
                _sentence_text(unit, parsed, number),
                unit.bbox_pt,
            )
        )


def _sentence_text(unit: TextUnit, parsed: _Parsed, number: int) -> str:
    if number >= len(parsed.sentences):
        return " ".join(unit.text.split())[:MAX_SENTENCE_CHARS]
    start, end = parsed.sentences[number]
    return " ".join(unit.text[start:end].split())[:MAX_SENTENCE_CHARS]


def _split_sentences(text: str) -> list[tuple[int, int]]:
    borders = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    return [(start, end) for start, end in itertools.pairwise(borders) if end > start]
