"""Verilog as tokens, units (modules, packages, ...) and edits by offset.

A small lexer of our own, because what is done with an answer must rest on exactly what a hostile
text holds, even where a full parser would give up. It is the same for our texts and for answers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_UNIT_END = {
    "module": "endmodule", "macromodule": "endmodule", "interface": "endinterface",
    "package": "endpackage", "primitive": "endprimitive", "class": "endclass",
    "program": "endprogram", "checker": "endchecker",
}  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<word>[A-Za-z_][A-Za-z_0-9$]*)
    |(?P<space>\s+)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:\\.|[^"\\\n])*")
    |(?P<system>\$[A-Za-z_0-9$]+)
    |(?P<directive>`[A-Za-z_0-9$]*)
    |(?P<escaped>\\\S+)
    |(?P<number>\d*\s*'[sS]?[bBoOdDhH][ \t]*[0-9a-fA-FxXzZ?_]+
    |\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)
    |(?P<open>/\*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is word, system, directive, escaped, number, string, open or mark."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Edit(NamedTuple):
    """A part of a text, by offsets, and what stands there instead."""

    start: int
    end: int
    text: str = "\n"


class Unit(NamedTuple):
    """A module, package, ...: its name, and the tokens from its keyword to its end or end label."""

    name: str
    tokens: list[Token]

    @property
    def edit(self) -> Edit:
        """Leaves the unit out."""
        return Edit(self.tokens[0].start, self.tokens[-1].end)


def tokens_of(code: str) -> list[Token]:
    """Tokens without spaces and comments, up to an unclosed comment, which is an `open` token.

    What stands in `(* attributes *)` counts as code: `@(*/* */)` must hide nothing.
    """
    return list(_tokenise(code))


# Extraction, gate and analysis each ask for the same text; few, because a text may be long.
@functools.lru_cache(maxsize=4)
def _tokenise(code: str) -> tuple[Token, ...]:
    found: list[Token] = []
    for match in _TOKEN.finditer(code):
        kind = match.lastgroup or "mark"
        if kind not in ("space", "comment"):
            found.append(Token(kind, match.group(), match.start()))
        if kind == "open":
            break
    return tuple(found)


def without_layout(code: str) -> str:
    """`code` without comments, indents, empty lines and runs of blanks.

    What is equal then is the same program, unless the preprocessor has work to do in it, which
    does not read comments as the language does.
    """
    parts: list[str] = []
    between = ""
    for match in _TOKEN.finditer(code):
        text = match.group()
        if match.lastgroup == "space":
            between = "\n" if "\n" in between + text else " "
        elif match.lastgroup == "comment":
            between = between or " "
        else:
            parts += [between if parts else "", text]
            between = ""
    return "".join(parts)


def comments_of(code: str) -> list[tuple[int, int]]:
    """Where the comments lie: start and end."""
    return [match.span() for match in _TOKEN.finditer(code) if match.lastgroup == "comment"]


def units_of(tokens: Sequence[Token]) -> list[Unit]:
    """Modules, interfaces, packages, primitives, classes and programs in order."""
    units: list[Unit] = []
    index = 0
    while index < len(tokens):
        start = index
        index += 1
        # `typedef class x;` announces a class, `extern module x(...);` a module.
        announced = start > 0 and tokens[start - 1].text in ("typedef", "extern")
        if tokens[start].text not in _UNIT_END or announced:
            continue
        while index < len(tokens) and tokens[index].text in ("automatic", "static"):
            index += 1
        name = tokens[index].text if index < len(tokens) else ""
        wanted = _UNIT_END[tokens[start].text]
        while index < len(tokens) and tokens[index].text != wanted:
            index += 1
        index = after_label(tokens, index + 1)
        units.append(Unit(name, list(tokens[start:index])))
    return units


def after_label(tokens: Sequence[Token], index: int) -> int:
    """The index after `: name`, when that is what stands at `index`."""
    labelled = index + 1 < len(tokens) and tokens[index].text == ":"
    return index + 2 if labelled and tokens[index + 1].kind in ("word", "escaped") else index


def after_parentheses(tokens: Sequence[Token], index: int) -> int:
    """The index after the parentheses that open at `index`; `index` itself when none do."""
    depth = 0
    while index < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index + 1 if tokens[index].text == ")" else index
        index += 1
    return index


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with each edit made; one that lies in a part already replaced is dropped."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start >= position:
            parts += [text[position : edit.start], edit.text]
            position = edit.end
    return "".join([*parts, text[position:]])


def outside(tokens: Iterable[Token], edits: Iterable[Edit]) -> list[Token]:
    """The tokens that begin in none of the parts replaced."""
    kept: list[Token] = []
    parts = sorted(edits, reverse=True)
    covered = 0
    for token in tokens:
        while parts and parts[-1].start <= token.start:
            covered = max(covered, parts.pop().end)
        if token.start >= covered:
            kept.append(token)
    return kept
