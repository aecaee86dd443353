"""Plain text: paragraphs with unstructured's categories.

Lines that a writer broke by hand are joined to paragraphs, except where they are indented or
aligned (listings, ASCII tables), which stay as they are in one CodeSnippet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from corpus.parsed import ParsedDocument, ParsedElement, ParseOptions
from corpus.parsers import characters, documents
from corpus.parsers.unstructured_setup import classify, version

_BLANK_LINES: Final = re.compile(r"\n\s*\n")
_ITEM: Final = re.compile(r"\s*(?:[-*•◦▪‣+o]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+\S")
_UNDERLINE: Final = re.compile(r"([=\-~^#*_])\1{2,}\s*$")
_RULE: Final = re.compile(r"[\s=\-~^#*_+|]{3,}")
_NUMBERED: Final = re.compile(r"(\d+(?:\.\d+)*)\.?\s+[A-Z]")


def parse_text(path: Path, options: ParseOptions) -> ParsedDocument:
    """A text file of any common encoding."""
    return documents.build(
        "txt", version("unstructured"), read_paragraphs(characters.read_text(path))
    )


def read_paragraphs(text: str) -> list[ParsedElement]:
    """Elements of a plain text, in order, all on page 1."""
    elements: list[ParsedElement] = []
    for block in _BLANK_LINES.split(text.expandtabs(4)):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        elements.extend(_elements(lines))
    return elements


def _elements(lines: list[str]) -> list[ParsedElement]:
    """One block between blank lines: a heading, a listing, list items or a paragraph."""
    lines = _strip_rules(lines)
    if not lines:
        return []
    if len(lines) > 1 and _UNDERLINE.match(lines[1]):
        level = 1 if lines[1][0] in "=#*" else 2
        heading = ParsedElement("Title", lines[0].strip(), level=level)
        return [heading, *_elements(lines[2:])]
    if _is_listing(lines):
        return [ParsedElement("CodeSnippet", "\n".join(lines))]
    return [_element(" ".join(item)) for item in _items(lines)]


def _strip_rules(lines: list[str]) -> list[str]:
    """Without the lines of dashes around a block."""
    while lines and _RULE.fullmatch(lines[0]):
        lines = lines[1:]
    while len(lines) != 2 and lines and _RULE.fullmatch(lines[-1]):
        lines = lines[:-1]
    return lines


def _is_listing(lines: list[str]) -> bool:
    """Columns or code: most lines have inner runs of spaces, or lines are indented by four."""
    aligned = sum(bool(re.search(r"\S {3,}\S", line)) for line in lines)
    indented = sum(line.startswith("    ") for line in lines)
    has_code = any(re.search(r"[;{}=<>]|\w\(|0x", line) for line in lines)
    return (len(lines) > 1 and 2 * aligned > len(lines)) or (indented == len(lines) and has_code)


def _items(lines: list[str]) -> list[list[str]]:
    """Lines grouped into list items, or one group when there is no list."""
    groups: list[list[str]] = []
    for line in lines:
        if not groups or _ITEM.match(line):
            groups.append([line.strip()])
        else:
            groups[-1].append(line.strip())
    return groups


def _element(text: str) -> ParsedElement:
    category = classify(text)
    if category != "Title":
        return ParsedElement(category, text)
    numbered = _NUMBERED.match(text)
    level = numbered[1].count(".") + 1 if numbered else 1
    return ParsedElement("Title", text, level=level)


FORMATS: Final = {"txt": parse_text}
