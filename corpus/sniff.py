"""What a file is, by its content; its suffix decides only between kinds of plain text.

In: a path. Out: a format name such as `pdf`, `docx`, `png`, `verilog`, `txt`, or `unknown` for
binary data that no parser takes. Reads at most the first 64 kB and, for zip containers, the list
of members; of what is compressed, half a kilobyte. Does not check that the file is sound.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, Final, cast

from corpus.parsers import characters

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
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
# A file compressed by itself, or a tar if that is inside.
COMPRESSED: Final = frozenset({"gz", "bz2", "xz"})
ARCHIVES: Final = frozenset({"zip", "tar", "7z", *COMPRESSED})
# Formats with documents inside.
CONTAINERS: Final = ARCHIVES | {"eml", "msg"}
_ZIPS: Final = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
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
    ".rdl": "systemrdl",
    ".hjson": "hjson",
}
_HTML: Final = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.IGNORECASE)
_SVG: Final = re.compile(r"<svg[\s>]", re.IGNORECASE)
_MAIL_HEADER: Final = re.compile(
    r"^(?:from|to|subject|date|received|message-id|mime-version|return-path|delivered-to): ?",
    re.IGNORECASE | re.MULTILINE,
)
_PDF: Final = re.compile(rb"(?:^|[\r\n])%PDF-\d")
_IPXACT: Final = re.compile(
    r"<(?:\w+:)?component\b[^>]*(?:spiritconsortium|accellera)", re.IGNORECASE
)
_SVD: Final = re.compile(r"<device\b[^>]*(?:CMSIS-SVD|schemaVersion)|<peripherals[\s>]")
_RDL: Final = re.compile(r"^\s*(?:addrmap|regfile|reg)\s+\w+\s*(?:#\s*\(.*?\)\s*)?\{", re.MULTILINE)
_JSON_REGISTERS: Final = re.compile(r'"registers"\s*:\s*[\[{]')
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


def may_hold_documents(head: bytes, suffix: str) -> bool:
    """Whether `sniff` has to look closer to say that a file is no container; cheap.

    For the process that plans: `sniff` reads directories of hostile files, and is for children.
    """
    if head.startswith((_OLE, *_ZIPS)) or _sniff_signature(head) in ARCHIVES or _is_tar(head):
        return True
    if suffix in (".eml", ".msg", ".tar"):
        return True
    start = head[:4096].decode("latin-1").replace("\r\n", "\n")
    return len(_MAIL_HEADER.findall(start.split("\n\n", 1)[0])) >= 3


def _sniff_binary(path: Path, head: bytes) -> str:
    if head.startswith(b"%PDF-") or (_PDF.search(head[:1024]) and b" obj" in head):
        return "pdf"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    if head.startswith(_OLE):
        return _sniff_ole(path)
    if head.startswith(_ZIPS):
        return _sniff_zip(path)
    if head[60:68] in (b"BOOKMOBI", b"TEXtREAd"):
        return "mobi"
    if _is_tar(head):
        return "tar"
    found = _sniff_signature(head)
    if found in COMPRESSED:
        return _sniff_compressed(path, found)
    return found


def _sniff_signature(head: bytes) -> str:
    for signature, name in _SIGNATURES:
        if not head.startswith(signature):
            continue
        # Two or three letters prove nothing: a text may begin with BM.
        if name == "bmp" and b"\x00" not in head[:16]:
            continue
        if name == "bz2" and head[4:10] not in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
            continue
        return name
    return ""


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def open_compressed(path: Path, kind: str) -> IO[bytes]:
    """The content of a file of one of the kinds in `COMPRESSED`."""
    if kind == "gz":
        return cast(IO[bytes], gzip.open(path))
    return cast(IO[bytes], bz2.open(path) if kind == "bz2" else lzma.open(path))


def _sniff_compressed(path: Path, kind: str) -> str:
    try:
        with open_compressed(path, kind) as stream:
            return "tar" if _is_tar(stream.read(512)) else kind
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
        return kind  # unpacking will say what is wrong


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
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, zlib.error):
        return "corrupt_zip"
    if "META-INF/container.xml" in names and any(name.endswith(".opf") for name in names):
        return "epub"
    if "[Content_Types].xml" not in names:
        return "zip"
    for folder, name in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
        if any(member.startswith(folder) for member in names):
            return name
    is_xps = any(name.lower().endswith(".fdseq") for name in names)
    return "xps" if is_xps else "package"


def decode_head(head: bytes) -> str | None:
    """The head as text, or None when it is binary."""
    encoding = characters.unicode_encoding(head)
    if encoding:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    elif b"\x00" in head:
        return None
    else:
        try:
            # Not final: the cut at the end of the head may go through a character.
            decoder = codecs.getincrementaldecoder("utf-8-sig")()
            return decoder.decode(head, final=len(head) < HEAD_BYTES)
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
    if start.startswith("<"):
        if _IPXACT.search(text):
            return "ipxact"
        if _SVD.search(text):
            return "svd"
    if start.startswith("{") and _JSON_REGISTERS.search(text):
        return "json_registers"
    by_suffix = _TEXT_SUFFIXES.get(suffix, "")
    if by_suffix and not (by_suffix == "html" and "<" not in text):
        return by_suffix
    if len(_MAIL_HEADER.findall(text[:4096].split("\n\n", 1)[0])) >= 3:
        return "eml"
    if _VERILOG.search(text):
        return "verilog"
    if suffix in ("", ".txt") and _RDL.search(text) and "field" in text:
        return "systemrdl"
    return "txt"
