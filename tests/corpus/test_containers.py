# ruff: noqa: E501
"""Documents inside archives and mails, URLs, lists and passwords: none is lost, none is trusted."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import stat
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import fsspec
import pymupdf
import pytest
from corpus_samples import text_pdf
from hypothesis import example, given
from hypothesis import strategies as st
from ingest_runs import configure, rows, run_ingest

from corpus import ingest, report
from corpus.children import MAX_NAME_CHARS, ContainerLimits, Listing, clean_name, list_children
from corpus.parsed import ParseOptions
from corpus.parsers.registry import find_parser
from corpus.sniff import sniff
from corpus.source_list import read_source_list
from corpus.sources import uri_name, uri_suffix
from workspace.errors import UserError
from workspace.manifest import read_manifest

NOTE = "# Note\n\nThe reset of the watchdog is synchronous and active high.\n"


def zipped(members: dict[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


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


def places(workspace: Path, table: str) -> dict[str, dict[str, Any]]:
    """Rows by their uri without the folder."""
    prefix = f"{workspace.parent}/"
    return {row["uri"].removeprefix(prefix): row for row in rows(workspace, table)}


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


def locked_pdf(path: Path, user: str, owner: str = "owner") -> Path:
    with pymupdf.open(text_pdf(path.with_suffix(".plain"), ["Words behind a lock."])) as document:
        document.save(
            path,
            encryption=pymupdf.PDF_ENCRYPT_AES_256,
            user_pw=user,
            owner_pw=owner,
            no_new_id=True,
        )
    path.with_suffix(".plain").unlink()
    return path


@pytest.mark.parametrize("backend", ["pymupdf", "pypdfium2"])
def test_a_password_given_later_opens(tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    locked_pdf(folder / "locked.pdf", "geheim")
    locked_pdf(folder / "other.pdf", "unknown")
    locked_pdf(folder / "owner-only.pdf", "")
    run_ingest(tmp_path / "w", folder, pdf_backend=backend)
    rows_of = rows(tmp_path / "w", "quarantine")
    assert {Path(row["uri"]).name: row["reason"] for row in rows_of} == {
        "locked.pdf": "encrypted",
        "other.pdf": "encrypted",
    }
    assert all("--passwords" in row["detail"] for row in rows_of)
    secret = tmp_path / "secret.txt"
    secret.write_text("wrong\ngeheim\n")
    config = configure(tmp_path / "w", folder, pdf_backend=backend, passwords=secret)
    planned = ingest.plan(config)
    (kept,) = (tmp_path / "w/corpus/.work").glob("passwords-*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    others = [p for p in (tmp_path / "w").rglob("*") if p.is_file() and p != kept]
    assert not [p for p in others if b"geheim" in p.read_bytes()]
    for shard in planned.shards:
        ingest.process(config, shard)
    manifest = ingest.publish(config, planned)
    assert {row["name"] for row in rows(tmp_path / "w", "documents")} == {
        "locked.pdf",
        "owner-only.pdf",
    }
    assert any("behind a lock" in row["text"] for row in rows(tmp_path / "w", "elements"))
    assert manifest.rejects == {"encrypted": 1}
    assert not [
        p for p in (tmp_path / "w").rglob("*") if p.is_file() and b"geheim" in p.read_bytes()
    ]
    # Both with the file and without it, that was all there is to do.
    assert ingest.plan(config).published is not None
    assert ingest.plan(configure(tmp_path / "w", folder, pdf_backend=backend)).published is not None


def test_real_encrypted_pdfs(shared_data: Path, tmp_path: Path) -> None:
    """pypdf's samples have `asdfzxcv` or `usersecret`, camelot's `userpass` (their test suites)."""
    folder = shared_data / "nasty" / "encrypted"
    (tmp_path / "p").write_text("openpassword\nasdfzxcv\nusersecret\nuserpass\n")
    run_ingest(tmp_path / "w", folder, passwords=tmp_path / "p")
    names = {row["name"] for row in rows(tmp_path / "w", "documents")}
    assert {"pypdf__r4-owner-password.pdf", "camelot__health_protected.pdf"} <= names
    assert all(row["reason"] == "encrypted" for row in rows(tmp_path / "w", "quarantine"))


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


XPS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="fdseq" ContentType="application/vnd.ms-package.xps-fixeddocumentsequence+xml"/>'
    '<Default Extension="fdoc" ContentType="application/vnd.ms-package.xps-fixeddocument+xml"/>'
    '<Default Extension="fpage" ContentType="application/vnd.ms-package.xps-fixedpage+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="R0" Type="http://schemas.microsoft.com/xps/2005/06/fixedrepresentation" '
    'Target="/a.fdseq"/></Relationships>',
    "a.fdseq": '<FixedDocumentSequence xmlns="http://schemas.microsoft.com/xps/2005/06">'
    '<DocumentReference Source="/d.fdoc"/></FixedDocumentSequence>',
    "d.fdoc": '<FixedDocument xmlns="http://schemas.microsoft.com/xps/2005/06">'
    '<PageContent Source="/p.fpage"/></FixedDocument>',
    "p.fpage": '<FixedPage xmlns="http://schemas.microsoft.com/xps/2005/06" Width="400" Height="200">'
    '<Path Fill="#ff336699" Data="M 10,10 L 200,10 200,100 10,100 Z"/></FixedPage>',
}


def test_xps_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "page.oxps").write_bytes(zipped(dict(XPS)))
    assert sniff(tmp_path / "page.oxps", "") == "xps"
    document = find_parser("xps")(tmp_path / "page.oxps", ParseOptions())
    (page,) = document.pages
    assert document.format == "xps" and page.image_png
    assert (page.width_pt, page.height_pt) == (300.0, 150.0)  # XPS counts 96 to the inch


def test_what_is_inside_decides(tmp_path: Path) -> None:
    """Names that lie, and content that needs a second look."""
    cases: dict[str, tuple[bytes, str]] = {
        "a.txt": (text_pdf(tmp_path / "x", ["words"]).read_bytes(), "pdf"),
        "b.doc": (b"<html><body>Hello there</body></html>", "html"),
        "c.zip": (zipped({"[Content_Types].xml": "", "word/document.xml": ""}), "docx"),
        "d.zip": (zipped({"word/list.txt": "no package"}), "zip"),
        "e.v": (bytes(range(256)) * 9, "unknown"),
        "f.txt": ("Grüße an alle, die dies lesen.".encode("utf-16-le"), "txt"),
        "g.txt": ("Grüße an alle, die dies lesen.".encode("utf-32"), "txt"),
        "h.v": (gzip.compress(b"module m; endmodule"), "gz"),
        "i.dat": (tarred({"a": b"x"}), "tar"),
        "j.md": (b"The header of a file is %PDF-1.7, as the standard says.\n", "md"),
        "k.txt": (b"BZhang wrote this.\n", "txt"),
        "l.v": (b"\xc3(" * 40_000, "verilog"),
    }
    for name, (data, expected) in cases.items():
        (tmp_path / name).write_bytes(data)
        assert sniff(tmp_path / name, Path(name).suffix) == expected, name
    for name in ("f.txt", "g.txt"):
        assert "Grüße" in find_parser("txt")(tmp_path / name, ParseOptions()).pages[0].text
