"""URLs and lists of sources: what is fetched, described and refused."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
from archive_bytes import NOTE, places, zipped
from ingest_runs import configure, rows, run_ingest

from corpus import ingest
from corpus.source_list import read_source_list
from corpus.sources import uri_name, uri_suffix
from workspace.errors import UserError


def test_urls_are_downloaded_once(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/docs/a.md", NOTE.encode())
    system.pipe("/docs/sub/pack.zip", zipped({"b.md": NOTE + "\nInside.\n"}))
    run_ingest(tmp_path / "w", "memory://docs")
    found = {row["uri"]: row for row in rows(tmp_path / "w", "documents")}
    assert set(found) == {
        "memory:///docs/a.md",
        "memory:///docs/sub/pack.zip",
        "memory:///docs/sub/pack.zip!/b.md",
    }
    assert not (tmp_path / "w/corpus/.work").exists()
    config = configure(tmp_path / "w", "memory://docs")
    assert ingest.plan(config).published is not None
    # Other settings want the bytes again, and only then they are fetched.
    run_ingest(tmp_path / "w", "memory://docs", chunk_tokens=99)
    assert {row["uri"] for row in rows(tmp_path / "w", "documents")} == set(found)
    system.pipe("/docs/a.md", (NOTE + "\nChanged.\n").encode())
    run_ingest(tmp_path / "w", "memory://docs/*.md", sync=True)
    (changed,) = rows(tmp_path / "w", "documents")
    assert changed["doc_id"] != found["memory:///docs/a.md"]["doc_id"]


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("memory://nothing/here", "nothing is there"),
        ("nosuch://x/y", "no protocol"),
        ("zip://a.pdf::memory://b.zip", "chained"),
    ],
)
def test_a_wrong_url_says_what_to_do(tmp_path: Path, url: str, cure: str) -> None:
    with pytest.raises(UserError, match=cure):
        ingest.plan(configure(tmp_path, url))


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    try:
        import s3fs  # noqa: F401  # type: ignore[import-not-found]
    except ImportError:
        with pytest.raises(UserError, match="pip install s3fs"):
            ingest.plan(configure(tmp_path, "s3://bucket/docs"))
    else:
        pytest.skip("s3fs is installed")


def test_a_list_describes_its_documents(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(NOTE)
    (tmp_path / "b.zip").write_bytes(zipped({"c.md": NOTE + "\nOther.\n"}))
    table = tmp_path / "list.csv"
    table.write_text(
        "path,title,licence,tags,owner\n"
        "a.md,Watchdog note,CC-BY-4.0,reset; core,team 7\n"
        "b.zip,,MIT,core,\n"
        "gone.md,,,,\n"
    )
    run_ingest(tmp_path / "w", source_list=[table])
    found = places(tmp_path / "w", "documents")
    note, inside = found["a.md"], found["b.zip!/c.md"]
    assert (note["title"], note["licence"], note["tags"]) == (
        "Watchdog note",
        "CC-BY-4.0",
        ["core", "reset"],
    )
    metadata = json.loads(note["metadata_json"])
    assert metadata["list.owner"] == "team 7" and metadata["document.title"] == "Note"
    assert (inside["title"], inside["licence"], inside["tags"]) == ("Note", "MIT", ["core"])
    assert places(tmp_path / "w", "quarantine")["gone.md"]["reason"] == "unreadable"
    # A run that knows less takes nothing away; in a mirror the document's own words are back.
    run_ingest(tmp_path / "w", tmp_path / "a.md")
    assert places(tmp_path / "w", "documents")["a.md"] == note
    assert "b.zip!/c.md" in places(tmp_path / "w", "documents")
    manifest = run_ingest(tmp_path / "w", tmp_path / "a.md", sync=True)
    (plain,) = rows(tmp_path / "w", "documents")
    assert manifest.notes["reused_documents"] == 1
    assert (plain["title"], plain["licence"], plain["tags"]) == ("Note", "", [])
    assert "list.owner" not in plain["metadata_json"]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("l.csv", "title\nx\n", "uri or path"),
        ("l.csv", "uri,path\na,b\n", "exactly one"),
        ("l.csv", "uri,title\na\n", "line 2: 1 fields"),
        ("l.csv", "uri\n", "no entries"),
        ("l.csv", "uri,uri\na,b\n", "twice"),
        ("l.jsonl", '{"uri": "a"}\n{"uri"\n', "line 2: not JSON"),
        ("l.jsonl", '{"uri": "a", "title": ["x"]}', "title"),
        ("l.txt", "a\n", "csv"),
    ],
)
def test_a_wrong_list_names_the_line(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=fault) as caught:
        read_source_list(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "name", "suffix"),
    [
        ("/a/b.PDF", "b.PDF", ".pdf"),
        ("/a/x.zip!/in/b.tar.gz", "b.tar.gz", ".gz"),
        ("https://h/x/report%201.pdf?sig=a/b.c", "report 1.pdf", ".pdf"),
        ("s3://bucket/key.zip!/m?.md", "m?.md", ".md"),
        ("/odd/what?.txt", "what?.txt", ".txt"),
    ],
)
def test_names_in_uris(uri: str, name: str, suffix: str) -> None:
    assert (uri_name(uri), uri_suffix(uri)) == (name, suffix)
