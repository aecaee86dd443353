"""Extractive summaries."""

from __future__ import annotations

import random
from itertools import pairwise

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
