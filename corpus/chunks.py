"""Chunks of a document: pieces of reading text within a token budget.

In: `DocumentRows` (elements and tables) and `ChunkLimits`. Out: rows of the `chunks` table. Text is
gathered by section: a chunk does not cross a first-level heading, and takes a deeper heading along
only while it is still small. Tables and code are chunks of their own, kept whole up to four times
the budget, then split by rows (with the header repeated) or at the borders of modules, functions
and blocks. Headers, footers and page numbers are in no chunk; every other element is in exactly
one, or in each piece of a split one.

A chunk's tokens are those of its whole text by the chosen counter (`corpus.tokenizers`). With an
overlap, a text chunk begins with the last sentences of the one before it in the same section; they
count in its budget, but their elements belong to the chunk before alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from corpus.rows import DocumentRows, in_flow
from corpus.sentences import split_sentences
from corpus.tokenizers import Counter, count_tokens
from workspace.ids import derive_id
from workspace.shards import Row

WHOLE_FACTOR: Final = 4  # tables and code are kept whole up to this many budgets
_SMALL: Final = 0.25  # of the budget: a chunk below it takes the next sub-section along
# Lines that begin a part of code: modules, functions, classes, processes.
_PART_OF_CODE: Final = re.compile(
    r"\s*(?:(?:module|interface|package|class|function|task|always(?:_ff|_comb|_latch)?|initial|"
    r"generate|property|covergroup|def|async def|fn|pub|impl|struct|enum|static|void|int|public|"
    r"private|protected|entity|architecture|process)\b|@|`ifdef\b|/\*|//|#)"
)


@dataclass(frozen=True)
class ChunkLimits:
    """Budget and overlap in tokens of `count`."""

    max_tokens: int
    overlap_tokens: int = 0
    count: Counter = count_tokens

    def __post_init__(self) -> None:
        if self.max_tokens < 16:
            raise ValueError(f"max_tokens must be at least 16, got {self.max_tokens}")
        if not 0 <= self.overlap_tokens <= self.max_tokens // 2:
            raise ValueError(f"overlap_tokens must be 0 to half of {self.max_tokens}")


@dataclass
class _Draft:
    """A chunk being gathered."""

    kind: str
    section_path: list[str]
    first_order: int
    parts: list[str] = field(default_factory=list)
    element_ids: list[str] = field(default_factory=list)
    pages: set[int] = field(default_factory=set)
    overlap: str = ""

    def add(self, element: Row, text: str, pages: Iterable[int] = ()) -> None:
        """`pages` where the text is on others than the element's first."""
        if text:
            self.parts.append(text)
        self.element_ids.append(element["element_id"])
        self.pages.update(pages or (element["page"],))

    @property
    def text(self) -> str:
        return "\n\n".join([*([self.overlap] if self.overlap else []), *self.parts])

    def with_text(self, text: str) -> str:
        """Its text when `text` is added."""
        return "\n\n".join(part for part in (self.text, text) if part)


def chunk(document: DocumentRows, limits: ChunkLimits) -> list[Row]:
    """Rows of the `chunks` table, in the order of each chunk's first element."""
    drafts = sorted(_drafts(document, limits), key=lambda draft: draft.first_order)
    return [_row(document.doc_id, order, draft, limits) for order, draft in enumerate(drafts)]


def _drafts(document: DocumentRows, limits: ChunkLimits) -> Iterator[_Draft]:
    tables = {row["element_id"]: row for row in document.tables}
    open_draft: _Draft | None = None
    for element in document.elements:
        if not in_flow(element):
            continue
        if element["element_id"] in tables or element["category"] in ("Table", "CodeSnippet"):
            yield from _whole(element, tables.get(element["element_id"]), limits)
            continue
        text = _text(element)
        overlap = ""
        if open_draft is not None and _must_close(open_draft, element, text, limits):
            yield open_draft
            overlap = _overlap(open_draft, element, text, limits)
            open_draft = None
        if limits.count(text) > limits.max_tokens:
            if open_draft is not None:
                yield open_draft
                open_draft = None
            yield from _pieces("text", element, _by_sentences(text, limits))
            continue
        if open_draft is None:
            open_draft = _draft("text", element)
            open_draft.overlap = overlap
        open_draft.add(element, text)
    if open_draft is not None:
        yield open_draft


def _must_close(draft: _Draft, element: Row, text: str, limits: ChunkLimits) -> bool:
    if limits.count(draft.with_text(text)) > limits.max_tokens:
        return True
    if element["category"] != "Title" or not draft.parts:
        return False
    return element["level"] <= 1 or limits.count(draft.text) >= _SMALL * limits.max_tokens


def _overlap(draft: _Draft, element: Row, text: str, limits: ChunkLimits) -> str:
    """The last whole sentences of `draft` that fit before `text`; none across a heading."""
    if not limits.overlap_tokens or element["category"] == "Title":
        return ""
    kept = ""
    for sentence in reversed(split_sentences("\n\n".join(draft.parts))):
        longer = f"{sentence.text} {kept}".strip()
        if limits.count(longer) > limits.overlap_tokens:
            break
        if limits.count(f"{longer}\n\n{text}") > limits.max_tokens:
            break
        kept = longer
    return kept


def _draft(kind: str, element: Row) -> _Draft:
    path = list(element["section_path"])
    if element["category"] == "Title":
        path.append(element["text"])
    return _Draft(kind, path, element["order"])


def _text(element: Row) -> str:
    text = str(element["text"]).strip()
    return f"- {text}" if element["category"] == "ListItem" and text else text


def _whole(element: Row, table: Row | None, limits: ChunkLimits) -> Iterator[_Draft]:
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
    if limits.count(whole) <= WHOLE_FACTOR * limits.max_tokens:
        yield from _pieces(kind, element, [whole], pages)
    elif kind == "code":
        yield from _pieces(kind, element, _by_parts_of_code(lines, limits))
    else:
        yield from _pieces(kind, element, _by_lines(head, lines, limits), pages)


def _pieces(
    kind: str, element: Row, texts: list[str], pages: Iterable[int] = ()
) -> Iterator[_Draft]:
    for text in texts:
        draft = _draft(kind, element)
        draft.add(element, text, pages)
        yield draft


def _by_lines(head: str, lines: Sequence[str], limits: ChunkLimits) -> list[str]:
    """Runs of lines within the budget, each under `head`; a longer line is a piece of its own."""
    start = f"{head}\n" if head else ""
    return [start + piece for piece in _runs(lines, "\n", limits, start)]


def _by_parts_of_code(lines: list[str], limits: ChunkLimits) -> list[str]:
    """Whole parts (modules, functions, blocks) packed into the budget; long ones by lines."""
    pieces: list[str] = []
    for part in _runs(_code_parts(lines), "\n", limits):
        if limits.count(part) <= limits.max_tokens:
            pieces.append(part)
        else:
            pieces.extend(_by_lines("", part.split("\n"), limits))
    return pieces


def _code_parts(lines: list[str]) -> list[str]:
    """Cut before a line that begins a part and follows an empty line, at the two outer depths."""
    depths = sorted({len(line) - len(line.lstrip()) for line in lines if line.strip()})[:2]
    parts: list[list[str]] = [[]]
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        after_gap = number > 0 and not lines[number - 1].strip()
        if parts[-1] and after_gap and indent in depths and _PART_OF_CODE.match(line):
            parts.append([])
        parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def _by_sentences(text: str, limits: ChunkLimits) -> list[str]:
    """Runs of whole sentences; one that is too long by itself is cut between words."""
    parts: list[str] = []
    for sentence in split_sentences(text):
        if limits.count(sentence.text) <= limits.max_tokens:
            parts.append(sentence.text)
        else:
            parts.extend(_runs(sentence.text.split(), " ", limits))
    return _runs(parts, " ", limits)


def _runs(parts: Sequence[str], joint: str, limits: ChunkLimits, start: str = "") -> list[str]:
    """Longest runs of `parts` that fit behind `start`; counted as they will stand, joined.

    The number of parts that fit is guessed from the sizes before and then corrected, since a
    tokenizer's count of a text is not the sum of its parts'.
    """
    runs: list[str] = []
    first = 0
    while first < len(parts):
        last = _longest(parts, first, joint, limits, start)
        runs.append(joint.join(parts[first:last]))
        first = last
    return runs or [""]


def _longest(parts: Sequence[str], first: int, joint: str, limits: ChunkLimits, start: str) -> int:
    """The largest `last` with parts[first:last] in the budget; at least one part."""

    def fits(last: int) -> bool:
        return limits.count(start + joint.join(parts[first:last])) <= limits.max_tokens

    step, good = 1, first + 1
    while good < len(parts) and fits(min(good + step, len(parts))):
        good = min(good + step, len(parts))
        step *= 2
    while step > 1:
        step //= 2
        if good + step <= len(parts) and fits(good + step):
            good += step
    return good


def _row(doc_id: str, order: int, draft: _Draft, limits: ChunkLimits) -> Row:
    text = draft.text
    return {
        "chunk_id": derive_id("chunk", doc_id, order, *draft.element_ids[:1], text),
        "doc_id": doc_id,
        "order": order,
        "kind": draft.kind,
        "text": text,
        "tokens": limits.count(text),
        "pages": sorted(draft.pages),
        "element_ids": draft.element_ids,
        "section_path": draft.section_path,
    }
