"""Comments of a Verilog source: where they stand and what they say, without frames and licences."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

# Strings are matched too, so that `"//"` inside one starts no comment.
_LEXEME: Final = re.compile(rb'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_FRAME: Final = re.compile(r"^[\s/*#=\-~+|!<]*|[\s/*#=\-~+|]*$")
_LICENCE: Final = re.compile(
    r"copyright|licen[sc]e|spdx|permission|warrant|liab|\(c\)|©|all rights reserved|"
    r"redistribut|merchantab|damages|as is\"|without fee",
    re.IGNORECASE,
)
_TOOL: Final = re.compile(
    r"^\s*(verilator|synopsys|synthesis|pragma|verilog_lint|spyglass|lint_|svlint|vim:|-\*-|"
    r"translate_o|coverage|cadence|altera|xilinx|yosys)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[;{}]\s*$|^\s*`|<=|^\s*(assign|always|wire|reg|input|output|end)\b")
_SPDX: Final = re.compile(r"SPDX-License-Identifier:\s*([\w.+()-]+(?: (?:OR|AND|WITH) [\w.+-]+)*)")
_NAMED_LICENCE: Final = (
    ("Apache-2.0", re.compile(r"Apache License,?\s+Version 2\.0", re.I)),
    ("SHL", re.compile(r"Solderpad Hardware Licen[sc]e", re.I)),
    ("ISC", re.compile(r"Permission to use, copy, modify, and(/or)? distribute this\s", re.I)),
    (
        "MIT",
        re.compile(r"\bMIT\b( Licen[sc]e)?|Permission is hereby granted, free of charge", re.I),
    ),
    ("BSD", re.compile(r"Redistribution and use in source and binary forms", re.I)),
    ("LGPL", re.compile(r"GNU Lesser General Public", re.I)),
    ("GPL", re.compile(r"GNU General Public", re.I)),
)


@dataclass(frozen=True)
class Comment:
    """One `//` line or `/* */` block; byte offsets, lines from 1."""

    start: int
    end: int
    line: int
    end_line: int
    text: str
    stands_alone: bool  # nothing but spaces before it on its line


class Comments:
    """All comments of a source, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._line_starts = [0, *(match.end() for match in re.finditer(rb"\n", data))]
        self.all = [
            self._comment(match)
            for match in _LEXEME.finditer(data)
            if not match.group().startswith(b'"')
        ]
        self._starts = [comment.start for comment in self.all]

    def line_of(self, offset: int) -> int:
        """Line number of a byte offset."""
        return bisect_right(self._line_starts, offset)

    def between(self, start: int, end: int) -> list[Comment]:
        """Comments that lie wholly in a range of bytes."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return [comment for comment in self.all[first:last] if comment.end <= end]

    def of_declaration(self, start: int, end: int, limit: int) -> str:
        """What is said about the declaration at `start`..`end`: behind it, else right above it.

        `limit` is where the next declaration starts; a comment behind that belongs to it.
        """
        line = self.line_of(max(start, end - 1))
        behind = [comment for comment in self.between(end, limit) if comment.line == line]
        if behind:
            return describe(behind)
        first = self.line_of(start)
        above: list[Comment] = []
        for index in range(bisect_left(self._starts, start) - 1, -1, -1):
            comment = self.all[index]
            wanted = above[0].line if above else first
            if not comment.stands_alone or comment.end_line + 1 != wanted:
                break
            above.insert(0, comment)
        return describe(above)

    def groups(self, start: int, end: int) -> list[list[Comment]]:
        """Comments of a range that stand alone, those on adjacent lines together."""
        groups: list[list[Comment]] = []
        for comment in self.between(start, end):
            if not comment.stands_alone:
                continue
            if groups and groups[-1][-1].end_line + 1 == comment.line:
                groups[-1].append(comment)
            else:
                groups.append([comment])
        return groups

    def _comment(self, match: re.Match[bytes]) -> Comment:
        line = self.line_of(match.start())
        before = self._data[self._line_starts[line - 1] : match.start()]
        return Comment(
            match.start(),
            match.end(),
            line,
            self.line_of(max(match.start(), match.end() - 1)),
            match.group().decode("utf-8", "replace"),
            not before.strip(),
        )


def describe(comments: list[Comment]) -> str:
    """The plain words: no frames, tool directives, commented-out code or licence paragraphs."""
    lines = [_FRAME.sub("", line) for comment in comments for line in comment.text.split("\n")]
    kept: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        parts = [line for line in paragraph.split("\n") if line.strip()]
        parts = [line for line in parts if not _TOOL.search(line) and not _CODE.search(line)]
        legal = sum(bool(_LICENCE.search(line)) for line in parts)
        if legal and 3 * legal >= len(parts) and len(parts) > 3:
            continue
        parts = [line for line in parts if not _LICENCE.search(line)]
        if parts:
            kept.append("\n".join(parts))
    return "\n\n".join(kept)


def licence(comments: list[Comment]) -> str:
    """The licence that the comments state, by SPDX identifier or a well-known text; "" if none."""
    text = " ".join(" ".join(_FRAME.sub("", line) for line in c.text.split("\n")) for c in comments)
    stated = _SPDX.search(text)
    if stated:
        return stated[1]
    if not _LICENCE.search(text):
        return ""
    return next((name for name, pattern in _NAMED_LICENCE if pattern.search(text)), "")
