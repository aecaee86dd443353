"""Code-like names in running text: identifiers, code spans, short acronyms standing alone.

Text in, spans out. `find_identifiers` also takes what stands in backticks or AsciiDoc/reST code
marks, whatever it looks like: the author says that it is a name. `find_short_forms` takes
upper-case abbreviations, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from knowledge_graph.names import is_identifier, is_quantity


class Span(NamedTuple):
    """A name in a text, as a half-open range of characters."""

    start: int
    end: int
    text: str


_CODE_SPAN: Final = re.compile(r"(?<![`\"])`{1,2}([^`\n]{1,60})`{1,2}(?!`)")
# AsciiDoc's inline macros with a name in them: insn:mret[], csr::[mpelp].
_MACRO: Final = re.compile(r"\b[a-z]{2,12}:(?::\[)?([A-Za-z_][A-Za-z0-9_.]{0,60})(?:\[\]|\])")
_CODE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(?:\[[0-9:]+\])?")
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_.@/\\-])"  # not inside a longer word, an address or a path
    r"(?:\d*'[hHbBdDoO][0-9A-Fa-f_xXzZ]+|[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)"
    r"(?![A-Za-z0-9_@])"
)
_SHORT_FORM: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9&/.-]{0,16}[A-Z][A-Za-z0-9&/.-]{0,16}[A-Z])"
    r"[A-Z0-9][A-Za-z0-9]*(?:[&/-][A-Za-z0-9]+)*(?![A-Za-z0-9_])"
)
_SENTENCE_JOIN: Final = re.compile(r"[a-z]{2,}\.[A-Z][a-z]+")


def find_identifiers(text: str) -> Iterator[Span]:
    """Non-overlapping identifiers, left to right."""
    taken = -1
    for start, end in sorted(
        {*_code_spans(text), *_code_tokens(text)}, key=lambda s: (s[0], -s[1])
    ):
        if start >= taken:
            yield Span(start, end, text[start:end])
            taken = end


def find_short_forms(text: str) -> Iterator[Span]:
    """Abbreviations: 2-10 characters, mostly capitals (UART, SoC, DRAMs, R&D)."""
    if _shouts(text):
        return
    for match in _SHORT_FORM.finditer(text):
        token = match.group()
        bare = token[:-1] if token.endswith("s") else token
        capitals = sum(map(str.isupper, bare))
        if 2 <= len(bare) <= 10 and 2 * capitals >= len(bare) and not is_quantity(token):
            yield Span(match.start(), match.end(), token)


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _CODE_SPAN.finditer(text):
        name = match.group(1)
        if len(name) > 1 and _CODE_NAME.fullmatch(name):
            yield match.span(1)
    for match in _MACRO.finditer(text):
        yield match.span(1)


def _code_tokens(text: str) -> Iterator[tuple[int, int]]:
    for match in _TOKEN.finditer(text):
        token = match.group()
        if is_identifier(token) and not _SENTENCE_JOIN.fullmatch(token):
            yield match.span()


def _shouts(text: str) -> bool:
    """Whether the text is written in capitals, where capitals say nothing."""
    letters = [char for char in text if char.isalpha()]
    return len(letters) > 12 and sum(map(str.isupper, letters)) > 0.6 * len(letters)
