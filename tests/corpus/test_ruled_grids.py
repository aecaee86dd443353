"""Pages whose rules cannot form cells are told from those where MuPDF finds a ruled table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.parsers.pdf_pymupdf import load
from corpus.parsers.pdf_pymupdf_characters import KNOWN_RELEASES
from corpus.parsers.pdf_pymupdf_tables import _find_ruled
from corpus.parsers.ruled_grids import may_hold_grid

LEFT, TOP = 60, 80


def draw(rules: Callable[[Any], None]) -> pymupdf.Document:
    document = pymupdf.open()
    rules(document.new_page())
    # Read back as a reader of the file sees it.
    return pymupdf.open(stream=document.tobytes(), filetype="pdf")


def as_lines(page: Any, xs: list[int], ys: list[int]) -> None:
    for x in xs:
        page.draw_line((x, ys[0]), (x, ys[-1]))
    for y in ys:
        page.draw_line((xs[0], y), (xs[-1], y))


def as_cells(page: Any, xs: list[int], ys: list[int]) -> None:
    for x0, x1 in itertools.pairwise(xs):
        for y0, y1 in itertools.pairwise(ys):
            page.draw_rect((x0, y0, x1, y1))


def as_bars(page: Any, xs: list[int], ys: list[int]) -> None:
    for x in xs:
        page.draw_rect((x - 0.5, ys[0], x + 0.5, ys[-1]), fill=(0, 0, 0), color=None)
    for y in ys:
        page.draw_rect((xs[0], y - 0.5, xs[-1], y + 0.5), fill=(0, 0, 0), color=None)


def as_inner_rules(page: Any, xs: list[int], ys: list[int]) -> None:
    as_lines(page, xs[1:-1] or xs, ys)
    for y in ys[1:-1]:
        page.draw_line((xs[0], y), (xs[-1], y))


@given(
    st.lists(st.integers(30, 120), min_size=2, max_size=4),
    st.lists(st.integers(16, 60), min_size=2, max_size=6),
    st.sampled_from([as_lines, as_cells, as_bars, as_inner_rules]),
    st.sampled_from([0, 90]),
)
def test_every_grid_that_is_found_is_foretold(
    widths: list[int], heights: list[int], rule: Callable[..., None], rotation: int
) -> None:
    xs = [LEFT + sum(widths[:n]) for n in range(len(widths) + 1)]
    ys = [TOP + sum(heights[:n]) for n in range(len(heights) + 1)]

    def rules(page: Any) -> None:
        rule(page, xs, ys)
        for x in xs[:-1]:
            for y in ys[1:]:
                page.insert_text((x + 4, y - 4), "7 V", fontsize=8)
        page.set_rotation(rotation)

    page = draw(rules)[0]
    foretold = may_hold_grid(page.get_cdrawings())
    assert foretold or not _find_ruled(page, "fast").tables


@pytest.mark.parametrize(
    "rules",
    [
        lambda page: page.draw_line((60, 50), (540, 50)),
        lambda page: [page.draw_line((60, 50 + 14 * n), (300, 50 + 14 * n)) for n in range(30)],
        lambda page: page.draw_rect((60, 80, 540, 300)),
        lambda page: [page.draw_rect((60, 80 + 60 * n, 540, 120 + 60 * n)) for n in range(5)],
        lambda page: page.draw_circle((300, 300), 80),
    ],
    ids=["header rule", "underlines", "frame", "frames", "circle"],
)
def test_other_rules_are_no_grid(rules: Callable[[Any], None]) -> None:
    assert not may_hold_grid(draw(rules)[0].get_cdrawings())


def test_no_ruled_table_of_real_pages_is_missed(shared_data: Path) -> None:
    seen = 0
    for path in sorted((shared_data / "tables").rglob("*.pdf"))[::3]:
        with pymupdf.open(path) as document:
            for page in list(document)[:3]:
                drawings = page.get_cdrawings()
                if may_hold_grid(drawings) or len(drawings) > 5000:
                    continue
                seen += 1
                assert not _find_ruled(page, "fast").tables, f"{path.name}, page {page.number + 1}"
    assert seen > 5


def test_the_faster_characters_are_the_originals(shared_data: Path) -> None:
    from pymupdf import table

    library = load()
    assert pymupdf.VersionBind in KNOWN_RELEASES, "compare with the new release, then add it"
    ours = table.make_chars
    assert library is pymupdf and ours.original is not ours
    for path in sorted((shared_data / "tables").rglob("*.pdf"))[::6]:
        with pymupdf.open(path) as document:
            for page in list(document)[:2]:
                both = []
                for make_chars in (ours.original, ours):
                    table._CHARS_VAR.set([])
                    make_chars(page)
                    both.append(list(table.CHARS))
                assert [list(char) for char in both[0]] == [list(char) for char in both[1]]
                for theirs, own in zip(*both, strict=True):
                    assert {**own, **_flipped(theirs)} == theirs
                    for name, value in _flipped(own).items():
                        assert value == pytest.approx(theirs[name], abs=1e-3)


def _flipped(char: dict[str, Any]) -> dict[str, Any]:
    """What is computed in 32 bits there."""
    return {"y0": char["y0"], "y1": char["y1"], "matrix": char["matrix"]}
