"""Documents that need a password."""

from __future__ import annotations

import stat
from pathlib import Path

import pymupdf
import pytest
from corpus_samples import text_pdf
from ingest_runs import configure, rows, run_ingest

from corpus import ingest


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
