"""Verilog as text: comments out, lines tidy, the header apart from the body."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_DIRECTIVE = re.compile(r"^[ \t]*`(?:timescale|default_nettype|resetall)[^\n]*\n?", re.MULTILINE)


def without_comments(source: str) -> str:
    """Comments removed (strings kept), trailing blanks and empty lines too."""
    bare = _TOKEN.sub(lambda m: m.group() if m.group().startswith('"') else " ", source)
    bare = "\n".join(line.rstrip() for line in bare.splitlines())
    return _BLANK_LINES.sub("\n", bare).strip()


def compact(source: str) -> str:
    """Comments and time-scale directives removed, tabs and runs of blanks narrowed."""
    bare = _DIRECTIVE.sub("", without_comments(source) + "\n")
    lines = []
    for line in bare.splitlines():
        text = line.strip()
        indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        if text:
            lines.append(" " * min(indent, 8) + re.sub(r"[ \t]+", " ", text))
    return "\n".join(lines)


def header_end(source: str, name: str) -> int | None:
    """Index just behind the `;` that ends the header of module `name`, None when not found.

    The port list has no `;` of its own outside strings and comments, which are expected to be
    gone.
    """
    match = re.search(rf"\bmodule\s+(?:automatic\s+|static\s+)?{re.escape(name)}\b", source)
    if match is None:
        return None
    end = source.find(";", match.end())
    return None if end < 0 else end + 1
