"""Names of code in text: recall on a real manual, and behaviour on hostile text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_graph.extractors.identifiers import find_identifiers, find_short_forms


def names(text: str) -> list[str]:
    return [span.text for span in find_identifiers(text)]


def test_identifiers_among_words() -> None:
    text = "Set the EN_bit in CTRL0 (see aes64ds), then write 0x1F to `status`; e.g. 10 MHz."
    assert names(text) == ["EN_bit", "CTRL0", "aes64ds", "0x1F", "status"]


def test_addresses_paths_and_sentence_joins_are_not_names() -> None:
    assert names("mail a_b@example.com or /usr/lib/foo_bar at the end.The next") == []


def test_asciidoc_macros_mark_names() -> None:
    assert names("An insn:mret[] or field::[mpelp] access.") == ["mret", "mpelp"]


def test_short_forms_but_not_in_shouted_headings() -> None:
    assert [s.text for s in find_short_forms("The UART and two DRAMs on the SoC run.")] == [
        "UART",
        "DRAMs",
        "SoC",
    ]
    assert list(find_short_forms("ABSOLUTE MAXIMUM RATINGS OF THE UART")) == []


def test_recall_of_the_riscv_manual(shared_data: Path) -> None:
    text = (shared_data / "graph/riscv/isa_manual_text.adoc").read_text("utf-8")
    entities = json.loads((shared_data / "graph/riscv/udb_entities.json").read_text("utf-8"))
    words = set(re.findall(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", text))
    present = {entity["name"] for entity in entities if len(entity["name"]) > 1} & words
    found: set[str] = set()
    for paragraph in re.split(r"\n\s*\n", text):
        found.update(names(paragraph))
        found.update(span.text for span in find_short_forms(paragraph))
    assert len(present) > 350
    assert len(present & found) / len(present) >= 0.80


@given(st.text(alphabet="aA0_.`'\"&/-[]: \n@", max_size=400))
def test_spans_are_ordered_and_quote_the_text(text: str) -> None:
    end = 0
    for span in find_identifiers(text):
        assert end <= span.start < span.end
        assert text[span.start : span.end] == span.text
        end = span.end


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["_", "a-", "A", "a.", "`", "a_", "(", "aB"])
def test_long_monotonous_text_ends(piece: str) -> None:
    text = "a" + piece * 20_000 + "!"
    list(find_identifiers(text))
    list(find_short_forms(text))
