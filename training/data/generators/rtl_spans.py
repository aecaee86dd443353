"""Which pieces of a module can be left blank, and small wrong changes to such a piece.

    spans("... assign y = a & b; ...")  -> [Span(kind="assign", start, end)]   (over "a & b")
    mutants("a & b")                    -> ["a | b", ...]

In: source without comments. Pieces are right-hand sides of assignments and conditions of `if`,
found by text: strings and nested `begin` do not matter for them. Not covered: whole blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MIN_CHARS: Final = 3
MAX_CHARS: Final = 160

_ASSIGN = re.compile(r"\bassign\b[^=;]*?(?<![<>=!])=(?!=)([^;]*);")
_NONBLOCKING = re.compile(r"(?:^|[;\s)])[\w.\[\]:{}, ]*?<=([^;()?&|]*(?:\([^;]*\))?[^;]*);")
_BLOCKING = re.compile(r"^[ \t]*[\w.\[\]:]+[ \t]*=(?!=)([^;]*);", re.MULTILINE)
_CONDITION = re.compile(r"\bif[ \t]*\(")
_WORDY = re.compile(r"[A-Za-z_]")
_OPERATOR = re.compile(r"[-+*/%&|^~?<>!]|==|\{")

# Each entry: what to look for, and what a slip of the pen would make of it.
_SWAPS: Final = (
    (r"&&", "||"), (r"\|\|", "&&"), (r"(?<!&)&(?!&)", "|"), (r"(?<!\|)\|(?!\|)", "&"),
    (r"\^", "&"), (r"==", "!="), (r"!=", "=="), (r"\+", "-"), (r"(?<![-'])-(?!>)", "+"),
    (r"<<", ">>"), (r">>", "<<"), (r"~", ""), (r"!(?!=)", ""), (r"(?<![<=])<(?![<=])", ">"),
    (r"(?<![>=])>(?![>=])", "<"),
)  # fmt: skip
_CHOICE = re.compile(r"^(.*\?)([^?:]+):([^?:]+)$", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w'])(\d+)(?![\w'])")
_BASED = re.compile(r"(\d+'[bB])([01]+)")


class Span(NamedTuple):
    """`source[start:end]` is the piece; `kind` is assign, nonblocking, blocking or condition."""

    kind: str
    start: int
    end: int


def spans(source: str, body_start: int) -> list[Span]:
    """Pieces behind `body_start` that say something, in order of place."""
    found = [
        *_matches("assign", _ASSIGN, source, body_start),
        *_matches("nonblocking", _NONBLOCKING, source, body_start),
        *_matches("blocking", _BLOCKING, source, body_start),
        *_conditions(source, body_start),
    ]
    unique = {(span.start, span.end): span for span in reversed(found)}
    return sorted(unique.values(), key=lambda span: (span.start, span.end))


def _matches(kind: str, pattern: re.Pattern[str], source: str, body_start: int) -> Iterator[Span]:
    for match in pattern.finditer(source, body_start):
        yield from _trimmed(kind, source, match.start(1), match.end(1))


def _conditions(source: str, body_start: int) -> Iterator[Span]:
    for match in _CONDITION.finditer(source, body_start):
        depth, end = 1, match.end()
        while end < len(source) and depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        if not depth:
            yield from _trimmed("condition", source, match.end(), end - 1)


def _trimmed(kind: str, source: str, start: int, end: int) -> Iterator[Span]:
    """The piece without blanks around it, if it is worth asking for."""
    text = source[start:end]
    start += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    piece = source[start:end]
    if MIN_CHARS <= len(piece) <= MAX_CHARS and _WORDY.search(piece) and _OPERATOR.search(piece):
        yield Span(kind, start, end)


def mutants(piece: str) -> list[str]:
    """One change each: an operator, a constant, the arms of a choice. All differ from `piece`."""
    found: list[str] = []
    for pattern, other in _SWAPS:
        for match in re.finditer(pattern, piece):
            found.append(piece[: match.start()] + other + piece[match.end() :])
    for match in _NUMBER.finditer(piece):
        found.append(piece[: match.start()] + str(int(match[1]) + 1) + piece[match.end() :])
    for match in _BASED.finditer(piece):
        flipped = match[2][:-1] + ("1" if match[2][-1] == "0" else "0")
        found.append(piece[: match.start(2)] + flipped + piece[match.end(2) :])
    choice = _CHOICE.match(piece)
    if choice:
        found.append(f"{choice[1]}{choice[3]}:{choice[2]}")
    return [text for text in dict.fromkeys(found) if text.strip() and text != piece]
