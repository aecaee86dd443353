"""Chunks of a document: pieces of reading text within a token budget.

In: `DocumentRows` (elements and tables) and the budget. Out: rows of the `chunks` table. Text is
gathered by section: a chunk does not cross a first-level heading, and takes a deeper heading along
only while it is still small. Tables and code are chunks of their own, kept whole up to four times
the budget, then split by rows (with the header repeated) or lines. Headers, footers and page
numbers are in no chunk; every other element is in exactly one, or in each piece of a split one.

Tokens are estimated, since no tokenizer is at hand here: see `count_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from corpus.rows import OUT_OF_FLOW, DocumentRows
from corpus.sentences import split_sentences
from workspace.ids import derive_id
from workspace.shards import Row

WHOLE_FACTOR: Final = 4  # tables and code are kept whole up to this many budgets
_SMALL: Final = 0.25  # of the budget: a chunk below it takes the next sub-section along
_PIECE: Final = re.compile(r"(?P<word>[^\W\d_]+)|\d|(?P<mark>[^\w\s]|_)(?P=mark)*|\n\s*")
_LETTERS_PER_TOKEN: Final = 6


def count_tokens(text: str) -> int:
    """Estimate of a byte-pair tokenizer: a token for each line end, digit, run of one mark, and
    six letters of a word.

    Within 16 % of SmolLM2's own count on manuals, notes and Verilog (measured).
    """
    return sum(
        -(-len(match[0]) // _LETTERS_PER_TOKEN) if match["word"] else 1
        for match in _PIECE.finditer(text)
    )


@dataclass
class _Draft:
    """A chunk being gathered."""

    kind: str
    section_path: list[str]
    first_order: int
    parts: list[str] = field(default_factory=list)
    element_ids: list[str] = field(default_factory=list)
    pages: set[int] = field(default_factory=set)
    tokens: int = 0

    def add(self, element: Row, text: str, pages: Iterable[int] = ()) -> None:
        """`pages` where the text is on others than the element's first."""
        if text:
            self.parts.append(text)
            self.tokens += count_tokens(text)
        self.element_ids.append(element["element_id"])
        self.pages.update(pages or (element["page"],))


def chunk(document: DocumentRows, max_tokens: int) -> list[Row]:
    """Rows of the `chunks` table, in the order of each chunk's first element."""
    if max_tokens < 16:
        raise ValueError(f"max_tokens must be at least 16, got {max_tokens}")
    drafts = sorted(_drafts(document, max_tokens), key=lambda draft: draft.first_order)
    return [_row(document.doc_id, order, draft) for order, draft in enumerate(drafts)]


def _drafts(document: DocumentRows, max_tokens: int) -> Iterator[_Draft]:
    tables = {row["element_id"]: row for row in document.tables}
    open_draft: _Draft | None = None
    for element in document.elements:
        if element["category"] in OUT_OF_FLOW:
            continue
        if element["element_id"] in tables or element["category"] in ("Table", "CodeSnippet"):
            yield from _whole(element, tables.get(element["element_id"]), max_tokens)
            continue
        text = _text(element)
        if open_draft is not None and _must_close(open_draft, element, text, max_tokens):
            yield open_draft
            open_draft = None
        if count_tokens(text) > max_tokens:
            if open_draft is not None:
                yield open_draft
                open_draft = None
            yield from _pieces("text", element, _by_sentences(text, max_tokens))
            continue
        if open_draft is None:
            open_draft = _draft("text", element)
        open_draft.add(element, text)
    if open_draft is not None:
        yield open_draft


def _must_close(draft: _Draft, element: Row, text: str, max_tokens: int) -> bool:
    if draft.tokens + count_tokens(text) > max_tokens:
        return True
    if element["category"] != "Title" or not draft.parts:
        return False
    return element["level"] <= 1 or draft.tokens >= _SMALL * max_tokens


def _draft(kind: str, element: Row) -> _Draft:
    path = list(element["section_path"])
    if element["category"] == "Title":
        path.append(element["text"])
    return _Draft(kind, path, element["order"])


def _text(element: Row) -> str:
    text = str(element["text"]).strip()
    return f"- {text}" if element["category"] == "ListItem" and text else text


def _whole(element: Row, table: Row | None, max_tokens: int) -> Iterator[_Draft]:
    """A table or code snippet in one chunk, or in pieces when it is beyond all measure."""
    kind = "code" if element["category"] == "CodeSnippet" else "table"
    if table is None:
        head, lines = "", str(element["text"]).split("\n")
    else:
        caption = str(table["caption"]).strip()
        written = str(table["markdown"]).split("\n")
        head = "\n".join([*([caption, ""] if caption else []), *written[:2]])
        lines = written[2:]
    whole = "\n".join([*([head] if head else []), *lines])
    pages = list(table["pages"]) if table is not None else []
    if count_tokens(whole) <= WHOLE_FACTOR * max_tokens:
        yield from _pieces(kind, element, [whole], pages)
        return
    yield from _pieces(kind, element, _by_lines(head, lines, max_tokens), pages)


def _pieces(
    kind: str, element: Row, texts: list[str], pages: Iterable[int] = ()
) -> Iterator[_Draft]:
    for text in texts:
        draft = _draft(kind, element)
        draft.add(element, text, pages)
        yield draft


def _by_lines(head: str, lines: list[str], max_tokens: int) -> list[str]:
    """Runs of lines within the budget, each under `head`; a longer line is a piece of its own."""
    head_tokens = count_tokens(head)
    pieces: list[list[str]] = [[]]
    tokens = head_tokens
    for line in lines:
        size = count_tokens(line)
        if pieces[-1] and tokens + size > max_tokens:
            pieces.append([])
            tokens = head_tokens
        pieces[-1].append(line)
        tokens += size
    return ["\n".join([*([head] if head else []), *piece]) for piece in pieces]


def _by_sentences(text: str, max_tokens: int) -> list[str]:
    """Runs of whole sentences; one that is too long by itself is cut between words."""
    parts: list[str] = []
    for sentence in split_sentences(text):
        if count_tokens(sentence.text) <= max_tokens:
            parts.append(sentence.text)
        else:
            parts.extend(_runs(sentence.text.split(), max_tokens))
    return _runs(parts, max_tokens)


def _runs(parts: list[str], max_tokens: int) -> list[str]:
    runs: list[list[str]] = [[]]
    tokens = 0
    for part in parts:
        size = count_tokens(part)
        if runs[-1] and tokens + size > max_tokens:
            runs.append([])
            tokens = 0
        runs[-1].append(part)
        tokens += size
    return [" ".join(run) for run in runs]


def _row(doc_id: str, order: int, draft: _Draft) -> Row:
    text = "\n\n".join(draft.parts)
    return {
        "chunk_id": derive_id("chunk", doc_id, order, *draft.element_ids[:1], text),
        "doc_id": doc_id,
        "order": order,
        "kind": draft.kind,
        "text": text,
        "tokens": count_tokens(text),
        "pages": sorted(draft.pages),
        "element_ids": draft.element_ids,
        "section_path": draft.section_path,
    }
