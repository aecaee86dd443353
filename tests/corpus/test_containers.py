"""Documents inside archives and mails: none is lost, none is trusted."""

from __future__ import annotations

import gzip
import io
import shutil
import stat
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from archive_bytes import NOTE, places, tarred, zipped
from hypothesis import example, given
from hypothesis import strategies as st
from ingest_runs import configure, rows, run_ingest

from corpus import ingest, report
from corpus.children import MAX_NAME_CHARS, ContainerLimits, Listing, clean_name, list_children
from workspace.manifest import read_manifest


def mail_with(*attachments: tuple[str, bytes]) -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "Datasheets", "a@b.example", "c@d.example"
    mail.set_content("The data sheets are attached, as you asked on Monday.\n")
    for name, data in attachments:
        mail.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return mail.as_bytes()


def listed(tmp_path: Path, data: bytes, name: str, **limits: int) -> Listing:
    path = tmp_path / "given"
    path.write_bytes(data)
    return list_children(path, name, tmp_path / "files", ContainerLimits(**limits), ())


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    inner = zipped(
        {"deep.md": NOTE + "\nIt is deep.\n", ".hidden": "x", "more/table.csv": "a,b\n1,2\n"}
    )
    mail = mail_with(
        ("notes.md", NOTE.encode()), ("pack.zip", inner), ("junk.bin", bytes(range(256)))
    )
    (folder / "all.zip").write_bytes(
        zipped({"docs/inner.zip": inner, "letter.eml": mail, "../../evil.md": NOTE + "\nEvil.\n"})
    )
    (folder / "rtl.tar.gz").write_bytes(tarred({"rtl/m.v": b"module m(input a);\nendmodule\n"}))
    (folder / "one.md.gz").write_bytes(gzip.compress(NOTE.encode(), mtime=0))
    (folder / "empty.zip").write_bytes(zipped({}))
    (folder / "broken.zip").write_bytes(zipped({"a.txt": "x" * 100})[:-30])
    run_ingest(folder / "w", *sorted(folder.glob("*.*")))
    return folder / "w"


def test_every_member_is_a_document_or_in_quarantine(workspace: Path) -> None:
    kept = {uri for row in rows(workspace, "documents") for uri in row["uris"]}
    lost = {row["uri"] for row in rows(workspace, "quarantine")}
    short = {uri.removeprefix(f"{workspace.parent}/") for uri in kept | lost}
    assert not kept & lost
    assert short == {
        "all.zip",
        "all.zip!/evil.md",
        "all.zip!/docs/inner.zip",
        "all.zip!/docs/inner.zip!/deep.md",
        "all.zip!/docs/inner.zip!/more/table.csv",
        "all.zip!/letter.eml",
        "all.zip!/letter.eml!/notes.md",
        "all.zip!/letter.eml!/pack.zip",
        "all.zip!/letter.eml!/pack.zip!/deep.md",
        "all.zip!/letter.eml!/pack.zip!/more/table.csv",
        "all.zip!/letter.eml!/junk.bin",
        "rtl.tar.gz",
        "rtl.tar.gz!/rtl/m.v",
        "one.md.gz",
        "one.md.gz!/one.md",
        "empty.zip",
        "broken.zip",
    }
    reasons = {uri: row["reason"] for uri, row in places(workspace, "quarantine").items()}
    assert reasons == {
        "all.zip!/letter.eml!/junk.bin": "unsupported",
        "empty.zip": "empty",
        "broken.zip": "corrupt",
    }


def test_children_point_to_their_parent(workspace: Path) -> None:
    found = places(workspace, "documents")
    ids = {uri: row["doc_id"] for uri, row in found.items()}
    assert found["all.zip"]["parent_id"] == "" and found["all.zip"]["format"] == "zip"
    assert found["all.zip!/letter.eml"]["parent_id"] == ids["all.zip"]
    inner = found["all.zip!/docs/inner.zip"]
    assert inner["parent_id"] == ids["all.zip"] and len(inner["uris"]) == 2  # also in the mail
    assert found["all.zip!/docs/inner.zip!/deep.md"]["parent_id"] == inner["doc_id"]
    assert found["rtl.tar.gz!/rtl/m.v"]["format"] == "verilog"
    notes = found["all.zip!/letter.eml!/notes.md"]  # equal to what is in one.md.gz
    assert notes["name"] == "notes.md" and len(notes["uris"]) == 2


def test_the_report_puts_children_under_their_parent(workspace: Path) -> None:
    manifest = read_manifest(workspace / "corpus")
    assert manifest is not None and manifest.counts_in["children"] == 12
    lines = report.markdown(workspace / "corpus", manifest).splitlines()
    start = next(i for i, line in enumerate(lines) if "/all.zip` |" in line)
    assert lines[start + 1].startswith("| ↳ `") and lines[start + 2].startswith("| ↳↳ `")


def test_an_unchanged_archive_is_not_opened_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.parent
    config = configure(workspace, *sorted(folder.glob("*.*")))

    def refuse(workers: int, setup: dict[str, Any]) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(ingest, "warm_pool", refuse)
    assert ingest.plan(config).published is not None


def test_patterns_and_a_changed_setting_reach_the_members(workspace: Path, tmp_path: Path) -> None:
    """The archive's bytes are as before: its listing is remembered, its members come back."""
    shutil.copytree(workspace, tmp_path / "w")
    source = workspace.parent / "all.zip"
    include = ["*.zip", "deep.md"]
    run_ingest(tmp_path / "w", source, chunk_tokens=100, include=include, sync=True)
    assert {row["name"] for row in rows(tmp_path / "w", "documents")} == {
        "all.zip",
        "inner.zip",
        "deep.md",
    }


def test_a_changed_archive_replaces_its_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({"old.md": NOTE, "same.md": NOTE + "\nSame.\n"}))
    (tmp_path / "b.md").write_text(NOTE + "\nApart.\n")
    run_ingest(tmp_path / "w", path)
    path.write_bytes(zipped({"new.md": NOTE + "\nNew.\n", "same.md": NOTE + "\nSame.\n"}))
    run_ingest(tmp_path / "w", path)
    run_ingest(tmp_path / "w", tmp_path / "b.md")  # says nothing about the archive
    assert set(places(tmp_path / "w", "documents")) == {
        *("a.zip", "a.zip!/new.md", "a.zip!/same.md", "b.md")
    }
    run_ingest(tmp_path / "fresh", tmp_path / "b.md", path)
    assert rows(tmp_path / "w", "documents") == rows(tmp_path / "fresh", "documents")


def test_a_raised_limit_opens_what_was_refused(tmp_path: Path) -> None:
    (tmp_path / "many.zip").write_bytes(zipped({f"{i}.md": f"{NOTE}\n{i}" for i in range(4)}))
    run_ingest(tmp_path / "w", tmp_path / "many.zip", archive_max_members=3)
    assert places(tmp_path / "w", "quarantine")["many.zip"]["reason"] == "too_large"
    (tmp_path / "a.md").write_text(NOTE + "\nApart.\n")
    run_ingest(tmp_path / "w", tmp_path / "a.md", chunk_tokens=300)  # other settings, not given
    assert places(tmp_path / "w", "quarantine")["many.zip"]["reason"] == "too_large"
    run_ingest(tmp_path / "w", tmp_path / "many.zip", archive_max_members=4, chunk_tokens=300)
    assert len(rows(tmp_path / "w", "documents")) == 6 and not rows(tmp_path / "w", "quarantine")


def test_limits_refuse_the_archive_and_keep_the_rest(tmp_path: Path) -> None:
    nested = NOTE.encode()
    for level in range(4):
        nested = zipped({f"{level}.zip" if level else "note.md": nested})
    (tmp_path / "nested.zip").write_bytes(nested)
    (tmp_path / "bomb.zip").write_bytes(zipped({"zeros.txt": bytes(64 << 20)}))
    (tmp_path / "many.zip").write_bytes(zipped({f"{i}.md": f"{NOTE}\n{i}" for i in range(9)}))
    (tmp_path / "big.zip").write_bytes(zipped({"big.txt": b"ab " * (1 << 20), "small.md": NOTE}))
    sources = sorted(tmp_path.glob("*.zip"))
    run_ingest(tmp_path / "w", *sources, archive_max_members=5, max_file_mb=2, archive_depth=2)
    reasons = {uri: row["reason"] for uri, row in places(tmp_path / "w", "quarantine").items()}
    assert reasons == {
        "bomb.zip": "too_large",
        "many.zip": "too_large",
        "big.zip!/big.txt": "too_large",
        "nested.zip!/3.zip!/2.zip": "nested_too_deep",
    }
    assert "big.zip!/small.md" in places(tmp_path / "w", "documents")


def test_links_never_leave_the_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind, name in (
            (tarfile.SYMTYPE, "sym"),
            (tarfile.LNKTYPE, "hard"),
            (tarfile.CHRTYPE, "dev"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert [item.reason for item in listed(tmp_path, buffer.getvalue(), "a.tar").lost] == [
        "link"
    ] * 3
    info = zipfile.ZipInfo("sym")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr(info, "/etc/passwd")
    assert [item.reason for item in listed(tmp_path, buffer.getvalue(), "a.zip").lost] == ["link"]


def test_a_truncated_tar_keeps_what_was_before(tmp_path: Path) -> None:
    members = {"a.md": NOTE.encode(), "b.bin": bytes(range(256)) * 400}
    found = listed(tmp_path, tarred(members, "w")[:50_000], "a.tar")
    assert [child.name for child in found.children] == ["a.md"]
    assert found.reason == "corrupt" and "member 1" in found.detail


def test_equal_names_in_an_archive_stay_apart(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("a.md", "one")
        archive.writestr("a.md", "two")
    found = listed(tmp_path, buffer.getvalue(), "x.zip")
    assert [child.name for child in found.children] == ["a.md", "a~2.md"]


def test_7z(tmp_path: Path) -> None:
    py7zr = pytest.importorskip("py7zr", reason="7z archives need py7zr")
    path = tmp_path / "a.7z"
    with py7zr.SevenZipFile(path, "w") as archive:
        archive.writestr(NOTE, "docs/a.md")
        archive.writestr("x,y\n1,2\n", "b.csv")
    found = list_children(path, "a.7z", tmp_path / "f", ContainerLimits(), ())
    assert sorted((child.name, child.format) for child in found.children) == [
        ("b.csv", "csv"),
        ("docs/a.md", "md"),
    ]
    assert (tmp_path / "f" / found.children[0].doc_id).read_text() == NOTE
    with py7zr.SevenZipFile(path, "w", password="secret") as archive:
        archive.writestr(NOTE, "a.md")
    assert list_children(path, "a.7z", tmp_path / "f", ContainerLimits(), ()).reason == "encrypted"
    opened = list_children(path, "a.7z", tmp_path / "f", ContainerLimits(), ("no", "secret"))
    assert [child.name for child in opened.children] == ["a.md"] and not opened.reason


@given(st.text(max_size=60) | st.text("a/.", min_size=MAX_NAME_CHARS, max_size=MAX_NAME_CHARS + 20))
@example("0\u00a00")
@example("a\u20280")
def test_a_member_name_is_never_a_path_out(name: str) -> None:
    cleaned = clean_name(name)
    parts = cleaned.split("/")
    assert cleaned and ".." not in parts and "." not in parts and "" not in parts
    assert "\\" not in cleaned and cleaned.isprintable() and len(cleaned) <= MAX_NAME_CHARS
    cleaned.encode("utf-8")
