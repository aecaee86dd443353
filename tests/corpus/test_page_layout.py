"""Reading order, furniture and captions on pages drawn in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.language import guess_language
from corpus.licence import find_licence
from corpus.parsed import Box
from corpus.parsers.captions import caption_kind, match_captions
from corpus.parsers.page_furniture import drop_repeated_images, find_furniture, page_number
from corpus.parsers.page_size import fit_dpi
from corpus.parsers.pdf_raw import RawBlock, RawImage, RawLine, RawPage
from corpus.parsers.reading_order import sort_reading_order

TWO_COLUMNS = {
    "title": Box(50, 50, 550, 80),
    "left 1": Box(50, 100, 290, 200),
    "left 2": Box(50, 210, 290, 400),
    "right 1": Box(310, 100, 550, 180),
    "right 2": Box(310, 190, 550, 400),
    "wide table": Box(50, 420, 550, 500),
    "below left": Box(50, 520, 290, 700),
    "below right": Box(310, 520, 550, 600),
    "below right 2": Box(310, 610, 550, 700),
}


@given(st.permutations(sorted(TWO_COLUMNS)))
def test_columns_between_wide_elements(names: list[str]) -> None:
    assert sort_reading_order(names, TWO_COLUMNS.__getitem__) == list(TWO_COLUMNS)


def test_a_label_beside_its_value_is_a_row() -> None:
    boxes = {
        "name": Box(50, 100, 90, 110),
        "value": Box(200, 100, 400, 110),
        "other name": Box(50, 120, 95, 130),
        "other value": Box(200, 120, 380, 130),
    }
    assert sort_reading_order(sorted(boxes), boxes.__getitem__) == list(boxes)


boxes = st.builds(
    lambda x, y, w, h: Box(x, y, x + w, y + h),
    st.floats(0, 500),
    st.floats(0, 700),
    st.floats(1, 500),
    st.floats(1, 200),
)


@given(st.lists(boxes, max_size=25))
def test_order_neither_loses_nor_doubles_anything(items: list[Box]) -> None:
    order = sort_reading_order(range(len(items)), items.__getitem__)
    assert sorted(order) == list(range(len(items)))


def page(number: int, *lines: tuple[float, str]) -> RawPage:
    blocks = tuple(
        RawBlock((RawLine(text, Box(60, y, 300, y + 10), 9.0),), Box(60, y, 300, y + 10))
        for y, text in lines
    )
    return RawPage(number, 600, 800, 0, blocks)


def furniture_texts(pages: list[RawPage]) -> set[tuple[int, str, str]]:
    return {
        (place.page, pages[place.page - 1].blocks[place.position].lines[0].text, category)
        for place, category in find_furniture(pages).items()
    }


def test_headers_change_with_the_chapter() -> None:
    chapters = ["Reset", "Reset", "Reset", "Clocks", "Clocks", "Clocks", "Clocks", "Debug"]
    pages = [
        page(n, (40, chapter), (400, f"Text of page {n}"), (770, f"Page {n + 4} of 99"))
        for n, chapter in enumerate(chapters, 1)
    ]
    found = furniture_texts(pages)
    # A chapter of one page is known by the place where the others have theirs.
    assert {(n, text) for n, text, kind in found if kind == "Header"} == set(enumerate(chapters, 1))
    assert sum(kind == "PageNumber" for _, _, kind in found) == 8
    assert not any(text.startswith("Text") for _, text, _ in found)


def test_numbers_that_do_not_grow_with_the_page_are_no_page_numbers() -> None:
    pages = [
        page(n, (60, text), (400, "words")) for n, text in enumerate(["6", "64", "3", "17"], 1)
    ]
    assert not furniture_texts(pages)


def test_a_logo_in_the_footer_is_kept_once() -> None:
    logo = RawImage(Box(30, 780, 80, 795), 50, 15, "logo")
    photo = RawImage(Box(30, 300, 300, 500), 270, 200, "photo")
    pages = [replace(page(n), images=(logo, photo)) for n in range(1, 6)]
    kept, left_out = drop_repeated_images(pages)
    assert [[image.file for image in p.images] for p in kept] == [["logo", "photo"]] + [
        ["photo"]
    ] * 4
    assert left_out == 4


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("- 7 -", 7),
        ("Page 3 of 9", 3),
        ("xiv", 14),
        ("iii", 3),
        ("XL", 40),
        ("2.1", None),
        ("Chapter 3", None),
    ],
)
def test_page_numbers(text: str, number: int | None) -> None:
    assert page_number(text) == number


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Figure 3: Pipeline", "figure"),
        ("Fig. 3-2 Pipeline", "figure"),
        ("Figure 12. The pipeline stalls", "figure"),
        ("Table 4", "table"),
        ("TABLE II. RESULTS", "table"),
        ("Figure 3 shows the pipeline", ""),
        ("Table 4 and Table 5 list them", ""),
        ("Tables are useful", ""),
        ("Figures of merit", ""),
    ],
)
def test_captions(text: str, kind: str) -> None:
    assert caption_kind(text) == kind


def test_one_caption_serves_two_figures_side_by_side() -> None:
    left, right = Box(50, 100, 280, 300), Box(320, 100, 550, 300)
    far = Box(50, 600, 550, 700)
    caption = Box(100, 310, 500, 322)
    assert match_captions([caption], [left, right, far]) == {0: 0, 1: 0}


def test_each_figure_takes_the_nearer_caption() -> None:
    figures = [Box(50, 100, 500, 200), Box(50, 240, 500, 340)]
    captions = [Box(50, 205, 400, 215), Box(50, 345, 400, 355)]
    assert match_captions(captions, figures) == {0: 0, 1: 1}


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(36, 600), st.integers(100_000, 10**8))
def test_no_page_is_rendered_over_the_cap(
    width: float, height: float, dpi: float, cap: int
) -> None:
    chosen = fit_dpi(width, height, dpi, cap)
    assert 0 < chosen <= dpi
    assert width * height * (chosen / 72) ** 2 <= cap * 1.001


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "The register is cleared by a write to the bit and it is read as zero in the mode that "
            "follows the reset of the core.",
            "en",
        ),
        (
            "Das Register wird durch einen Schreibzugriff auf das Bit gelöscht und ist nach einem "
            "Reset der Einheit nicht mit einer Eins belegt.",
            "de",
        ),
        ("蜂鸟处理器的开源系统芯片简介", "zh"),
        ("これはプロセッサの説明です", "ja"),
        ("Rejestr jest kasowany przez zapis do bitu po resecie rdzenia.", "pl"),
        ("Fan speed exceeds the limit of the board", "en"),
        ("CLK RST D Q EN", ""),
        ("R10 C12 100nF 16V 10k 0402 BSS123N D20 Q11 BAT46W", ""),
        ("assign y = a & b; wire [7:0] x; reg q;", ""),
        ("12 34 5.6 0x10", ""),
        ("", ""),
    ],
)
def test_language(text: str, code: str) -> None:
    assert guess_language(text) == code


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("// SPDX-License-Identifier: Apache-2.0 WITH SHL-2.1", "Apache-2.0 WITH SHL-2.1"),
        ("Licensed under the Apache License, Version 2.0 (the License)", "Apache-2.0"),
        ("This work is licensed under a Creative\nCommons Attribution 4.0 licence.", "CC-BY-4.0"),
        ("GNU Lesser General Public License, version 2.1 or later", "LGPL-2.1-or-later"),
        ("under the GNU General Public License, version 3", "GPL-3.0-only"),
        (
            "either version 2 of the GNU General Public License, or (at your option) any later "
            "version",
            "GPL-2.0-or-later",
        ),
        ("GNU Lesser General Public License", ""),
        ("CERN Open Hardware Licence Version 2 - Weakly Reciprocal", "CERN-OHL-W-2.0"),
        ("SPDX-License-Identifier: (MIT OR Apache-2.0)", "MIT OR Apache-2.0"),
        ("# SPDX-License-Identifier: Apache-2.0, see LICENSE for details", "Apache-2.0"),
        ("SPDX-License-Identifier: MIT OR CERN-OHL-S-2.0+", "MIT OR CERN-OHL-S-2.0+"),
        ("SPDX-License-Identifier: (MIT", ""),
        ("SPDX-License-Identifier: Nonsense-9", ""),
        ("Compare the MIT License with the ISC License.", ""),
        ("All rights reserved.", ""),
    ],
)
def test_licence(text: str, licence: str) -> None:
    assert find_licence(text) == licence
