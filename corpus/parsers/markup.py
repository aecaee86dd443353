"""HTML and Markdown.

Paragraph categories and headings are unstructured's; tables are read by `html_tables`, because
unstructured drops row and column spans; pictures given as data URIs become images. Nothing is
fetched: pictures behind addresses are counted in the metadata as `external_images`.
A table that is mostly other tables, or has a single row or column around them, is layout and its
content is read as text; a small table inside a data cell counts as that cell's text.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

import lxml.etree
import lxml.html
from lxml.html import HtmlElement

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParseOptions, Unreadable
from corpus.parsers import characters, documents
from corpus.parsers.html_tables import cell_text, read_table
from corpus.parsers.nearby_captions import attach_captions
from corpus.parsers.unstructured_setup import LANGUAGES, prepare, to_parsed, version

_TOKEN: Final = re.compile(r"dsmpart(\d{6})trapmsd")
_INVISIBLE: Final = ("script", "style", "template", "noscript", "svg", "iframe", "object", "head")
_META: Final = ("author", "description", "keywords", "date", "generator")
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)\n", re.DOTALL)


def parse_html(path: Path, options: ParseOptions) -> ParsedDocument:
    """A web page. Raises `Unreadable` when it is empty or no text."""
    data = path.read_bytes()
    if not data.strip():
        raise Unreadable("empty", "the file has no text")
    return read_html(_decode_html(data), options, kind="html")


def parse_markdown(path: Path, options: ParseOptions) -> ParsedDocument:
    """A Markdown file (CommonMark with tables and strike-through); front matter is metadata."""
    from markdown_it import MarkdownIt

    text = characters.read_text(path)
    metadata: dict[str, str] = {}
    match = _FRONT_MATTER.match(text)
    if match:
        text = text[match.end() :]
        metadata["front_matter"] = match[1]
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return read_html(rendered or "<p></p>", options, kind="md", metadata=metadata)


def read_html(
    text: str,
    options: ParseOptions,
    *,
    kind: str,
    parser: str = "",
    metadata: dict[str, str] | None = None,
) -> ParsedDocument:
    """Elements of an HTML text. `kind` is the document's format, `parser` what made the HTML."""
    try:
        root = lxml.html.document_fromstring(text)
    except lxml.etree.ParserError as error:
        raise Unreadable("no_text", f"no HTML in the file: {error}", stage="parse") from error
    found = {**(metadata or {}), **_head_metadata(root)}
    title = (root.findtext(".//title") or "").strip()
    parts = _Parts(root, options)
    elements = attach_captions(parts.put_back(_partition(root)))
    if not elements:
        raise Unreadable("no_text", "nothing is left without scripts and styles", stage="parse")
    if parts.external_images:
        found["external_images"] = str(parts.external_images)
    language = (root.get("lang") or "").split("-")[0].lower()[:2]
    return documents.build(
        kind,
        parser or version("unstructured"),
        elements,
        title=title,
        language=language,
        metadata=found,
        faults=parts.faults,
    )


class _Parts:
    """Tables and pictures taken out of the tree, each leaving a token in its place."""

    def __init__(self, root: HtmlElement, options: ParseOptions) -> None:
        self.faults: list[Fault] = []
        self.external_images = 0
        self._options = options
        self._parts: list[ParsedElement | None] = []  # None: became the text of a cell
        for element in list(root.iter(*_INVISIBLE)):
            element.drop_tree()
        self._take_tables(root)
        for image in list(root.iter("img")):
            self._take_image(image)
        # unstructured passes over figures and what is in them.
        for block in root.iter("figure", "figcaption"):
            block.tag = "div"

    def put_back(self, elements: list[ParsedElement]) -> list[ParsedElement]:
        """Replace each token by its part; parts whose token was lost follow at the end."""
        result: list[ParsedElement] = []
        missing = set(range(len(self._parts)))
        for element in elements:
            numbers = [int(number) for number in _TOKEN.findall(element.text)]
            rest = " ".join(_TOKEN.sub(" ", element.text).split()) if numbers else element.text
            if rest:
                result.append(element if not numbers else _with_text(element, rest))
            result.extend(part for number in numbers if (part := self._parts[number]))
            missing.difference_update(numbers)
        return result + [part for number in sorted(missing) if (part := self._parts[number])]

    def _take_tables(self, root: HtmlElement) -> None:
        # Innermost first, so that a table around data tables sees that they were there.
        for table in reversed(list(root.iter("table"))):
            if self._is_layout(table):
                _flatten(table)
                continue
            self._inline_nested(table)
            caption = table.find("caption")
            caption_text = cell_text(caption) if caption is not None else ""
            for image in table.iter("img"):
                self.external_images += 1
                image.tail = f" {image.get('alt') or ''} {image.tail or ''}"
            read = read_table(table, max_rows=self._options.max_table_rows)
            if read.dropped_rows:
                detail = f"{read.dropped_rows} rows beyond {self._options.max_table_rows}"
                self.faults.append(Fault(1, "tables", "rows_dropped", detail))
            if any(cell.text for cell in read.cells):
                part = documents.table_element(read.cells, caption=caption_text)
                _replace(table, "div", self._add(part))
            else:
                table.drop_tree()

    def _take_image(self, image: HtmlElement) -> None:
        source = image.get("src") or ""
        caption = _image_caption(image)
        if not source.startswith("data:"):
            self.external_images += 1
            _replace(image, "span", "")
            return
        data = _data_uri(source)
        part = documents.picture_element(data, self._options, caption=caption, where="data URI")
        if isinstance(part, Fault):
            self.faults.append(part)
            _replace(image, "span", "")
        elif self._options.extract_images:
            _replace(image, "div", self._add(part))

    def _is_layout(self, table: HtmlElement) -> bool:
        if table.get("role") == "presentation" or len(table.xpath("(.//td | .//th)[2]")) == 0:
            return True
        nested = _TOKEN.findall(table.text_content())
        if not nested:
            return False
        n_nested = sum(len(self._text_of(number)) for number in nested)
        own = len(_TOKEN.sub("", cell_text(table)))
        rows = table.xpath("./tr | ./*/tr")
        widest = max((len(row.xpath("./td | ./th")) for row in rows), default=0)
        return len(rows) == 1 or widest == 1 or n_nested > own

    def _text_of(self, number: str) -> str:
        part = self._parts[int(number)]
        return part.text if part is not None else ""

    def _inline_nested(self, table: HtmlElement) -> None:
        """Turn the tokens of tables inside a data table's cells into their text."""
        for block in table.iter("div"):
            match = _TOKEN.fullmatch(block.text or "")
            if match:
                block.text = self._text_of(match[1])
                self._parts[int(match[1])] = None

    def _add(self, part: ParsedElement) -> str:
        self._parts.append(part)
        return f"dsmpart{len(self._parts) - 1:06d}trapmsd"


def _partition(root: HtmlElement) -> list[ParsedElement]:
    from unstructured.partition.html import partition_html

    body = lxml.html.tostring(root, encoding="unicode")
    if not cell_text(root):
        return []
    prepare()
    return to_parsed(partition_html(text=body, languages=LANGUAGES))


def _with_text(element: ParsedElement, text: str) -> ParsedElement:
    return ParsedElement(
        element.category, text, element.page, level=element.level, metadata=element.metadata
    )


def _flatten(table: HtmlElement) -> None:
    """Make a layout table's parts plain blocks."""
    for element in list(table.iter("table", "tbody", "thead", "tfoot", "tr", "td", "th")):
        element.tag = "div"


def _replace(element: HtmlElement, tag: str, text: str) -> None:
    """Put `<tag>text</tag>` in the place of `element`, keeping what follows it."""
    tail = element.tail
    element.clear()
    element.tag, element.text, element.tail = tag, text, tail


def _image_caption(image: HtmlElement) -> str:
    figure = next(image.iterancestors("figure"), None)
    caption = figure.find(".//figcaption") if figure is not None else None
    if caption is not None:
        return cell_text(caption)
    return " ".join((image.get("alt") or image.get("title") or "").split())


def _data_uri(source: str) -> bytes:
    """The bytes of a data URI; broken base64 gives no bytes, which no picture reader accepts."""
    header, _, payload = source.partition(",")
    raw = unquote_to_bytes(payload)
    if not header.endswith(";base64"):
        return raw
    try:
        return base64.b64decode(raw, validate=False)
    except binascii.Error:
        return b""


def _head_metadata(root: HtmlElement) -> dict[str, str]:
    metadata = {}
    for meta in root.iter("meta"):
        name = (meta.get("name") or meta.get("property") or "").lower()
        if name in _META and meta.get("content"):
            metadata[name] = " ".join(meta.get("content").split())
    return metadata


def _decode_html(data: bytes) -> str:
    """By the byte order mark, then the declared charset, then a guess."""
    declared = re.search(rb"<meta[^>]{0,200}charset=[\"']?\s*([\w-]{3,20})", data[:4096], re.I)
    if declared and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        try:
            return characters.clean(data.decode(declared[1].decode("ascii"), "replace"))
        except LookupError:
            return characters.clean(characters.decode(data))
    return characters.clean(characters.decode(data))


FORMATS: Final = {"html": parse_html, "md": parse_markdown}
