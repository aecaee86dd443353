"""Mail: EML by the standard library, MSG by oxmsg; bodies are read as HTML or plain text.

The subject is the title; sender, recipients, date and the list of attachments are metadata.
Quoted lines of a plain text keep their words without the `>` and are marked `quoted` in the
metadata. Pictures shown in the message follow its text; attachments are documents of their own,
which `attachments` takes out, messages attached to an EML among them.
"""

from __future__ import annotations

import email
import email.policy
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from pathlib import Path
from typing import Final, cast

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParseOptions, Unreadable
from corpus.parsers import characters, documents
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
    more: list[tuple[str, str]] = field(default_factory=list)  # further texts, MIME type first
    attachments: list[_Attachment] = field(default_factory=list)


@dataclass
class _Attachment:
    name: str
    kind: str  # MIME type
    data: bytes | None  # None where the library cannot give it
    is_shown: bool = False  # a picture in the text


def parse_eml(path: Path, options: ParseOptions) -> ParsedDocument:
    """An RFC 5322 message. Raises `Unreadable` when it is empty or too large."""
    return _document(_read_eml(path), options, "eml", "python email")


def parse_msg(path: Path, options: ParseOptions) -> ParsedDocument:
    """An Outlook message. Raises `Unreadable`."""
    return _document(_read_msg(path), options, "msg", version("python-oxmsg"))


def attachments(path: Path, kind: str) -> Iterator[tuple[str, bytes | None]]:
    """Name and bytes of what is attached, without the pictures shown in the text.

    The bytes are None where the library cannot give them. Raises `Unreadable`.
    """
    message = _read_eml(path) if kind == "eml" else _read_msg(path)
    for part in message.attachments:
        if not part.is_shown:
            yield part.name, part.data


def _read_eml(path: Path) -> _Message:
    size = path.stat().st_size
    if size == 0:
        raise Unreadable("empty", "the file has no bytes")
    if size > _MAX_BYTES:
        raise Unreadable("too_large", f"{size} bytes, at most {_MAX_BYTES}")
    parsed = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    return _from_eml(parsed)


def _read_msg(path: Path) -> _Message:
    from oxmsg import Message

    try:
        message = Message.load(path)
        sent = message.sent_date
        headers = {
            "from": str(message.sender or ""),
            "to": ", ".join(f"{to.name} <{to.email_address}>" for to in message.recipients),
            "date": sent.isoformat() if sent else "",
        }
        html = characters.decode(message.html_body.encode()) if message.html_body else ""
        found = _Message(str(message.subject or ""), headers, html, message.body or "")
        for part in message.attachments:
            kind = str(part.mime_type or "")
            # 0x3712 is PidTagAttachContentId: what the HTML names a shown picture by.
            content_id = part.properties.str_prop_value(0x3712)
            is_shown = kind.startswith("image/") and f"cid:{content_id}" in html
            name = str(part.file_name or "attachment")
            found.attachments.append(_Attachment(name, kind, part.file_bytes, is_shown))
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise Unreadable("corrupt", f"not an Outlook message: {error}") from error
    return found


def _from_eml(message: EmailMessage) -> _Message:
    headers = {}
    for name in _HEADERS:
        value = _header(message, name)
        if value:
            headers[name] = value
    found = _Message(_header(message, "subject"), headers, "", "")
    for part in _leaves(message):
        kind = part.get_content_type()
        name = part.get_filename() or ""
        is_attached = part.get_content_disposition() == "attachment"
        if kind == "text/html" and not is_attached and not name and not found.html:
            found.html = _text(part)
        elif kind == "text/plain" and not is_attached and not name and not found.plain:
            found.plain = _text(part)
        elif kind in ("text/html", "text/plain") and not is_attached and not name:
            found.more.append((kind, _text(part)))
        else:
            name = name or f"attachment-{len(found.attachments) + 1}{_suffix(kind)}"
            is_shown = kind.startswith("image/") and not is_attached
            found.attachments.append(_Attachment(name, kind, _content(part), is_shown))
    return found


def _leaves(message: EmailMessage) -> Iterator[EmailMessage]:
    """Parts with content; an attached message is one of them."""
    if message.get_content_maintype() == "multipart" and message.is_multipart():
        for part in message.iter_parts():
            yield from _leaves(cast(EmailMessage, part))
    else:
        yield message


def _content(part: EmailMessage) -> bytes:
    if part.is_multipart():  # an attached message, parsed already
        inner = part.get_payload()
        assert isinstance(inner, list)
        return b"\n".join(cast(EmailMessage, item).as_bytes() for item in inner)
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _suffix(kind: str) -> str:
    return ".eml" if kind == "message/rfc822" else mimetypes.guess_extension(kind) or ""


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
    for kind_of_part, text in message.more:
        part, lost = _further_text(kind_of_part, text, options)
        elements += part
        faults += lost
    pictures: list[ParsedElement | Fault] = []
    for attachment in message.attachments:
        if attachment.is_shown and options.extract_images:
            data = attachment.data or b""
            pictures.append(documents.picture_element(data, options, where=attachment.name))
    shown, lost_pictures = documents.split_faults(pictures)
    elements += shown
    faults += lost_pictures
    if not elements and not message.attachments:
        raise Unreadable("no_text", "the message has no subject, text or picture", stage="parse")
    metadata = dict(message.headers)
    metadata["attachments"] = "; ".join(
        f"{attachment.name} ({attachment.kind}, {len(attachment.data or b'')} bytes)"
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


def _further_text(
    kind: str, text: str, options: ParseOptions
) -> tuple[list[ParsedElement], tuple[Fault, ...]]:
    """Texts between attachments, list footers and the like."""
    if kind == "text/plain" or not text.strip():
        return _plain(characters.clean(text)), ()
    try:
        read = read_html(characters.clean(text), options, kind="eml")
    except Unreadable:
        return [], ()
    return list(read.elements), read.faults


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


FORMATS: Final = {"eml": parse_eml, "msg": parse_msg}
