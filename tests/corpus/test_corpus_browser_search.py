"""Search of the corpus browser: what is found, where it leads, and that no text is an operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_client import ask, listed, one_document, open_client
from browser_corpora import HOSTILE_NAME, IMAGE, doc_id_of
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from corpus.browser.index import connect, open_index
from corpus.browser.listing import search
from corpus.browser.published import Published


@pytest.fixture(scope="module")
def workspace(hostile_workspace: Path) -> Path:
    return hostile_workspace


def test_search_leads_to_the_page_and_the_element(client: TestClient) -> None:
    found = ask(client, "/search.json?text=register+zebraf")
    (hit,) = found["rows"]
    assert hit["name"] == HOSTILE_NAME and found["total"] == 1
    marked = [text for text, is_hit in hit["snippet"] if is_hit]
    assert marked == ["zebrafish", "register"]
    assert IMAGE in "".join(text for text, _ in hit["snippet"])
    page = ask(client, f"/data/{hit['doc_id']}/page-{hit['page']}-0.json")
    assert page["elements"][hit["place"]]["element_id"] == hit["element_id"]


def test_search_finds_words_inside_scripts_without_spaces(client: TestClient) -> None:
    (hit,) = ask(client, "/search.json?text=字の説")["rows"]
    assert "漢字の説明" in "".join(text for text, _ in hit["snippet"])
    assert ["字の説", True] in hit["snippet"]
    assert not ask(client, "/search.json?text=字漢")["rows"]


def test_of_very_many_hits_the_first_are_shown(tmp_path: Path) -> None:
    elements = [
        {"doc_id": doc_id_of(1), "element_id": f"{n:032x}", "page": 1 + n // 100, "order": n,
         "category": "ListItem", "text": "the cell", "metadata_json": "{}"}
        for n in range(10_050)
    ]  # fmt: skip
    one_document(tmp_path, {"elements": elements})
    found = ask(open_client(tmp_path), "/search.json?text=cell&page=2")
    assert found["total"] == 10_000 and found["is_more"]
    assert [(hit["page"], hit["place"]) for hit in found["rows"]] == [
        (1, n) for n in range(50, 100)
    ]


def test_search_inside_one_document(client: TestClient) -> None:
    documents = listed(client)
    inside = ask(client, f"/search.json?text=overview&doc_id={documents['manual.pdf']['doc_id']}")
    assert inside["rows"] and {row["name"] for row in inside["rows"]} == {"manual.pdf"}
    assert not ask(client, f"/search.json?text=overview&doc_id={documents['counter.v']['doc_id']}")[
        "rows"
    ]


@settings(max_examples=150)
@given(text=st.text(max_size=40))
def test_no_text_is_an_operator_of_the_search(workspace: Path, text: str) -> None:
    index = open_index(Published(workspace / "corpus"), workspace / ".cache")
    connection = connect(index)
    try:
        found = search(connection, text, 1)
    finally:
        connection.close()
    words = [word for word in text.split() if any(char.isalnum() for char in word)]
    assert found["total"] == 0 or words
