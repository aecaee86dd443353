"""Open-book cloze: a number or a name of a passage, asked for by the words around it.

In: text chunks. Out: rows whose prompt holds a few sentences and a piece of one of them with a
blank. The answer stands once in the passage and the passage holds another candidate of the same
kind, so that neither guessing the only number nor finding a repetition is enough. Rejected: too
short a text, no candidate, a repeated one, the only one of its kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from corpus.tokenizers import count_tokens
from training.data import truth
from training.data.documents import Chunk, Document
from training.data.forms import NAME_ONLY, NUMBER_ONLY, Form, make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.numbers import near_misses
from training.data.rows import OPEN_BOOK, Draft, Reject

QUESTION_TOKENS: Final = 60
WORDS_BEFORE: Final = 9
WORDS_AFTER: Final = 6
MIN_SENTENCE_WORDS: Final = 6
MIN_WORDY_SHARE: Final = 0.6
TRIES: Final = 2  # contexts per chunk and task
CANDIDATES_TRIED: Final = 8

FORMS: Final[dict[str, tuple[Form, ...]]] = {
    "cloze_number": make_forms(
        "cloze_number", NUMBER_ONLY,
        'Which number belongs in the blank: "{clue}"?',
        'Fill in the missing number: "{clue}".',
        'According to the text, what number is ____ in "{clue}"?',
        'Complete with a number from the text: "{clue}".',
    ),
    "cloze_name": make_forms(
        "cloze_name", NAME_ONLY,
        'Which name belongs in the blank: "{clue}"?',
        'Fill in the missing name: "{clue}".',
        'According to the text, what name is ____ in "{clue}"?',
        'Complete with a name from the text: "{clue}".',
    ),
}  # fmt: skip

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])|\n+")
# Not part of a name, version, section number, reference or list of numbers.
_NUMBER = re.compile(
    r"(?<![\w.,\[(#/-])(?:\d{1,3}(?:,\d{3})+|\d{1,9})(?:\.\d{1,6})?(?![\w\])/]|[.,]\d|-\w)"
)
_REFERENCE = re.compile(
    r"(?:fig(?:ure)?|table|sect?(?:ion)?|chapt?(?:er)?|pages?|eq(?:uation)?|appendix|step|version|"
    r"v|no|rev)"
    r"\.?\s*$",
    re.IGNORECASE,
)
_WORDY = re.compile(r"[\"'(]*[A-Za-z][A-Za-z'-]*[,.;:!?)\"']*")
_CODE = re.compile(r"[{}<>|=]|::")
_LIST_MARK = re.compile(r"(?:[-*•]\s+)?(?:\d+\.\s+|\(?\w\)\s+)?.?")
_NAME = re.compile(
    r"(?<![\w.$\\/-])(?:[A-Za-z]\w*_\w+|[A-Z]{2,}[0-9]*[A-Z]*|[A-Za-z]+[0-9]+\w*|[a-z]+[A-Z]\w*)"
    r"(?![\w(\\/-])"
)


class ClozeContext(NamedTuple):
    chunk: Chunk
    task: str
    max_tokens: int


class _Candidate(NamedTuple):
    sentence: int
    start: int
    end: int
    text: str


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, ClozeContext]]:
    """Both tasks on every text chunk, `TRIES` times each."""
    for chunk in document.chunks:
        if chunk.kind != "text":
            continue
        for index in range(TRIES):
            for task in FORMS:
                source = Source(f"{chunk.chunk_id}/{task}/{index}", chunk.chunk_id)
                yield source, ClozeContext(chunk, task, limits.max_prompt_tokens)


def generate(context: ClozeContext, rng: random.Random) -> Draft | Reject:
    """One blank in one passage."""
    sentences = [" ".join(part.split()) for part in _SENTENCE_END.split(context.chunk.text)]
    sentences = [part for part in sentences if part]
    candidates = [
        candidate
        for index, sentence in enumerate(sentences)
        if _is_prose(sentence)
        for candidate in _candidates(context.task, index, sentence)
    ]
    if not candidates:
        return Reject("no_candidate")
    refusal = Reject("no_candidate")
    for chosen in rng.sample(candidates, min(len(candidates), CANDIDATES_TRIED)):
        draft = _ask(context, sentences, candidates, chosen, rng)
        if isinstance(draft, Draft):
            return draft
        refusal = draft
    return refusal


def _ask(
    context: ClozeContext,
    sentences: list[str],
    candidates: list[_Candidate],
    chosen: _Candidate,
    rng: random.Random,
) -> Draft | Reject:
    """The question on one candidate, or what speaks against it."""
    passage = _passage(sentences, chosen.sentence, context.max_tokens - QUESTION_TOKENS)
    if passage is None:
        return Reject("sentence_too_long")
    if _occurrences(chosen.text, passage) != 1:
        return Reject("answer_repeated")
    rivals = {c.text for c in candidates if c.text != chosen.text and c.text in passage}
    if not rivals:
        return Reject("only_candidate")
    clue = _clue(sentences[chosen.sentence], chosen)
    if _occurrences(chosen.text, clue):
        return Reject("answer_in_clue")
    return _draft(context, passage, clue, chosen.text, sorted(rivals), rng)


def _is_prose(sentence: str) -> bool:
    """A sentence of words with an end: no listing, formula or table of contents."""
    tokens = sentence.split()
    wordy = sum(bool(_WORDY.fullmatch(token)) for token in tokens)
    return (
        len(tokens) >= MIN_SENTENCE_WORDS
        and sentence[-1] in ".!?:"
        and not _CODE.search(sentence)
        and wordy >= MIN_WORDY_SHARE * len(tokens)
    )


def _candidates(task: str, index: int, sentence: str) -> Iterator[_Candidate]:
    pattern = _NUMBER if task == "cloze_number" else _NAME
    mark = _LIST_MARK.match(sentence)
    first = mark.end() if mark else 0
    for match in pattern.finditer(sentence):
        if task == "cloze_number" and _REFERENCE.search(sentence[: match.start()]):
            continue
        # The first word's capital and a numbered list's number say nothing.
        if match.start() >= first:
            yield _Candidate(index, match.start(), match.end(), match.group())


def _passage(sentences: list[str], centre: int, max_tokens: int) -> str | None:
    """Sentences around `centre` while they fit, or None when it does not fit alone."""
    first = last = centre
    used = count_tokens(sentences[centre])
    if used > max_tokens:
        return None
    while True:
        grown = False
        for index in (first - 1, last + 1):
            if 0 <= index < len(sentences):
                cost = count_tokens(sentences[index])
                if used + cost <= max_tokens:
                    used += cost
                    first, last = min(first, index), max(last, index)
                    grown = True
        if not grown:
            return " ".join(sentences[first : last + 1])


def _clue(sentence: str, chosen: _Candidate) -> str:
    before = sentence[: chosen.start].split(" ")
    after = sentence[chosen.end :].split(" ")
    head = " ".join(before[-WORDS_BEFORE - 1 :])
    tail = " ".join(after[: WORDS_AFTER + 1])
    return f"{head}____{tail}".replace('"', "'").strip(" .,;:")


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _occurrences(text: str, inside: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(text)}(?!\w)", inside, re.IGNORECASE))


def _draft(
    context: ClozeContext,
    passage: str,
    clue: str,
    answer: str,
    rivals: list[str],
    rng: random.Random,
) -> Draft:
    form = rng.choice(FORMS[context.task])
    number = context.task == "cloze_number"
    value = _value(answer) if number else 0.0
    wrong = near_misses(value, rng) if number else ()
    others = [rival for rival in rivals if not number or _value(rival) != value]
    return Draft(
        setting=OPEN_BOOK,
        task=context.task,
        prompt=f"{passage}\n\n{form.fill(clue=clue)}",
        answer=answer,
        verifier="numeric" if number else "exact",
        truth=truth.numeric(value) if number else truth.exact(answer),
        wrong=(*wrong, *others[:2]),
        difficulty=2,
        form=form.form_id,
        chunk_ids=(context.chunk.chunk_id,),
        element_ids=context.chunk.element_ids,
        page=context.chunk.page,
    )


CLOZE: Final = Generator("cloze", "1", contexts, generate)
