# ruff: noqa: E501
"""The format of a file is told by its bytes, also against its name."""

from __future__ import annotations

import gzip
from pathlib import Path

from archive_bytes import tarred, zipped
from corpus_samples import text_pdf

from corpus.parsed import ParseOptions
from corpus.parsers.registry import find_parser
from corpus.sniff import sniff

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
