"""Measures of a found table against the true one: adjacency relations, spanning cells, TEDS.

Adjacency relations are ICDAR-2013's (Goebel et al. 2013): each filled cell with the next filled one
to its right and below. TEDS is the tree edit distance similarity of Zhong et al. 2020 ("Image-based
table recognition"): 1 - distance / size of the larger tree, where renaming a cell costs the
normalised edit distance of its text if its spans agree, else 1. The tree edit distance is APTED's.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rapidfuzz.distance import Levenshtein

_LEADER: Final = re.compile(r"\.{4,}$")


class Cell(NamedTuple):
    row: int
    col: int
    row_span: int
    col_span: int
    text: str


Table = Sequence[Cell]
Relation = tuple[str, str, str]


class Score(NamedTuple):
    """Precision, recall and F1 of one document."""

    precision: float
    recall: float
    f1: float


def squeeze(text: str) -> str:
    """Text without spaces, case, ligatures and leader dots, which tools render differently."""
    plain = "".join(unicodedata.normalize("NFKC", text).split()).lower()
    return _LEADER.sub("", plain)


def relations(cells: Table) -> Counter[Relation]:
    """Neighbours in a table; empty cells are looked through."""
    grid = _grid(cells)
    height = max((row for row, _ in grid), default=-1) + 1
    width = max((col for _, col in grid), default=-1) + 1
    pairs: set[tuple[Cell, Cell, str]] = set()
    for (row, col), cell in grid.items():
        if not squeeze(cell.text):
            continue
        right = ((row, c) for c in range(col + 1, width))
        below = ((r, col) for r in range(row + 1, height))
        for direction, path in (("right", right), ("below", below)):
            other = next((grid[place] for place in path if _is_other(grid, place, cell)), None)
            if other is not None:
                pairs.add((cell, other, direction))
    return Counter((squeeze(a.text), squeeze(b.text), direction) for a, b, direction in pairs)


def _grid(cells: Table) -> dict[tuple[int, int], Cell]:
    return {
        (row, col): cell
        for cell in cells
        for row in range(cell.row, cell.row + cell.row_span)
        for col in range(cell.col, cell.col + cell.col_span)
    }


def _is_other(grid: dict[tuple[int, int], Cell], place: tuple[int, int], cell: Cell) -> bool:
    return place in grid and grid[place] != cell and bool(squeeze(grid[place].text))


def adjacency(expected: Iterable[Table], found: Iterable[Table]) -> Score:
    """Over all tables of a document together."""
    wanted = sum((relations(table) for table in expected), Counter[Relation]())
    given = sum((relations(table) for table in found), Counter[Relation]())
    hits = (wanted & given).total()
    precision = hits / given.total() if given else float(not wanted)
    recall = hits / wanted.total() if wanted else 1.0
    both = precision + recall
    return Score(precision, recall, 2 * precision * recall / both if both else 0.0)


def spanning(tables: Iterable[Table]) -> Counter[tuple[str, int, int]]:
    """Filled cells that span, as (text, row span, column span)."""
    return Counter(
        (squeeze(cell.text), cell.row_span, cell.col_span)
        for table in tables
        for cell in table
        if squeeze(cell.text) and (cell.row_span > 1 or cell.col_span > 1)
    )


def spans_recalled(expected: Iterable[Table], found: Iterable[Table]) -> int:
    """True spanning cells found with the same text and the same spans."""
    return (spanning(expected) & spanning(found)).total()


def teds(expected: Table, found: Table) -> float:
    """Similarity of two tables, 0 to 1."""
    from apted import APTED

    size = max(_size(expected), _size(found))
    distance = APTED(_tree(expected), _tree(found), _costs()).compute_edit_distance()
    return float(1 - distance / size)


class _Node:
    """A node of a table's tree as APTED takes it."""

    def __init__(self, tag: str, cell: Cell | None = None) -> None:
        self.tag = tag
        self.cell = cell
        self.children: list[_Node] = []


def _tree(cells: Table) -> _Node:
    root = _Node("table")
    rows: dict[int, _Node] = {}
    for cell in sorted(cells):
        if cell.row not in rows:
            rows[cell.row] = _Node("tr")
            root.children.append(rows[cell.row])
        rows[cell.row].children.append(_Node("td", cell))
    return root


def _size(cells: Table) -> int:
    return 1 + len({cell.row for cell in cells}) + len(cells)


def _costs() -> Any:
    from apted import Config

    class Costs(Config):  # type: ignore[misc]
        def rename(self, node1: _Node, node2: _Node) -> float:
            if node1.tag != node2.tag:
                return 1.0
            first, second = node1.cell, node2.cell
            if first is None or second is None:
                return 0.0
            if first[2:4] != second[2:4]:
                return 1.0
            return float(Levenshtein.normalized_distance(squeeze(first.text), squeeze(second.text)))

    return Costs()


def document_teds(expected: Sequence[Table], found: Sequence[Table]) -> list[float]:
    """For each true table, its similarity to the found one that shares most words with it.

    A found table answers for one true table; a true one without a partner counts 0.
    """
    words = [Counter(squeeze(cell.text) for cell in table if cell.text) for table in found]
    pairs = sorted(
        (
            -(Counter(squeeze(cell.text) for cell in table if cell.text) & words[item]).total(),
            number,
            item,
        )
        for number, table in enumerate(expected)
        for item in range(len(found))
    )
    partner: dict[int, int] = {}
    for shared, number, item in pairs:
        if shared < 0 and number not in partner and item not in partner.values():
            partner[number] = item
    return [
        teds(table, found[partner[number]]) if number in partner else 0.0
        for number, table in enumerate(expected)
    ]
