"""unstructured works offline, and the shortcut for prose says what it would say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corpus.parsers import text as text_parser
from corpus.parsers.unstructured_setup import category_of, classify, prepare


def test_the_private_names_that_are_set_still_exist() -> None:
    from unstructured.nlp import tokenize

    assert hasattr(tokenize, "_load_spacy_model")
    assert prepare() == tokenize._SPACY_MODEL_NAME
    assert tokenize.sent_tokenize("It rains. We stay.") == ["It rains.", "We stay."]


def test_no_parser_touches_the_network(tmp_path: Path) -> None:
    """A fresh process, because modules that were imported before might have been online then."""
    (tmp_path / "a.md").write_text("# Title\n\nThe device answers at once.\n", encoding="utf-8")
    script = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError(f"network: {args}")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from pathlib import Path
from corpus.parsed import ParseOptions
from corpus.parsers.registry import find_parser
document = find_parser("md")(Path(sys.argv[1]), ParseOptions())
print([element.category for element in document.elements])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.md")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.strip() == "['Title', 'NarrativeText']", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("The tachometer counts edges in a window. It raises an alarm.", "NarrativeText"),
        ("Electrical Characteristics", "Title"),
        ("• Low power", "ListItem"),
        ("3. Connect the supply.", "ListItem"),
        ("mara@aurora.example", "EmailAddress"),
        ("0x300", "UncategorizedText"),
    ],
)
def test_categories_are_those_of_unstructured(text: str, category: str) -> None:
    assert classify(text) == category


def test_the_shortcut_agrees_with_the_tagger_on_real_paragraphs(shared_data: Path) -> None:
    from unstructured.partition.text import element_from_text

    path = shared_data / "corpus" / "semiconductor" / "ibex__icache.rst"
    paragraphs = [" ".join(p.split()) for p in path.read_text(encoding="utf-8").split("\n\n")]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    assert len(paragraphs) > 50
    prepare()
    ours = [classify(paragraph) for paragraph in paragraphs]
    theirs = [category_of(element_from_text(paragraph)) for paragraph in paragraphs]
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= 0.97 * len(paragraphs)


def test_headings_lists_and_listings_of_a_plain_text() -> None:
    text = (
        "MANUAL\n======\n\nThe first paragraph goes on\nin a second line and says a lot.\n\n"
        "- one point\n- another point\n  that goes on\n\n"
        "    assign y = a & b;\n    assign z = a | b;\n\n2.1 Clock Tree\n"
    )
    elements = text_parser.read_paragraphs(text)
    assert [(element.category, element.level) for element in elements] == [
        ("Title", 1),
        ("NarrativeText", 0),
        ("ListItem", 0),
        ("ListItem", 0),
        ("CodeSnippet", 0),
        ("Title", 2),
    ]
    assert elements[1].text == "The first paragraph goes on in a second line and says a lot."
    assert elements[3].text.endswith("another point that goes on")
    assert elements[4].text == "    assign y = a & b;\n    assign z = a | b;"
