"""Mail: EML by the standard library, MSG by oxmsg; bodies are read as HTML or plain text.

The subject is the title; sender, recipients, date and the list of attachments are metadata.
Quoted lines of a plain text keep their words without the `>` and are marked `quoted` in the
metadata. Attached texts (plain, HTML, CSV, Markdown) and pictures follow the body under their file
names; other attachments are only listed.
"""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from pathlib import Path
from typing import Final

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParseOptions, Unreadable
from corpus.parsers import characters, delimited, documents
from corpus.parsers.markup import read_html
from corpus.parsers.text import read_paragraphs
from corpus.parsers.unstructured_setup import version

_MAX_BYTES: Final = 256 * 1024**2
_QUOTE: Final = re.compile(r"^\s*(?:>\s?)+")
_HEADERS: Final = ("from", "to", "cc", "date", "message-id", "in-reply-to")


@dataclass
class _Message:
    """A message in either container."""

    subject: str
    headers: dict[str, str]
    html: str
    plain: str
    attachments: list[_Attachment] = field(default_factory=list)


@dataclass
class _Attachment:
    name: str
    kind: str  # MIME type
    data: bytes


def parse_eml(path: Path, options: ParseOptions) -> ParsedDocument:
    """An RFC 5322 message. Raises `Unreadable` when it is empty or too large."""
    size = path.stat().st_size
    if size == 0:
        raise Unreadable("empty", "the file has no bytes")
    if size > _MAX_BYTES:
        raise Unreadable("too_large", f"{size} bytes, at most {_MAX_BYTES}")
    parsed = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    return _document(_from_eml(parsed), options, "eml", "python email")


def parse_msg(path: Path, options: ParseOptions) -> ParsedDocument:
    """An Outlook message. Raises `Unreadable`."""
    from oxmsg import Message

    try:
        message = Message.load(path)
        attachments = [
            _Attachment(
                str(part.file_name or "attachment"),
                str(part.mime_type or ""),
                part.file_bytes or b"",
            )
            for part in message.attachments
        ]
        sent = message.sent_date
        headers = {
            "from": str(message.sender or ""),
            "to": ", ".join(f"{to.name} <{to.email_address}>" for to in message.recipients),
            "date": sent.isoformat() if sent else "",
        }
        html = characters.decode(message.html_body.encode()) if message.html_body else ""
        found = _Message(str(message.subject or ""), headers, html, message.body or "", attachments)
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise Unreadable("corrupt", f"not an Outlook message: {error}") from error
    return _document(found, options, "msg", version("python-oxmsg"))


def _from_eml(message: EmailMessage) -> _Message:
    headers = {}
    for name in _HEADERS:
        value = _header(message, name)
        if value:
            headers[name] = value
    html = plain = ""
    attachments: list[_Attachment] = []
    for part in _leaves(message):
        kind = part.get_content_type()
        name = part.get_filename() or ""
        is_attached = part.get_content_disposition() == "attachment" or bool(name)
        if kind == "text/html" and not is_attached and not html:
            html = _text(part)
        elif kind == "text/plain" and not is_attached and not plain:
            plain = _text(part)
        else:
            data = part.get_payload(decode=True)
            content = data if isinstance(data, bytes) else b""
            attachments.append(_Attachment(name or "unnamed", kind, content))
    return _Message(_header(message, "subject"), headers, html, plain, attachments)


def _leaves(message: EmailMessage) -> Iterator[EmailMessage]:
    """Parts with content; an attached message counts as its own parts."""
    for part in message.walk():
        if not part.is_multipart():
            yield part


def _header(message: EmailMessage, name: str) -> str:
    try:
        value = message.get(name)
    except (ValueError, IndexError, TypeError, AttributeError):
        return ""  # the header parser trips over some malformed addresses
    return " ".join(characters.clean(str(value)).split()) if value is not None else ""


def _text(part: EmailMessage) -> str:
    """The part's text by its charset, or by its bytes when the charset is unknown or wrong."""
    data = part.get_payload(decode=True)
    content = data if isinstance(data, bytes) else b""
    try:
        return content.decode(part.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return characters.decode(content) if content else ""


def _document(message: _Message, options: ParseOptions, kind: str, parser: str) -> ParsedDocument:
    subject = characters.clean(message.subject).strip()
    elements = [ParsedElement("Title", subject, level=1)] if subject else []
    faults: list[Fault] = []
    body, lost = _body(message, options)
    elements += body
    faults += lost
    for attachment in message.attachments:
        parts, lost = _attached(attachment, options)
        faults += lost
        if parts:
            elements.append(ParsedElement("Title", attachment.name, level=2))
            elements += parts
    if not elements:
        raise Unreadable("no_text", "the message has no subject, text or picture", stage="parse")
    metadata = dict(message.headers)
    metadata["attachments"] = "; ".join(
        f"{attachment.name} ({attachment.kind}, {len(attachment.data)} bytes)"
        for attachment in message.attachments
    )
    return documents.build(kind, parser, elements, title=subject, metadata=metadata, faults=faults)


def _body(
    message: _Message, options: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    if message.html.strip():
        try:
            read = read_html(characters.clean(message.html), options, kind="eml")
        except Unreadable:
            read = None  # an HTML part without words: the plain part may have them
        if read is not None:
            return list(read.elements), read.faults
    return _plain(characters.clean(message.plain)), ()


def _plain(text: str) -> list[ParsedElement]:
    """Paragraphs, each run of quoted lines read on its own."""
    runs: list[tuple[bool, list[str]]] = []
    for line in text.split("\n"):
        is_quoted = bool(_QUOTE.match(line))
        if not runs or (runs[-1][0] != is_quoted and line.strip()):
            runs.append((is_quoted, []))
        runs[-1][1].append(_QUOTE.sub("", line) if is_quoted else line)
    elements: list[ParsedElement] = []
    for is_quoted, lines in runs:
        for element in read_paragraphs("\n".join(lines)):
            # A short line of a mail is a greeting or a name, not a heading.
            category = "UncategorizedText" if element.category == "Title" else element.category
            mark = {"quoted": "yes"} if is_quoted else {}
            elements.append(replace(element, category=category, level=0, metadata=mark))
    return elements


def _attached(
    attachment: _Attachment, options: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    """Elements of an attached text or picture; nothing for other kinds."""
    if attachment.kind.startswith("image/"):
        if not options.extract_images:
            return [], ()
        part = documents.picture_element(attachment.data, options, where=attachment.name)
        return ([], (part,)) if isinstance(part, Fault) else ([part], ())
    reader = _READERS.get(attachment.kind)
    if reader is None:
        return [], ()
    try:
        return reader(attachment.data, options)
    except Unreadable as error:
        fault = Fault(1, "attachments", error.reason, f"{attachment.name}: {error.detail}")
        return [], (fault,)


def _read_attached_text(
    data: bytes, _: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    return read_paragraphs(characters.clean(characters.decode(data))), ()


def _read_attached_html(
    data: bytes, options: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    read = read_html(characters.clean(characters.decode(data)), options, kind="html")
    return list(read.elements), read.faults


def _read_attached_table(
    data: bytes, options: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    read = delimited.read(characters.clean(characters.decode(data)), options, kind="csv")
    return list(read.elements), read.faults


_READERS: Final = {
    "text/plain": _read_attached_text,
    "text/markdown": _read_attached_text,
    "text/html": _read_attached_html,
    "text/csv": _read_attached_table,
}

FORMATS: Final = {"eml": parse_eml, "msg": parse_msg}
