"""Pages of a table of contents, or of a list of figures or tables.

Their lines look like headings, numbered lists and tables, and are none: they say where others
stand. A page is one when most of its rows end in page numbers that do not fall, and it says so in
its title, has dot leaders, or follows one. Rows of data that end in rising numbers have neither.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from corpus.parsers.headings import is_leader
from corpus.parsers.pdf_raw import RawLine, RawPage

MIN_ENTRIES: Final = 4
MIN_LEADERS: Final = 3
# Long entries take several rows, of which the last has the number.
MIN_SHARE: Final = 0.6
MIN_SHARE_WITH_LEADERS: Final = 0.4
# Front matter is numbered apart, and a volume may go on with the numbers of another.
RISING_SHARE: Final = 0.9
_SAME_ROW_PT: Final = 2.0
_TITLE: Final = re.compile(
    r"(?:table of )?contents|list of (?:figures|tables|listings|examples|algorithms)|figures|"
    r"tables|inhalt(?:sverzeichnis)?|(?:abbildungs|tabellen)verzeichnis|table des matières|"
    r"sommaire|índice(?: general)?|目\s*录|目次",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(
    r"[^\W\d].*?[\s.…·_]+(?:(?P<number>\d{1,4})|(?P<roman>[ivxlc]{1,7}))$", re.IGNORECASE
)


def is_contents_title(text: str) -> bool:
    """Whether a line says that a list of contents follows."""
    return bool(_TITLE.fullmatch(text.strip(" .:\t")))


def is_entry(text: str) -> bool:
    """Whether a text may name a section and end in its page."""
    return is_leader(text) or bool(_ENTRY.search(text.strip()))


def find_contents_pages(
    pages: Iterable[RawPage], is_furniture: Callable[[int, int], bool]
) -> set[int]:
    """Numbers of such pages. `is_furniture` takes a page and the position of a line in it."""
    found: set[int] = set()
    for page in pages:
        lines = itertools.chain.from_iterable(block.lines for block in page.blocks)
        flowing = [
            line
            for position, line in enumerate(lines)
            if line.upright and not is_furniture(page.page, position)
        ]
        if _lists_contents(list(_rows(flowing)), follows=page.page - 1 in found):
            found.add(page.page)
    return found


def _lists_contents(rows: Sequence[str], *, follows: bool) -> bool:
    entries = [match for row in rows if (match := _ENTRY.search(row))]
    n_leaders = sum(is_leader(row) for row in rows)
    has_leaders = n_leaders >= MIN_LEADERS
    if not (has_leaders or follows or any(map(is_contents_title, rows))):
        return False
    share = MIN_SHARE_WITH_LEADERS if has_leaders else MIN_SHARE
    # The last page may have one entry alone.
    enough = 1 if follows and n_leaders else MIN_ENTRIES
    if len(entries) < max(enough, share * len(rows)):
        return False
    numbers = [int(match["number"]) for match in entries if match["number"]]
    rising = sum(one <= other for one, other in itertools.pairwise(numbers))
    return rising >= RISING_SHARE * (len(numbers) - 1)


def _rows(lines: Iterable[RawLine]) -> Iterator[str]:
    """Texts of lines on the same height, from left to right."""
    row: list[RawLine] = []
    for line in sorted(lines, key=lambda line: line.box.y1):
        if row and line.box.y1 - row[0].box.y1 > _SAME_ROW_PT:
            yield _joined(row)
            row = []
        row.append(line)
    if row:
        yield _joined(row)


def _joined(row: Iterable[RawLine]) -> str:
    return " ".join(line.text.strip() for line in sorted(row, key=lambda line: line.box.x0))
