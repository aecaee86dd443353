"""Which files a list of sources names, and what each file is by its content."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpus_samples import picture, text_pdf
from hypothesis import given
from hypothesis import strategies as st

from corpus import discover
from corpus.given_files import GivenFiles, Patterns
from corpus.parse_documents import RANGE_PAGES, page_ranges
from corpus.sniff import sniff
from corpus.sources import SourceList
from workspace.errors import UserError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.pdf", "b.txt", "deep/c.txt", "deep/er/d.md", ".git/config", "deep/.cache"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return tmp_path


def find_sources(
    sources: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> SourceList:
    given = GivenFiles(Patterns(include, exclude))
    for source in sources:
        given.add(source)
    return discover.find_sources(given).sources


def names(found: SourceList) -> list[str]:
    return sorted(Path(uri).name for uri in found.uris)


def test_a_folder_is_walked_without_hidden_names(tree: Path) -> None:
    found = find_sources([str(tree)])
    assert names(found) == ["a.pdf", "b.txt", "c.txt", "d.md"]
    assert found.hidden == 2


def test_patterns_look_at_names_and_paths(tree: Path) -> None:
    only_text = find_sources([str(tree)], include=["*.txt"])
    assert names(only_text) == ["b.txt", "c.txt"] and only_text.excluded == 2
    assert names(find_sources([str(tree)], exclude=["deep/*"])) == ["a.pdf", "b.txt"]


def test_globs_files_and_folders_add_up_in_any_order(tree: Path) -> None:
    sources = [
        str(tree / "*.pdf"),
        str(tree / "deep"),
        str(tree / "deep/c.txt"),
        str(tree / "**/d.*"),
    ]
    forward, backward = find_sources(sources), find_sources(sources[::-1])
    assert forward == backward
    assert names(forward) == ["a.pdf", "c.txt", "d.md"]


def test_a_link_to_a_folder_is_not_followed_in_circles(tree: Path) -> None:
    (tree / "deep/loop").symlink_to(tree, target_is_directory=True)
    assert names(find_sources([str(tree)])) == ["a.pdf", "b.txt", "c.txt", "d.md"]


def test_a_broken_link_is_unreadable_not_lost(tree: Path) -> None:
    (tree / "gone.pdf").symlink_to(tree / "nowhere")
    found = find_sources([str(tree)])
    assert [Path(item.uri).name for item in found.refused] == ["gone.pdf"]


@pytest.mark.parametrize("source", ["nosuch://bucket/docs", "missing.pdf", "no*match.pdf"])
def test_a_wrong_source_is_named(source: str) -> None:
    with pytest.raises(UserError) as caught:
        find_sources([source])
    assert source in str(caught.value)


def container(path: Path, *members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, "x")
    return path


def test_content_beats_the_suffix(tmp_path: Path) -> None:
    """Each file carries a suffix that lies."""
    text_pdf(tmp_path / "pdf", ["words"])
    (tmp_path / "png").write_bytes(picture())
    container(tmp_path / "docx", "[Content_Types].xml", "word/document.xml")
    container(tmp_path / "xlsx", "[Content_Types].xml", "xl/workbook.xml")
    container(tmp_path / "zip", "readme")
    (tmp_path / "html").write_text("<!DOCTYPE html><html><body>Hello</body></html>")
    (tmp_path / "svg").write_text('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "rtf").write_text(r"{\rtf1 Hello}")
    (tmp_path / "corrupt_zip").write_bytes(b"PK\x03\x04 and no more")
    for path in tmp_path.iterdir():
        assert sniff(path, ".jpg") == path.name


@pytest.mark.parametrize(
    ("text", "suffix", "expected"),
    [
        ("# Title\n", ".md", "md"),
        ("Title\n=====\n", ".rst", "rst"),
        ("a,b\n1,2\n", ".csv", "csv"),
        ("module m; endmodule\n", ".sv", "systemverilog"),
        ("// top\nmodule m(input a);\nendmodule\n", "", "verilog"),
        ("From: a@b\nTo: c@d\nSubject: x\n\nhello\n", "", "eml"),
        ("BMW makes cars\n", ".txt", "txt"),
        ("Grüße aus München\n", ".txt", "txt"),
    ],
)
def test_text_kinds(tmp_path: Path, text: str, suffix: str, expected: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    assert sniff(path, suffix) == expected


def test_other_encodings_are_text_and_noise_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for encoding in ("latin-1", "utf-16"):
        path.write_bytes("Ein längerer Satz über Öfen.\n".encode(encoding))
        assert sniff(path, ".txt") == "txt"
    path.write_bytes(bytes(range(256)))
    assert sniff(path, ".txt") == "unknown"


@given(st.sets(st.integers(1, 300)))
def test_page_ranges_cover_each_page_once(pages: set[int]) -> None:
    ranges = list(page_ranges(sorted(pages)))
    covered = [page for first, last in ranges for page in range(first, last + 1)]
    assert covered == sorted(pages)
    assert all(last - first < RANGE_PAGES for first, last in ranges)
