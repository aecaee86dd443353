"""Extractive summaries of documents, sections, tables and figures; no model, same answer always.

In: `DocumentRows`. Out: rows of the `summaries` table with the elements that each was made from.
document  the most central sentences, chosen among those of the section summaries
section   the same over the section's own text, for sections with enough of it
table     caption, size, column names and the extremes of the numeric columns
figure    caption and the first sentence that speaks of the figure, for captioned figures
A document without prose is summarised by what it holds: modules, tables, headings.
Centrality is PageRank over TF-IDF similarity. Cost grows linearly with the document, because
sections are ranked one by one and the document level sees their winners only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from corpus.centrality import rank
from corpus.rows import DocumentRows
from corpus.sentences import split_sentences
from corpus.table_facts import describe_table, plural
from workspace.ids import derive_id
from workspace.shards import Row

DOCUMENT_SENTENCES: Final = 5
SECTION_SENTENCES: Final = 3
_MIN_SECTION_SENTENCES: Final = 4
_MAX_RANKED: Final = 200  # sentences ranked together; ranking is quadratic
_PROSE: Final = frozenset({"NarrativeText", "ListItem", "UncategorizedText"})
_FIGURE_NUMBER: Final = re.compile(r"\b(?:figure|fig\.)\s*(\d+(?:[-.]\d+)*)", re.IGNORECASE)
_CAPTION: Final = re.compile(r"(?:figure|fig\.|table|tab\.)\s*\d", re.IGNORECASE)
_DANGLING: Final = re.compile(
    r"(?:they|these|those|this|that|it|its|he|she|however|consequently|therefore|thus|hence|also|"
    r"otherwise|moreover|furthermore|in addition|for example|finally|then|but|and|or|if so)\b",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[A-Za-z]{2,}")

Candidate = tuple[str, str]  # sentence, element_id


def summarise(document: DocumentRows) -> list[Row]:
    """All summaries: document, then sections, tables and figures in reading order."""
    sentences = _sentences(document)
    sections = _sections(document, sentences)
    document_row = _document(document, sentences, sections)
    rows = [
        *([document_row] if document_row else []),
        *sections,
        *(_table(document, table) for table in document.tables),
        *_figures(document, sentences),
    ]
    return [{**row, "order": order} for order, row in enumerate(rows)]


def _sentences(document: DocumentRows) -> dict[str, list[Candidate]]:
    """Good sentences by nearest heading, in reading order; "" holds those before any heading."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for element in document.elements:
        if element["category"] not in _PROSE:
            continue
        for sentence in split_sentences(element["text"]):
            text = " ".join(sentence.text.split())
            if _is_good(text):
                found[element["parent_id"]].append((text, element["element_id"]))
    return found


def _is_good(sentence: str) -> bool:
    """A real sentence: of usual length, mostly words, with an end or enough of them."""
    if _CAPTION.match(sentence) or sentence.startswith("["):
        return False
    words = _WORD.findall(sentence)
    letters = sum(char.isalpha() or char.isspace() for char in sentence)
    ends = sentence[-1:] in ".!?:”\"')"
    return 5 <= len(words) <= 60 and letters >= 0.7 * len(sentence) and (ends or len(words) >= 8)


def _sections(document: DocumentRows, sentences: dict[str, list[Candidate]]) -> list[Row]:
    rows = []
    for element in document.elements:
        own = sentences.get(element["element_id"], [])
        if element["category"] != "Title" or len(own) < _MIN_SECTION_SENTENCES:
            continue
        chosen = _choose(own[:_MAX_RANKED], SECTION_SENTENCES)
        rows.append(
            _row(document, "section", element["element_id"], element["text"], "textrank", chosen)
        )
    return rows


def _document(
    document: DocumentRows, sentences: dict[str, list[Candidate]], sections: list[Row]
) -> Row | None:
    """From the sections' winners and the first sentences of what has no section summary."""
    title = str(document.document.get("title") or "")
    winners = {section["target_id"]: set(section["text"].split("\n")) for section in sections}
    pool: list[Candidate] = []
    for heading, own in sentences.items():
        kept = winners.get(heading)
        pool.extend(own[:3] if kept is None else [pair for pair in own if pair[0] in kept])
    if len(pool) >= 2 and not document.modules:
        # The opening sentence mostly says what the document is; the others must stand alone.
        opening = next(pair for own in sentences.values() for pair in own)
        others = [pair for pair in pool if pair != opening and not _DANGLING.match(pair[0])]
        step = max(1.0, len(others) / _MAX_RANKED)
        ranked = [others[int(index * step)] for index in range(int(len(others) / step))]
        chosen = [opening, *_choose(ranked, DOCUMENT_SENTENCES - 1)]
        return _row(document, "document", document.doc_id, title, "textrank", chosen)
    contents = _contents(document) if document.modules else [*pool, *_contents(document)]
    if not contents:
        return None
    return _row(document, "document", document.doc_id, title, "contents", contents)


def _contents(document: DocumentRows) -> list[Candidate]:
    """What a document without prose holds, in a few lines."""
    lines: list[Candidate] = []
    for module in document.modules[:DOCUMENT_SENTENCES]:
        lines.append((_module(module), module["element_id"]))
    for table in document.tables[: DOCUMENT_SENTENCES - len(lines)]:
        lines.append((describe_table(table), table["element_id"]))
    headings = [row for row in document.elements if row["category"] == "Title"]
    if not lines and headings:
        names = "; ".join(" ".join(row["text"].split()) for row in headings[:8])
        lines.append((f"Headings: {names}.", headings[0]["element_id"]))
    others = [row for row in document.elements if row["category"] in _PROSE and row["text"]]
    if not lines and others:
        text = " ".join(others[0]["text"].split())
        lines.append((text[:300], others[0]["element_id"]))
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
    source = [(describe_table(table), table["element_id"])]
    return _row(document, "table", table["table_id"], caption, "table-facts", source)


def _figures(document: DocumentRows, sentences: dict[str, list[Candidate]]) -> list[Row]:
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
        if not caption:
            continue
        number = _FIGURE_NUMBER.match(caption)
        source = [(caption, image["element_id"])]
        if number and number[1] in mentions:
            source.append(mentions[number[1]])
        rows.append(_row(document, "figure", image["image_id"], caption, "caption", source))
    return rows


def _choose(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    places = rank([text for text, _ in candidates], count)
    return [candidates[place] for place in sorted(places)]


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
