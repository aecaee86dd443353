"""Lines of a PDF page -> paragraphs.

A block of the backend is split where the style, the spacing or a list marker says that something
new begins; then neighbours in reading order are joined when the first plainly goes on in the
second (some producers write every line as its own block).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from corpus.parsed import Box
from corpus.parsers.boxes import enclose, horizontal_overlap
from corpus.parsers.pdf_raw import RawLine

# Symbol fonts without a usable encoding give private-use or replacement characters.
_GLYPHS: Final = "•◦▪‣●○■□➢✓·\uf0b7\uf0a7\uf0d8\ufffd"
BULLET: Final = re.compile(rf"^(?:[{_GLYPHS}]\s*|[–—*-]\s+)(?=\S)")
LIST_MARKER: Final = re.compile(
    rf"^(?:[{_GLYPHS}]\s*\S|[–—*-]\s|\(?(?:\d{{1,2}}|[a-z]|[ivx]{{1,4}})[.)]\s+\S)"
)
# Code goes on after this much empty space, in line heights.
BLANK_LINES: Final = 2.6
_ENDS: Final = re.compile(r"[.:;!?]['\")\]]?$")


@dataclass(frozen=True)
class Paragraph:
    """Lines that belong together, in order; the style is that of the first line."""

    lines: tuple[RawLine, ...]

    @property
    def box(self) -> Box:
        return enclose(line.box for line in self.lines)

    @property
    def size(self) -> float:
        return self.lines[0].size

    @property
    def bold(self) -> bool:
        return all(line.bold for line in self.lines)

    @property
    def mono(self) -> bool:
        return all(line.mono for line in self.lines)

    @property
    def upright(self) -> bool:
        return self.lines[0].upright

    @property
    def text(self) -> str:
        return join_code(self.lines) if self.mono else join_lines(self.lines)


def split_block(lines: Sequence[RawLine]) -> list[Paragraph]:
    """Paragraphs of one block, in its order."""
    groups: list[list[RawLine]] = []
    for line in lines:
        if groups and not _begins_new(groups[-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [Paragraph(tuple(group)) for group in groups]


def join_broken(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """Join neighbours in reading order where the first goes on in the second."""
    joined: list[Paragraph] = []
    for paragraph in paragraphs:
        if joined and _goes_on(joined[-1], paragraph):
            joined[-1] = Paragraph(joined[-1].lines + paragraph.lines)
        else:
            joined.append(paragraph)
    return joined


def join_lines(lines: Iterable[RawLine]) -> str:
    """Running text; a word broken by a hyphen at a line's end is made whole."""
    text = ""
    for line in lines:
        if re.search(r"[a-z]{2}-$", text) and re.match(r"[a-z]{2}", line.text):
            text = text[:-1] + line.text
        else:
            text = f"{text} {line.text}" if text else line.text
    return " ".join(text.split())


def join_code(lines: Iterable[RawLine]) -> str:
    """Code keeps its lines, and its indentation as far as the page shows it."""
    rows = list(lines)
    left = min(line.box.x0 for line in rows)
    text: list[str] = []
    previous: RawLine | None = None
    for line in rows:
        advance = max((line.box.x1 - line.box.x0) / max(len(line.text), 1), 1.0)
        if previous is not None and _same_row(previous, line):
            gap = round((line.box.x0 - previous.box.x1) / advance)
            text[-1] += " " * max(gap, 1) + line.text
        else:
            if previous is not None and line.box.y0 - previous.box.y1 > 0.8 * line.height:
                text.append("")
            text.append(" " * round((line.box.x0 - left) / advance) + line.text)
        previous = line
    return "\n".join(text)


def _begins_new(group: Sequence[RawLine], line: RawLine) -> bool:
    last = group[-1]
    if _same_row(last, line):
        return False
    if abs(last.size - line.size) > 0.6 or last.mono != line.mono or last.upright != line.upright:
        return True
    if LIST_MARKER.match(line.text) and not line.mono:
        return True
    gap = line.box.y0 - last.box.y1
    if gap > (BLANK_LINES * last.height if line.mono else 0.8 * last.height):
        return True
    # A bold line above plain ones is a heading that was set without space.
    return last.bold and not line.bold and all(item.bold for item in group) and not line.mono


def _goes_on(first: Paragraph, second: Paragraph) -> bool:
    last, line = first.lines[-1], second.lines[0]
    # A sentence may turn bold in its middle; a heading does not begin in lower case.
    same_style = (
        abs(last.size - line.size) <= 0.6
        and first.mono == second.mono
        and (first.bold == second.bold or line.text[:1].islower())
        and last.upright == line.upright
    )
    if not same_style or not last.upright:
        return False
    gap = line.box.y0 - last.box.y1
    limit = BLANK_LINES if first.mono else 0.6
    if not -0.5 * last.height <= gap <= limit * last.height:
        return False
    if horizontal_overlap(first.box, second.box) < 0.5:
        return False
    if first.mono:
        return True
    return not (LIST_MARKER.match(line.text) or _ENDS.search(last.text)) and _is_full(first, second)


def _is_full(first: Paragraph, second: Paragraph) -> bool:
    """Whether the last line of `first` reaches far enough to have been broken."""
    right = max(first.box.x1, second.box.x1)
    last = first.lines[-1].box
    return last.x1 > right - 0.25 * (right - min(first.box.x0, second.box.x0))


def _same_row(first: RawLine, second: RawLine) -> bool:
    if not first.upright or not second.upright:
        return False
    middle = (second.box.y0 + second.box.y1) / 2
    return first.box.y0 <= middle <= first.box.y1 and second.box.x0 >= first.box.x1 - 1
