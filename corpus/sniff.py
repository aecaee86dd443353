"""What a file is, by its content; its suffix decides only between kinds of plain text.

In: a path. Out: a format name such as `pdf`, `docx`, `png`, `verilog`, `txt`, or `unknown` for
binary data that no parser takes. Reads at most the first 64 kB and, for zip containers, the list
of members. Does not check that the file is sound: that is the parser's task.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 64 << 10

_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"{\\rtf", "rtf"),
)
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Names of streams in an OLE directory, which holds them as UTF-16.
_OLE_STREAMS: Final[tuple[tuple[str, str], ...]] = (
    ("EncryptedPackage", "encrypted"),
    ("WordDocument", "doc"),
    ("PowerPoint Document", "ppt"),
    ("Workbook", "xls"),
    ("__properties_version1.0", "msg"),
    ("Book", "xls"),
)
_ODF_MIMETYPES: Final[dict[str, str]] = {
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/epub+zip": "epub",
}
_TEXT_SUFFIXES: Final[dict[str, str]] = {
    ".md": "md",
    ".markdown": "md",
    ".rst": "rst",
    ".adoc": "adoc",
    ".asciidoc": "adoc",
    ".org": "org",
    ".csv": "csv",
    ".tsv": "tsv",
    ".v": "verilog",
    ".vh": "verilog",
    ".sv": "systemverilog",
    ".svh": "systemverilog",
    ".eml": "eml",
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
}
_HTML: Final = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.IGNORECASE)
_SVG: Final = re.compile(r"<svg[\s>]", re.IGNORECASE)
_MAIL_HEADER: Final = re.compile(
    r"^(?:from|to|subject|date|received|message-id|mime-version|return-path|delivered-to): ?",
    re.IGNORECASE | re.MULTILINE,
)
_VERILOG: Final = re.compile(r"^\s*(?:macro)?module\s+\w+.*?^\s*endmodule\b", re.M | re.S)


def sniff(path: Path, suffix: str) -> str:
    """The format of `path`; `suffix` (with dot, lower case) tells kinds of text apart.

    Raises `OSError` when the file cannot be read.
    """
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    if not head:
        return "empty"
    binary = _sniff_binary(path, head)
    if binary:
        return binary
    text = decode_head(head)
    return "unknown" if text is None else _sniff_text(text, suffix)


def _sniff_binary(path: Path, head: bytes) -> str:
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    if head.startswith(_OLE):
        return _sniff_ole(path)
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(path)
    for signature, name in _SIGNATURES:
        # Two letters prove nothing: a text may begin with BM.
        if head.startswith(signature) and not (name == "bmp" and b"\x00" not in head[:16]):
            return name
    return ""


def _sniff_ole(path: Path) -> str:
    with path.open("rb") as stream:
        data = stream.read(16 << 20)
    for stream_name, name in _OLE_STREAMS:
        if stream_name.encode("utf-16-le") in data:
            return name
    return "unknown"


def _sniff_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as container:
            names = set(container.namelist())
            if "mimetype" in names and container.getinfo("mimetype").file_size < 200:
                mimetype = container.read("mimetype").decode("ascii", "replace").strip()
                if mimetype in _ODF_MIMETYPES:
                    return _ODF_MIMETYPES[mimetype]
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
        return "corrupt_zip"
    for folder, name in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
        if any(member.startswith(folder) for member in names):
            return name
    return "zip"


def decode_head(head: bytes) -> str | None:
    """The head as text, or None when it is binary."""
    for bom, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if head.startswith(bom):
            return head[: len(head) // 2 * 2].decode(encoding, "replace")
    if b"\x00" in head:
        return None
    try:
        # The cut at the end of the head may go through a character.
        return head.decode("utf-8-sig", "strict" if len(head) < HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        text = head.decode("latin-1")
    control = sum(1 for char in text if ord(char) < 32 and char not in "\t\n\r\f\x1b")
    return text if control <= len(text) / 100 else None


def _sniff_text(text: str, suffix: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("%!PS", "<?xml", "<svg", "<!DOCTYPE svg")) and _SVG.search(text[:4096]):
        return "svg"
    if start.startswith("%!PS"):
        return "postscript"
    if start.startswith("<") and _HTML.search(text[:4096]):
        return "html"
    by_suffix = _TEXT_SUFFIXES.get(suffix, "")
    if by_suffix and not (by_suffix == "html" and "<" not in text):
        return by_suffix
    if len(_MAIL_HEADER.findall(text[:4096].split("\n\n", 1)[0])) >= 3:
        return "eml"
    if _VERILOG.search(text):
        return "verilog"
    return "txt"
