"""Extractive summaries."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.parsed import (
    ParsedCell,
    ParsedDocument,
    ParsedElement,
    ParsedImage,
    ParsedPage,
    ParsedTable,
)
from corpus.rows import DocumentRows, build_rows
from corpus.schema import SUMMARIES
from corpus.sentences import split_sentences
from corpus.summaries import DOCUMENT_SENTENCES, summarise
from workspace.shards import Row

PAGE = ParsedPage(1, 0, 0, "")


def rows(*elements: ParsedElement, title: str = "") -> DocumentRows:
    parsed = ParsedDocument("txt", "test", (PAGE,), elements, title=title)
    return build_rows("0" * 64, parsed, size_bytes=1)


def prose(text: str) -> ParsedElement:
    return ParsedElement("NarrativeText", text)


FAN = (
    "The fan controller measures the temperature of the board and sets the fan speed. "
    "The fan speed rises with the temperature of the board. "
    "A stalled fan raises an alarm for the fan controller. "
    "My aunt keeps seven green parrots in Lisbon. "
    "The fan controller reports the fan speed and the temperature."
)


def test_the_central_sentences_are_chosen_and_the_odd_one_is_not() -> None:
    document = rows(ParsedElement("Title", "Fan", level=1), prose(FAN))
    section = next(row for row in summarise(document) if row["level"] == "section")
    assert section["target_id"] == document.elements[0]["element_id"]
    assert len(section["text"].split("\n")) == 3
    assert "parrots" not in section["text"]
    assert section["source_element_ids"] == [document.elements[1]["element_id"]]


def test_every_sentence_of_a_summary_stands_in_its_sources() -> None:
    elements = [ParsedElement("Title", f"Part {n}", level=1 + n % 2) for n in range(6)]
    mixed = [
        e for title in elements for e in (title, prose(FAN.replace("fan", f"fan{title.text[-1]}")))
    ]
    document = rows(*mixed, title="All parts")
    texts = {row["element_id"]: row["text"] for row in document.elements}
    summaries = summarise(document)
    assert [row["level"] for row in summaries].count("section") == 6
    for row in summaries:
        assert set(row) == set(SUMMARIES.names)
        for sentence in row["text"].split("\n"):
            assert any(sentence in texts[source] for source in row["source_element_ids"])
    assert len(summaries[0]["text"].split("\n")) <= DOCUMENT_SENTENCES
    assert (summaries[0]["level"], summaries[0]["title"]) == ("document", "All parts")


def test_numbers_of_a_table_with_their_rows() -> None:
    cells = (
        ParsedCell(0, 0, "Pin", is_header=True),
        ParsedCell(0, 1, "Delay (ns)", is_header=True),
        *(ParsedCell(i + 1, 0, name) for i, name in enumerate(("CLK", "RST", "D"))),
        *(ParsedCell(i + 1, 1, value) for i, value in enumerate(("1.25", "12", "0.5"))),
    )
    table = ParsedElement("Table", "", table=ParsedTable(cells, caption="Table 2: Timing."))
    row = next(row for row in summarise(rows(table)) if row["level"] == "table")
    assert row["text"] == (
        "Table 2: Timing: 3 rows by 2 columns (Pin, Delay [ns]). "
        "Delay ranges from 0.5 ns (D) to 12 ns (RST)."
    )


def test_figures_take_the_sentence_that_speaks_of_them() -> None:
    image = ParsedElement("Image", "", image=ParsedImage(b"x", 1, 1, "Figure 3: The blocks"))
    text = prose("This is the first part. As Figure 3 shows, the fan is driven by the controller.")
    row = next(row for row in summarise(rows(text, image)) if row["level"] == "figure")
    assert row["text"].split("\n") == [
        "Figure 3: The blocks",
        "As Figure 3 shows, the fan is driven by the controller.",
    ]


def test_a_document_with_nothing_has_no_summary() -> None:
    assert summarise(rows()) == []
    assert summarise(rows(ParsedElement("Header", "page 1"))) == []


@given(st.lists(st.text("The and a.!? \nxyz0", max_size=60), max_size=12))
def test_any_text_gives_the_same_summary_each_time(texts: list[str]) -> None:
    elements = [prose(text) if len(text) % 3 else ParsedElement("Title", text) for text in texts]
    document = rows(*elements)
    assert summarise(document) == summarise(document)


def test_abbreviations_do_not_end_sentences() -> None:
    text = (
        "See Fig. 3 and Sec. 2.1 for details, e.g. the max. current. Dr. A. Berg measured it. "
        'It is 3.3 V. "Is that all?" No! It rises approx. 5 % per year (cf. Table 2).'
    )
    assert [sentence.text for sentence in split_sentences(text)] == [
        "See Fig. 3 and Sec. 2.1 for details, e.g. the max. current.",
        "Dr. A. Berg measured it.",
        "It is 3.3 V.",
        '"Is that all?"',
        "No!",
        "It rises approx. 5 % per year (cf. Table 2).",
    ]


@given(st.text('Ab c.!?\n"1)', max_size=80))
def test_sentences_are_slices_in_order_that_leave_only_space_out(text: str) -> None:
    sentences = split_sentences(text)
    for sentence in sentences:
        assert text[sentence.start : sentence.end] == sentence.text == sentence.text.strip() != ""
    borders = [0, *(place for s in sentences for place in (s.start, s.end)), len(text)]
    gaps = list(pairwise(borders))[::2]
    assert all(not text[start:end].strip() for start, end in gaps)


def test_each_of_many_sections_is_summarised_and_the_document_stays_short() -> None:
    generator = random.Random(1)
    words = ["fan", "speed", "board", "chip", "value", "clock", "reset", "alarm", "window"]
    sections = []
    for n in range(400):
        sections.append(ParsedElement("Title", f"Section {n}", level=1))
        text = " ".join(f"The {' '.join(generator.choices(words, k=9))} is good." for _ in range(8))
        sections.append(prose(text))
    summaries = summarise(rows(*sections))
    assert [row["level"] for row in summaries] == ["document"] + ["section"] * 400
    assert len(summaries[0]["text"].split("\n")) == DOCUMENT_SENTENCES


def document_summary(*elements: ParsedElement) -> Row:
    return next(row for row in summarise(rows(*elements)) if row["level"] == "document")


def test_the_authors_own_abstract_is_the_summary_of_the_document() -> None:
    row = document_summary(
        ParsedElement("Title", "1. Introduction", level=1),
        prose(FAN),
        ParsedElement("Title", "Abstract", level=1),
        prose("We measure fans. Fans are quieter when driven by pulses of a high frequency. "
              "The controller of this paper saves a third of the power of older ones."),
        ParsedElement("Title", "References", level=1),
        prose("Fans and more fans are described by the authors of the earlier paper."),
    )  # fmt: skip
    assert row["method"] == "abstract"
    assert row["text"].split("\n") == [
        "Fans are quieter when driven by pulses of a high frequency.",
        "The controller of this paper saves a third of the power of older ones.",
    ]


NOTICE = (
    "No part of this manual may be copied without written permission of the publisher. "
    "The publisher gives no warranty of any kind for the contents of this manual. "
)


@pytest.mark.parametrize(
    "debris",
    [
        NOTICE,
        "Copyright 2026 by the makers of the fan controller and the fan speed board.",
        "Fan speed control of the fan controller . . . . . . . . . . . . . . 12.",
        "Figure 3: The fan speed and the temperature of the fan controller board.",
        "and the fan speed of the fan controller is set by the temperature of the board.",
        "The fan speed of the fan controller and the temperature (of the board.",
        "FAN CONTROLLER SPEED AND TEMPERATURE OF THE FAN BOARD AND ALARM.",
        "speed = temperature of the fan controller = 3 = board fan speed.",
        "The fan controller \ufffd\ufffd reports fan speed and the temperature board.",
    ],
)
def test_no_notice_caption_heading_or_cut_sentence_is_in_a_summary(debris: str) -> None:
    row = document_summary(prose(debris), ParsedElement("Title", "Fan", level=1), prose(FAN))
    assert {*row["text"].split("\n")} <= {s.text for s in split_sentences(FAN)}


def test_references_and_notices_are_left_out_of_the_document() -> None:
    sections = ("References", "Legal notices", "9 Acknowledgements", "A.1 Revision history")
    late = "The fan controller sets the fan speed by the temperature of the board alone. "
    row = document_summary(
        *(e for name in sections for e in (ParsedElement("Title", name, level=1), prose(FAN))),
        ParsedElement("Title", "2 Function", level=1),
        prose(late + "A second part of the board keeps count of the turns of each fan."),
    )
    assert row["text"].split("\n")[0] == late.strip()
    assert "parrots" not in row["text"] and len(row["text"].split("\n")) == 2


def test_list_numbers_and_bullets_are_no_part_of_a_sentence() -> None:
    row = document_summary(
        prose("2. The fan controller sets the fan speed by the temperature of the board."),
        prose("• The board reports a stalled fan to the host by way of an interrupt."),
    )
    assert [line[:4] for line in row["text"].split("\n")] == ["The ", "The "]


def test_slides_without_sentences_give_their_longer_lines() -> None:
    lines = ["All fans contain the same basic resources", "Fan speed is set by the temperature",
             "Alarm lines report a stalled fan"]  # fmt: skip
    assert document_summary(*map(prose, lines))["text"].split("\n") == lines


def test_chinese_sentences_end_at_their_own_full_stop() -> None:
    text = "本文介绍全开源的蜂鸟处理器核以及配套开源系统。本系统的总线地址分配如下表所示。"
    assert [sentence.text for sentence in split_sentences(text)] == [
        "本文介绍全开源的蜂鸟处理器核以及配套开源系统。",
        "本系统的总线地址分配如下表所示。",
    ]


def test_a_picture_that_nobody_named_has_no_summary() -> None:
    image = ParsedElement("Image", "", image=ParsedImage(b"x", 1, 1, "Content Placeholder 6"))
    assert [row["level"] for row in summarise(rows(image))] == []
