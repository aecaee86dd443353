"""Old Office and OpenDocument files through a real LibreOffice, and real encrypted Office files."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import docx
import msoffcrypto.format.ooxml
import pytest
from ingest_runs import rows, run_ingest

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.legacy_office import parse_converted
from corpus.parsers.registry import find_parser

OPTIONS = ParseOptions()
SOURCES = {
    "docx": "energy/gridlab-d__BuildingGridlabdOnWindowsWithMsys2.docx",
    "pptx": "energy/OpenDSS__16_Storage_Model.pptx",
    "xlsx": "supply-chain/ONE-Record__ONE_Record_data_model_v12.8.xlsx",
}


def words(document: ParsedDocument) -> Counter[str]:
    return Counter(" ".join(element.text for element in document.elements).split())


@pytest.mark.parametrize(
    ("old", "new", "share"),
    # LibreOffice's own filters lose numbers of lists (ODT) and hidden parts of slides.
    [("doc", "docx", 0.99), ("ppt", "pptx", 0.95), ("odp", "pptx", 0.95), ("ods", "xlsx", 0.99)],
)
def test_converted_says_what_the_original_says(
    shared_data: Path, tmp_path: Path, old: str, new: str, share: float
) -> None:
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("LibreOffice is not installed: apt-get install libreoffice-writer-nogui ...")
    original = tmp_path / f"source.{new}"
    shutil.copyfile(shared_data / "corpus" / SOURCES[new], original)
    profile = f"-env:UserInstallation=file://{tmp_path}/profile"
    command = [program, profile, "--headless", "--convert-to", old, "--outdir", str(tmp_path)]
    subprocess.run([*command, str(original)], check=True, capture_output=True, timeout=300)
    expected = find_parser(new)(original, OPTIONS)
    found = find_parser(old)(tmp_path / f"source.{old}", OPTIONS)
    common = words(expected) & words(found)
    assert common.total() >= share * words(expected).total()
    assert (
        Counter(e.category for e in found.elements)["Table"]
        == (Counter(e.category for e in expected.elements)["Table"])
    )


def test_without_libreoffice_the_reason_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.ppt").write_bytes(b"\xd0\xcf\x11\xe0")
    with pytest.raises(Unreadable, match="LibreOffice") as caught:
        parse_converted(tmp_path / "a.ppt", OPTIONS, kind="ppt")
    assert caught.value.reason == "needs_libreoffice"


def test_encrypted_office_opens_with_its_password(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    document = docx.Document()
    document.add_paragraph("The regulator holds the rail at 1.8 V.")
    document.save(tmp_path / "plain.docx")
    with (tmp_path / "plain.docx").open("rb") as plain:
        locked = msoffcrypto.format.ooxml.OOXMLFile(plain)
        with (folder / "locked.docx").open("wb") as stream:
            locked.encrypt("geheim", stream)
    run_ingest(tmp_path / "w", folder)
    (refused,) = rows(tmp_path / "w", "quarantine")
    assert (refused["reason"], rows(tmp_path / "w", "documents")) == ("encrypted", [])
    (tmp_path / "secret.txt").write_text("wrong\ngeheim\n")
    run_ingest(tmp_path / "w", folder, passwords=tmp_path / "secret.txt")
    assert [e["text"] for e in rows(tmp_path / "w", "elements")] == [
        "The regulator holds the rail at 1.8 V."
    ]
    assert rows(tmp_path / "w", "quarantine") == []
