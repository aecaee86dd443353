"""Which sentences of a document may stand in a summary.

In: `DocumentRows`. Out: `Candidate`s by nearest heading, in reading order. A candidate is a whole
sentence of running text: no heading, caption, table row, formula, line of a table of contents,
licence text or cut paragraph. A document without any (slides) gives its longer lines instead.
`is_back_matter` tells headings whose sections say nothing about the subject, `find_abstract` finds
the authors' own summary. The words are English, German, French, Spanish and Chinese.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from corpus.rows import DocumentRows, in_flow
from corpus.sentences import split_sentences
from workspace.shards import Row

PROSE: Final = frozenset({"NarrativeText", "ListItem", "UncategorizedText"})
MIN_WHOLE: Final = 3  # fewer whole sentences than this make a document one of lines

_BULLET: Final = re.compile(r"^(?:[^\w\s\"'“‘(\[$<]+\s*|o\s+(?=[A-Z])|\(?\d{1,2}[.)]\s+(?=\D))+")
_CAPTION: Final = re.compile(
    r"(?:\d+[-.]\d+\s+)?(?:figure|fig\.|table|tab\.|illustration|listing|abbildung|tabelle|[图表])"
    r"\s*[A-Z]?\d",
    re.IGNORECASE,
)
_BOILERPLATE: Final = re.compile(
    r"all rights reserved|copyright|©|licen[cs]ed under|under the licen[cs]e|\bwarrant(?:y|ies)\b|"
    r"trademark|this document was prepared|\bliabilit|\bliable\b|spdx-licen|https?:|www\.|"
    r"for informational purposes|subject to change without|no licen[cs]e|latest version of this|"
    r"\bterms and \w+|\bisbn\b|printed in the|"
    r"without (?:prior )?(?:written )?permission|alle rechte vorbehalten",
    re.IGNORECASE,
)
_DEBRIS: Final = re.compile(
    r"\.{4}|(?:\. ){4}|[\ufffd\ue000-\uf8ff\x00-\x08]|\|.*\||[{}\\^]|=.*=|þÿ"
)
_BACK_MATTER: Final = re.compile(
    r"(?:disclaimer|copyright|legal|licen[cs]e|acknowledge?ments?|references|about the authors?)"
    r"\b.*|bibliography|literature|(?:table of )?contents|list of (?:figures|tables)|"
    r"(?:revision|change|version) (?:history|log)|"
    r"release (?:notes|history)|change ?log|index|trademarks?|contacts?|instructors?|"
    r"(?:important )?notices?|glossary|further reading|credits|inhalt(?:sverzeichnis)?|"
    r"literatur(?:verzeichnis)?|bibliographie|参考文献|目录|版权声明",
    re.IGNORECASE,
)
_NUMBERING: Final = re.compile(
    r"^(?:(?:appendix\s+)?(?:[A-Z]|\d+|[IVX]+)(?:\.\d+)*[.:)]?\s+)?", re.IGNORECASE
)
_ABSTRACT: Final = re.compile(
    r"abstract|(?:executive|management) summary|zusammenfassung|kurzfassung|résumé|resumen|摘要",
    re.IGNORECASE,
)
_ABSTRACT_LEAD: Final = re.compile(r"\s*(?:abstract|summary)\s*[—–:.-]+\s*(?=\w)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_CJK: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_MAX_CHARS: Final = 400


class Candidate(NamedTuple):
    """A sentence, cleaned of its bullet, and the element that it stands in."""

    text: str
    element_id: str


def good_sentences(document: DocumentRows) -> dict[str, list[Candidate]]:
    """Candidates by the id of their nearest heading; "" holds those before any heading."""
    whole = _collect(document, is_whole)
    notices = {row["element_id"] for row in document.elements if _heads_notices(row)}
    if sum(len(own) for at, own in whole.items() if at not in notices) >= MIN_WHOLE:
        return whole
    return _collect(document, is_line)


def _collect(document: DocumentRows, is_good: Callable[[str], bool]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = defaultdict(list)
    for element in document.elements:
        if element["category"] in PROSE and in_flow(element):
            for sentence in split_sentences(element["text"]):
                text = _BULLET.sub("", " ".join(sentence.text.split()))
                if is_good(text):
                    found[element["parent_id"]].append(Candidate(text, element["element_id"]))
    return dict(found)


def is_line(text: str) -> bool:
    """Mostly words, of a usual length, no debris."""
    if len(text) > _MAX_CHARS or _CAPTION.match(text) or text.startswith("["):
        return False
    if _DEBRIS.search(text) or _BOILERPLATE.search(text):
        return False
    if len(_CJK.findall(text)) >= 8:
        return True
    words = _WORD.findall(text)
    letters = sum(char.isalpha() or char.isspace() for char in text)
    shouted = sum(char.isupper() for char in text) > 0.5 * sum(char.isalpha() for char in text)
    return 5 <= len(words) <= 60 and letters >= 0.75 * len(text) and not shouted


def is_whole(text: str) -> bool:
    """A line that begins and ends like a sentence and has all of its brackets."""
    if not is_line(text) or not text.rstrip("\"'”’)]）」").endswith(
        (".", "!", "?", "。", "！", "？")
    ):
        return False
    if text.count("(") != text.count(")") or text.count("[") != text.count("]"):
        return False
    first = text.split(maxsplit=1)[0].strip("\"'“”’‘()[]<>,;:.")
    # A lower-case beginning is the rest of a cut paragraph, unless it is a name (mcause, reg_x).
    return not (first.isalpha() and first.islower() and not _CJK.match(first))


def is_back_matter(section: Mapping[str, object]) -> bool:
    """Whether a Title row, by itself or by a title above it, heads references, notices and such."""
    above = section["section_path"]
    assert isinstance(above, list)
    return any(_bare(str(title), _BACK_MATTER) for title in [section["text"], *above])


def _heads_notices(element: Row) -> bool:
    return element["category"] == "Title" and is_back_matter(element)


def find_abstract(document: DocumentRows) -> list[Row]:
    """The prose elements of the authors' own abstract, [] when there is none."""
    own: list[Row] = []
    for element in document.elements:
        if element["category"] == "Title":
            if own:
                break
            continue
        if element["category"] not in PROSE:
            continue
        path = element["section_path"]
        if path and _bare(path[-1], _ABSTRACT):
            own.append(element)
        elif not own and _ABSTRACT_LEAD.match(element["text"]):
            return [element]
    return own


def abstract_sentences(document: DocumentRows) -> list[Candidate]:
    """The sentences of the authors' abstract that read well by themselves."""
    found = []
    for element in find_abstract(document):
        text = _ABSTRACT_LEAD.sub("", element["text"], count=1)
        for sentence in split_sentences(text):
            flat = _BULLET.sub("", " ".join(sentence.text.split()))
            if is_whole(flat):
                found.append(Candidate(flat, element["element_id"]))
    return found


def _bare(title: str, pattern: re.Pattern[str]) -> bool:
    flat = _NUMBERING.sub("", " ".join(title.split()), count=1).strip(" :.¶")
    return bool(pattern.fullmatch(flat) or pattern.fullmatch(" ".join(title.split()).strip(" :.¶")))
