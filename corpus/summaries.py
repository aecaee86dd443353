"""Extractive summaries of documents, sections, tables and figures; no model, same answer always.

In: `DocumentRows`. Out: rows of the `summaries` table with the elements that each was made from.
document  the authors' own abstract where there is one (method `abstract`), else the most central
          sentences outside of references, notices and the like (`lexrank`)
section   the most central sentences of the section's own text, for sections with enough of it
table     caption, size, column names and the extremes of the numeric columns
figure    caption and the first sentence that speaks of the figure, for captioned figures
A document without prose is summarised by what it holds: modules, tables, headings.
Ranking is quadratic, so at most `_MAX_RANKED` sentences are ranked together, taken from the
beginning of every section. `corpus.abstractive` may replace documents' and sections' summaries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from corpus.centrality import position_weight, rank
from corpus.rows import DocumentRows
from corpus.sentences import split_sentences
from corpus.summary_sentences import (
    PROSE,
    Candidate,
    abstract_sentences,
    good_sentences,
    is_back_matter,
)
from corpus.table_facts import describe_table, plural
from workspace.ids import derive_id
from workspace.shards import Row

DOCUMENT_SENTENCES: Final = 5
SECTION_SENTENCES: Final = 3
_MIN_SECTION_SENTENCES: Final = 4
_MIN_ABSTRACT_SENTENCES: Final = 2
_MAX_RANKED: Final = 200
_FIGURE_NUMBER: Final = re.compile(
    r"\b(?:figure|fig\.|illustration)\s*(\d+(?:[-.]\d+)*)", re.IGNORECASE
)
_DANGLING: Final = re.compile(
    r"(?:they|these|those|this|that|it|its|he|she|however|consequently|therefore|thus|hence|also|"
    r"otherwise|moreover|furthermore|in addition|for example|finally|then|but|and|or|if so|"
    r"in th(?:is|ese) \w+|for this \w+|note|remark|see|do not|as shown|at this)\b",
    re.IGNORECASE,
)
# What office programs call a picture that nobody has named.
_PLACEHOLDER: Final = re.compile(
    r"(?:(?:content |text |picture )?placeholder|picture|image|imagen|imagem|grafik|bild|graphic|"
    r"object|diagram|chart)\s*\d*",
    re.IGNORECASE,
)


def summarise(document: DocumentRows) -> list[Row]:
    """All summaries: document, then sections, tables and figures in reading order."""
    sentences = good_sentences(document)
    document_row = _document(document, sentences)
    rows = [
        *([document_row] if document_row else []),
        *_sections(document, sentences),
        *(_table(document, table) for table in document.tables),
        *_figures(document, sentences),
    ]
    return [{**row, "order": order} for order, row in enumerate(rows)]


def _sections(document: DocumentRows, sentences: Mapping[str, list[Candidate]]) -> list[Row]:
    rows = []
    for element in document.elements:
        own = sentences.get(element["element_id"], [])
        if len(own) < _MIN_SECTION_SENTENCES or is_back_matter(element):
            continue
        chosen = _choose([own[:_MAX_RANKED]], SECTION_SENTENCES)
        rows.append(
            _row(document, "section", element["element_id"], element["text"], "lexrank", chosen)
        )
    return rows


def _document(document: DocumentRows, sentences: Mapping[str, list[Candidate]]) -> Row | None:
    title = str(document.document.get("title") or "")
    own = abstract_sentences(document)
    if len(own) >= _MIN_ABSTRACT_SENTENCES:
        chosen = own if len(own) <= DOCUMENT_SENTENCES else _choose([own], DOCUMENT_SENTENCES)
        return _row(document, "document", document.doc_id, title, "abstract", chosen)
    sections = [] if document.modules else document_pool(document, sentences)
    if sum(map(len, sections)) >= 2:
        chosen = _choose(sections, DOCUMENT_SENTENCES)
        return _row(document, "document", document.doc_id, title, "lexrank", chosen)
    contents = [*(pair for section in sections for pair in section), *_contents(document)]
    if not contents:
        return None
    return _row(document, "document", document.doc_id, title, "contents", contents)


def document_pool(
    document: DocumentRows, sentences: Mapping[str, list[Candidate]]
) -> list[list[Candidate]]:
    """The sentences to rank for the whole document, by section: the first ones of every section
    that is about the subject, and only those that can be read without the one before.
    """
    titles = {row["element_id"]: row for row in document.elements if row["category"] == "Title"}
    about = [own for at, own in sentences.items() if not (at and is_back_matter(titles[at]))]
    # A text that is nothing but notices is still summarised.
    sections = [
        alone
        for own in about or list(sentences.values())
        if (alone := [pair for pair in own if not _DANGLING.match(pair.text)])
    ]
    depth, longest = 1, max(map(len, sections), default=0)
    while depth < longest and sum(min(len(s), depth + 1) for s in sections) <= _MAX_RANKED:
        depth += 1
    step = max(1.0, len(sections) / _MAX_RANKED)
    spread = [sections[int(n * step)] for n in range(int(len(sections) / step))]
    return [section[:depth] for section in spread]


def _contents(document: DocumentRows) -> list[Candidate]:
    """What a document without prose holds, in a few lines."""
    lines: list[Candidate] = []
    for module in document.modules[:DOCUMENT_SENTENCES]:
        lines.append(Candidate(_module(module), module["element_id"]))
    for table in document.tables[: DOCUMENT_SENTENCES - len(lines)]:
        lines.append(Candidate(describe_table(table), table["element_id"]))
    headings = [row for row in document.elements if row["category"] == "Title"]
    if not lines and headings:
        names = "; ".join(" ".join(row["text"].split()) for row in headings[:8])
        lines.append(Candidate(f"Headings: {names}.", headings[0]["element_id"]))
    others = [row for row in document.elements if row["category"] in PROSE and row["text"]]
    if not lines and others:
        text = " ".join(others[0]["text"].split())
        lines.append(Candidate(_shorten(text), others[0]["element_id"]))
    return lines


def _module(module: Row) -> str:
    counts = {
        direction: sum(port["direction"] == direction for port in module["ports"])
        for direction in ("input", "output", "inout")
    }
    ports = ", ".join(plural(n, name) for name, n in counts.items() if n) or "no ports"
    said = split_sentences(" ".join(module["comment"].split()))
    used = sorted({instance["module"] for instance in module["instances"]})
    language = "SystemVerilog" if module["language"] == "systemverilog" else "Verilog"
    text = f"{language} module {module['name']} with {ports}"
    text += f", built of {', '.join(used[:6])}" if used else ""
    return f"{text}. {said[0].text}" if said else f"{text}."


def _table(document: DocumentRows, table: Row) -> Row:
    caption = str(table["caption"]) or " > ".join(table["section_path"][-1:])
    source = [Candidate(describe_table(table), table["element_id"])]
    return _row(document, "table", table["table_id"], caption, "table-facts", source)


def _figures(document: DocumentRows, sentences: Mapping[str, list[Candidate]]) -> list[Row]:
    """Captioned figures, each with the first sentence that names its number."""
    mentions: dict[str, Candidate] = {}
    for own in sentences.values():
        for pair in own:
            for number in _FIGURE_NUMBER.findall(pair[0]):
                if not _FIGURE_NUMBER.match(pair[0]):
                    mentions.setdefault(number, pair)
    rows = []
    for image in document.images:
        caption = " ".join(str(image["caption"]).split())
        if not caption or _PLACEHOLDER.fullmatch(caption):
            continue
        number = _FIGURE_NUMBER.match(caption)
        source = [Candidate(caption, image["element_id"])]
        if number and number[1] in mentions:
            source.append(mentions[number[1]])
        rows.append(_row(document, "figure", image["image_id"], caption, "caption", source))
    return rows


def _choose(sections: Sequence[Sequence[Candidate]], count: int) -> list[Candidate]:
    """The best sentences in reading order; `sections` give the weights of their positions."""
    pool = [pair for section in sections for pair in section]
    weights = [
        position_weight(section, len(sections), place)
        for section, own in enumerate(sections)
        for place in range(len(own))
    ]
    return [pool[place] for place in sorted(rank([pair.text for pair in pool], count, weights))]


def _shorten(text: str, limit: int = 300) -> str:
    """Cut between words, and marked as cut."""
    return text if len(text) <= limit else text[:limit].rsplit(maxsplit=1)[0] + " …"


def _row(
    document: DocumentRows,
    level: str,
    target_id: str,
    title: str,
    method: str,
    source: Sequence[Candidate],
) -> Row:
    return {
        "summary_id": derive_id("summary", document.doc_id, level, target_id),
        "doc_id": document.doc_id,
        "level": level,
        "target_id": target_id,
        "order": 0,
        "title": " ".join(title.split()),
        "text": "\n".join(text for text, _ in source),
        "method": method,
        "source_element_ids": list(dict.fromkeys(element_id for _, element_id in source)),
    }
