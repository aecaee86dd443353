"""The index of the corpus browser follows what is published, and says what it cannot read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from browser_client import ask, listed, open_client, piece_in
from browser_corpora import doc_id_of, publish_rows

from corpus.browser.__main__ import main
from corpus.browser.index import open_index
from corpus.browser.published import Published
from workspace.errors import MissingInputError, UserError


@pytest.fixture(scope="module")
def workspace(hostile_workspace: Path) -> Path:
    return hostile_workspace


def note(number: int, text: str) -> dict[str, list[dict[str, Any]]]:
    document = {"doc_id": doc_id_of(number), "name": f"{number}.txt", "metadata_json": "{}"}
    element = {"doc_id": doc_id_of(number), "page": 1, "text": text, "metadata_json": "{}"}
    return {"documents": [document], "elements": [element]}


def test_what_is_published_next_is_shown_without_a_restart(tmp_path: Path) -> None:
    publish_rows(tmp_path, note(1, "The first note of them all."))
    client = open_client(tmp_path)
    before = client.get("/documents.json")
    assert set(listed(client)) == {"1.txt"}
    publish_rows(tmp_path, note(2, "The second note, about walruses."))
    assert set(listed(client)) == {"2.txt"}
    assert client.get("/documents.json").headers["etag"] != before.headers["etag"]
    assert ask(client, "/search.json?text=walruses")["total"] == 1
    assert ask(client, "/search.json?text=first")["total"] == 0
    assert len(list((tmp_path / ".cache").glob("*.sqlite"))) == 1  # the old index is gone


def test_a_damaged_or_missing_corpus_is_said(tmp_path: Path, workspace: Path) -> None:
    with pytest.raises(MissingInputError, match="is not published yet"):
        open_client(tmp_path)
    assert main(["--workspace", str(tmp_path), "--static", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    client = open_client(copy)
    for path in (copy / "corpus/elements").iterdir():
        path.unlink()
    doc_id = listed(client)["manual.pdf"]["doc_id"]
    response = client.get(f"/data/{doc_id}/page-1-0.json")
    assert response.status_code == 500 and "elements" in response.json()["error"]


def test_what_a_killed_browser_left_is_swept(tmp_path: Path) -> None:
    publish_rows(tmp_path, note(1, "A note."))
    left = tmp_path / ".cache" / ".tmp-0123456789ab-corpus-browser-1-aaaa.sqlite"
    left.parent.mkdir()
    left.write_bytes(b"half an index")
    assert set(listed(open_client(tmp_path))) == {"1.txt"}
    assert not left.exists()


def test_an_empty_corpus_is_shown_as_such(tmp_path: Path) -> None:
    publish_rows(tmp_path, {})
    client = open_client(tmp_path)
    assert ask(client, "/documents.json")["total"] == 0
    assert ask(client, "/search.json?text=a")["rows"] == []
    target = tmp_path / "out"
    assert main(["--workspace", str(tmp_path), "--static", str(target)]) == 0
    assert piece_in(target, "corpus")["n_search_files"] == 0


def test_an_index_that_cannot_be_written_names_the_cure(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--cache"):
        open_index(Published(workspace / "corpus"), tmp_path / "file")
