"""Acronyms and long forms: the method's own examples, and a shared task's development set."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from knowledge_graph.extractors.acronyms import find_definitions
from knowledge_graph.extractors.identifiers import find_short_forms

Spans = set[tuple[str, int, int]]


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("a hidden Markov model (HMM) is", "HMM", "hidden Markov model"),
        (
            "the Gcn5-related N-acetyltransferase (GNAT) family",
            "GNAT",
            "Gcn5-related N-acetyltransferase",
        ),
        ("uses DMA (direct memory access) here", "DMA", "direct memory access"),
        ("an input/output (I/O) pin", "I/O", "input/output"),
    ],
)
def test_definitions(text: str, short: str, long: str) -> None:
    found = [(item.short.text, item.long.text) for item in find_definitions(text)]
    assert found == [(short, long)]


@pytest.mark.parametrize("text", ["see the results (Table 3)", "the gate (open)", "a value (5 V)"])
def test_other_brackets_define_nothing(text: str) -> None:
    assert list(find_definitions(text)) == []


def test_f1_on_the_sdu_development_set(shared_data: Path) -> None:
    """The task's own baseline reaches 0.855 (macro average of short and long forms)."""
    rows = json.loads((shared_data / "graph/acronym/sdu_ai_dev.json").read_text("utf-8"))
    right: Counter[str] = Counter()
    said: Counter[str] = Counter()
    true: Counter[str] = Counter()
    for row in rows:
        gold, found = gold_spans(row), found_spans(row["tokens"])
        for name, spans in (("right", gold & found), ("said", found), ("true", gold)):
            counts = {"right": right, "said": said, "true": true}[name]
            counts.update(kind for kind, _, _ in spans)
    f1 = [2 * right[kind] / (said[kind] + true[kind]) for kind in ("short", "long")]
    assert sum(f1) / 2 >= 0.88


def gold_spans(row: dict[str, Any]) -> Spans:
    """Spans in characters of the tokens joined by spaces."""
    starts = token_starts(row["tokens"])
    spans: Spans = set()
    labels = [*row["labels"], "O"]
    for first, label in enumerate(labels):
        if label.startswith("B-"):
            last = first
            while labels[last + 1] == f"I-{label[2:]}":
                last += 1
            spans.add((label[2:], starts[first], starts[last] + len(row["tokens"][last])))
    return spans


def found_spans(tokens: list[str]) -> Spans:
    text = " ".join(tokens)
    spans: Spans = {("short", span.start, span.end) for span in find_short_forms(text)}
    for definition in find_definitions(text):
        spans.add(("short", definition.short.start, definition.short.end))
        spans.add(("long", definition.long.start, definition.long.end))
    return spans


def token_starts(tokens: list[str]) -> list[int]:
    starts, position = [], 0
    for token in tokens:
        starts.append(position)
        position += len(token) + 1
    return starts
