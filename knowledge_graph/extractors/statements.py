"""What sentences state about their terms: subject-verb-object, and definition patterns.

A parsed text and the terms in it -> statements between two terms:

    X is a Y · Y such as X · X and other Y        is_a
    X consists of Y · X comprises Y               has_part
    X is part of Y                                part_of
    X stands for Y                                stands_for
    X drives Y · Y is driven by X · X connects to Y     verb lemma (+ preposition)

A negated or questioned verb, and a subject that is a pronoun, state nothing about a term; the
first is counted as `negated`. Resolving pronouns and modality ("may drive") is not attempted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple


class Statement(NamedTuple):
    """`head` and `tail` are token indices of term heads; `start`..`end` is the sentence."""

    head: int
    predicate: str
    tail: int
    sentence: int


_SUBJECTS: Final = frozenset({"nsubj", "nsubjpass"})
_HAS_PART: Final = frozenset({"comprise", "contain", "include"})
# "X is a kind of Y" says the same as "X is a Y".
_KIND_NOUNS: Final = frozenset({"kind", "type", "form", "class", "variant", "example"})
# Verbs whose object says little: "X has advantages", "X does work".
_EMPTY_VERBS: Final = frozenset({"be", "do", "get", "let", "see", "say", "note", "seem", "become"})
# Those that join a verb to a thing; "during", "for" or "without" tell when, why and how.
_PREPOSITIONS: Final = frozenset(
    {"to", "from", "into", "onto", "in", "on", "with", "via", "through", "of", "by", "at"}
)
_NO_FINAL_E: Final = re.compile(r"(?:[cfnprx]t|x|ck|sh|ch|ss|mp|nk|ld|ll|w|y)e$")
_PREDICATE: Final = re.compile(r"[a-z][a-z-]{1,30}")


def find_statements(
    parsed: Any, terms: Mapping[int, object], sentence_of: Mapping[int, int], rejects: Counter[str]
) -> Iterator[Statement]:
    """Statements of a spaCy `Doc`. `terms` has the index of every term's head token."""
    for token in parsed:
        sentence = sentence_of.get(token.i, 0)
        if token.pos_ in {"VERB", "AUX"}:
            yield from _of_verb(token, terms, sentence, rejects)
        if token.i in terms:
            yield from _of_examples(token, terms, sentence)


def _of_verb(
    verb: Any, terms: Mapping[int, object], sentence: int, rejects: Counter[str]
) -> Iterator[Statement]:
    subjects = [child for child in verb.children if child.dep_ in _SUBJECTS]
    if not subjects:
        return
    heads = [item.i for subject in subjects for item in _conjuncts(subject) if item.i in terms]
    if not heads:
        return
    if any(child.dep_ == "neg" for child in verb.children) or _is_question(verb):
        rejects["negated"] += 1
        return
    passive = any(subject.dep_ == "nsubjpass" for subject in subjects)
    for predicate, tail, swapped in _objects(verb, terms, passive):
        for head in heads:
            pair = (tail, head) if swapped else (head, tail)
            if pair[0] != pair[1]:
                yield Statement(pair[0], predicate, pair[1], sentence)


def _objects(
    verb: Any, terms: Mapping[int, object], passive: bool
) -> Iterator[tuple[str, int, bool]]:
    """(predicate, object, whether the object is the doer) of one verb."""
    lemma = lemma_of(verb)
    if lemma == "be" and not passive:
        yield from ((name, tail, False) for name, tail in _complements(verb, terms))
        return
    if lemma in _EMPTY_VERBS or not _PREDICATE.fullmatch(lemma):
        return
    for child in verb.children:
        if child.dep_ == "dobj" and not passive:
            name = "has_part" if lemma in _HAS_PART else lemma
            yield from ((name, item.i, False) for item in _conjuncts(child) if item.i in terms)
        elif child.dep_ == "agent":
            name = "part_of" if lemma in _HAS_PART else lemma
            swapped = name != "part_of"
            yield from (
                (lemma if swapped else name, item.i, swapped)
                for item in _prepositional(child)
                if item.i in terms
            )
        elif child.dep_ == "prep" and (
            child.lower_ in _PREPOSITIONS or (lemma, child.lower_) == ("stand", "for")
        ):
            name = _with_preposition(lemma, child.lemma_.lower())
            yield from ((name, item.i, False) for item in _prepositional(child) if item.i in terms)


def lemma_of(verb: Any) -> str:
    """The verb's lemma, where the model's rule for unknown verbs adds an "e" too many.

    "incremented" comes out as "incremente"; no English verb ends like that.
    """
    lemma = str(verb.lemma_).lower()
    if verb.lower_ == lemma + "d" and _NO_FINAL_E.search(lemma):
        return lemma[:-1]
    return lemma


def _complements(verb: Any, terms: Mapping[int, object]) -> Iterator[tuple[str, int]]:
    """Objects of "is": a noun with an indefinite article (or plural) is a class."""
    for child in verb.children:
        if child.dep_ != "attr":
            continue
        if child.lemma_.lower() in _KIND_NOUNS:
            yield from (("is_a", item.i) for item in _of_objects(child) if item.i in terms)
        elif child.lemma_.lower() == "part":
            yield from (("part_of", item.i) for item in _of_objects(child) if item.i in terms)
        elif child.i in terms and _is_indefinite(child):
            yield "is_a", child.i


def _of_examples(token: Any, terms: Mapping[int, object], sentence: int) -> Iterator[Statement]:
    """ "Y such as X1, X2 and X3", and "X1, X2 and other Y"."""
    for child in token.children:
        if child.lower_ == "as" and any(word.lower_ == "such" for word in child.children):
            for item in _prepositional(child):
                if item.i in terms:
                    yield Statement(item.i, "is_a", token.i, sentence)
    if token.dep_ == "conj" and any(child.lower_ == "other" for child in token.children):
        first = token.head
        while first.dep_ == "conj":
            first = first.head
        for item in _conjuncts(first):
            if item.i in terms and item.i < token.i:
                yield Statement(item.i, "is_a", token.i, sentence)


def _with_preposition(lemma: str, preposition: str) -> str:
    if (lemma, preposition) in {("consist", "of"), ("compose", "of")}:
        return "has_part"
    if (lemma, preposition) == ("stand", "for"):
        return "stands_for"
    return f"{lemma}_{preposition}"


def _prepositional(preposition: Any) -> Iterator[Any]:
    for child in preposition.children:
        if child.dep_ == "pobj":
            yield from _conjuncts(child)


def _of_objects(noun: Any) -> Iterator[Any]:
    for child in noun.children:
        if child.dep_ == "prep" and child.lower_ == "of":
            yield from _prepositional(child)


def _conjuncts(token: Any) -> Iterator[Any]:
    yield token
    for child in token.children:
        if child.dep_ == "conj":
            yield from _conjuncts(child)


def _is_indefinite(noun: Any) -> bool:
    articles = [child.lower_ for child in noun.children if child.dep_ == "det"]
    return articles[:1] in (["a"], ["an"]) or (not articles and noun.tag_ in {"NNS", "NNPS"})


def _is_question(verb: Any) -> bool:
    return bool(verb.sent.text.rstrip().endswith("?"))
