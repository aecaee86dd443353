"""Terms, statements and sentences from parsed text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from knowledge_graph.candidates import Extraction, TextUnit
from knowledge_graph.extractors import language
from knowledge_graph.extractors.noun_chunks import find_terms
from knowledge_graph.extractors.prose import extract_prose

ALL = ("noun_chunk", "identifier", "acronym", "sentence")


def unit(text: str, element_id: str = "e") -> TextUnit:
    return TextUnit("d", element_id, 3, 0, [1.0, 2.0, 3.0, 4.0], "NarrativeText", text)


def extract(text: str) -> Extraction:
    return extract_prose([unit(text)], ALL)


def facts(text: str) -> set[tuple[str, str, str]]:
    return {(r.head_key, r.predicate, r.tail_key) for r in extract(text).relations}


def test_articles_counts_and_loose_adjectives_are_trimmed() -> None:
    found = extract("Each of the three other voltage regulators feeds a 32-bit register file.")
    keys = {mention.key for mention in found.mentions if mention.kind == "noun_chunk"}
    assert keys == {"voltage regulator", "32 bit register file"}


def test_words_that_name_nothing_are_counted_and_dropped() -> None:
    found = extract("The following figure shows the result of this section in 2019.")
    assert found.mentions == []
    assert found.rejects["generic_term"] >= 2


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("A latch is a storage element.", ("latch", "is_a", "storage element")),
        (
            "Peripherals such as timers and watchdogs use the bus.",
            ("watchdog", "is_a", "peripheral"),
        ),
        ("The pipeline consists of a decoder and an adder.", ("pipeline", "has_part", "adder")),
        ("The decoder is part of the pipeline.", ("decoder", "part_of", "pipeline")),
        ("PLL stands for phase-locked loop.", ("pll", "stands_for", "phase locked loop")),
        ("The counter is incremented by the scheduler.", ("scheduler", "increment", "counter")),
        ("The arbiter connects to the crossbar.", ("arbiter", "connect_to", "crossbar")),
    ],
)
def test_statement_patterns(text: str, fact: tuple[str, str, str]) -> None:
    assert fact in facts(text)


def test_negation_states_nothing() -> None:
    found = extract("The controller does not support the debug module.")
    assert found.relations == []
    assert found.rejects["negated"] == 1


def test_positions_are_those_of_the_elements_text() -> None:
    text = "First line\nwith the branch\npredictor. " + "Filler sentence here. " * 600
    text += "At the end stands the return stack buffer and `mtvec`."
    found = extract(text)
    places = {m.surface: text[m.char_start : m.char_end] for m in found.mentions}
    assert places["branch predictor"] == "branch\npredictor"
    assert places["return stack buffer"] == "return stack buffer"
    assert places["mtvec"] == "mtvec"
    last = found.sentences[-1]
    assert last.text == "At the end stands the return stack buffer and `mtvec`."


def test_batches_do_not_change_what_is_found() -> None:
    units = [unit("The cache controller drives the memory bus.", f"e{n}") for n in range(3)]
    together = extract_prose(units, ALL)
    apart = Extraction()
    for one in units:
        apart.add(extract_prose([one], ALL))
    assert together == apart


def test_span_f1_on_scierc(shared_data: Path) -> None:
    """Exact, untyped spans of scientific terms; general named-entity labels reach 0.04 here."""
    sentences = read_conll(shared_data / "graph/scierc/ner_dev.txt")
    right = said = true = 0
    units = [unit(" ".join(words), str(n)) for n, (words, _) in enumerate(sentences)]
    for one, offset, parsed in language.parse(units):
        gold = sentences[int(one.element_id)][1]
        found = {(t.start + offset, t.end + offset) for t in find_terms(parsed, Counter())}
        right, said, true = right + len(gold & found), said + len(found), true + len(gold)
    assert len(sentences) > 250
    assert 2 * right / (said + true) >= 0.45


def read_conll(path: Path) -> list[tuple[list[str], set[tuple[int, int]]]]:
    """Sentences as words and gold spans, in characters of the words joined by spaces."""
    sentences = []
    for block in path.read_text("utf-8").split("\n\n"):
        lines = [line.split() for line in block.splitlines() if line.strip()]
        if not lines or lines[0][0] == "-DOCSTART-":
            continue
        words, labels = [line[0] for line in lines], [line[-1][2:] for line in lines]
        spans, position, start = set(), 0, -1
        for index, (word, label) in enumerate(zip(words, labels, strict=True)):
            if label and (index == 0 or labels[index - 1] != label):
                start = position
            position += len(word)
            if label and (index + 1 == len(labels) or labels[index + 1] != label):
                spans.add((start, position))
            position += 1
        sentences.append((words, spans))
    return sentences
