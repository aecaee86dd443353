"""DOCX: text and tables through unstructured, which is given a prepared copy of the file.

The copy has what unstructured would lose: content controls, text boxes and one-cell tables
unwrapped, the Strict dialect translated, equations as text, and a token where each picture stood,
also those in tables and in drawings of old Word. Entries of tables of contents and of figures are
marked by their styles, and get the role `contents`. Tokens become Image elements afterwards, a
caption paragraph beside a table or picture becomes its caption, and foot- and endnotes follow.
Page numbers are those of Word's last layout, where the file has them. Linked pictures are not
fetched; the metadata counts them as `external_images`. Headers' and footers' pictures are left out.
"""

from __future__ import annotations

import io
import re
import zipfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lxml import etree

from corpus.parsed import (
    CONTENTS,
    Fault,
    ParsedDocument,
    ParsedElement,
    ParseOptions,
    Unreadable,
)
from corpus.parsers import containers, documents
from corpus.parsers.equations import linear_text
from corpus.parsers.nearby_captions import attach_captions
from corpus.parsers.unstructured_setup import LANGUAGES, classify, prepare, to_parsed, version

if TYPE_CHECKING:
    from docx.document import Document

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_BLIP: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}blip"
_VML_IMAGE: Final = "{urn:schemas-microsoft-com:vml}imagedata"
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_STRICT: Final = b"http://purl.oclc.org/ooxml/"
_POINTS_PER_EMU: Final = 1 / 12_700
_TOKEN: Final = re.compile(r"dsmpart(\d{6})trapmsd")
# At the head of a paragraph: what it is to become.
_FORMULA: Final = "dsmformula "
_ENTRY: Final = "dsmentry "
# Built-in styles keep these names in the file whatever the language of Word.
_ENTRY_STYLE: Final = re.compile(r"toc \d|table of (?:figures|authorities)", re.IGNORECASE)


def parse_docx(path: Path, options: ParseOptions) -> ParsedDocument:
    """A Word document. Raises `Unreadable` when it is no sound, unencrypted DOCX."""
    import docx
    from docx.exceptions import PythonDocxError

    containers.check(path)
    with containers.damage_as_corrupt("Word document", PythonDocxError):
        document = docx.Document(io.BytesIO(_transitional(path)))
        return _read(document, path, options)


def _read(document: Document, path: Path, options: ParseOptions) -> ParsedDocument:
    body = document.element.body
    pictures = _Pictures(document, options)
    _unwrap_content_controls(body)
    _unwrap_frames(body)
    _lift_text_boxes(body)
    _write_equations(body)
    _mark_entries(document, body)
    pictures.take(body)
    notes = _notes(path)
    elements = pictures.put_back(_partition(document, options))
    elements = attach_captions([*map(_as_marked, elements), *notes])
    if not elements:
        raise Unreadable("no_text", "the document has no text, table or picture", stage="parse")
    with zipfile.ZipFile(path) as container:
        metadata = containers.core_properties(container)
    if pictures.external:
        metadata["external_images"] = str(pictures.external)
    size = _page_size(document)
    pages = max(element.page for element in elements)
    return documents.build(
        "docx",
        version("unstructured"),
        elements,
        page_sizes=dict.fromkeys(range(1, pages + 1), size),
        title=metadata.pop("title", ""),
        metadata=metadata,
        faults=pictures.faults,
    )


class _Pictures:
    """Pictures taken out of the body, each leaving a paragraph with a token after its block."""

    def __init__(self, document: Document, options: ParseOptions) -> None:
        self.faults: list[Fault] = []
        self.external = 0
        self._related = document.part.related_parts
        self._relations = document.part.rels
        self._options = options
        self._parts: list[ParsedElement | Fault] = []

    def take(self, body: Any) -> None:
        """Number the pictures of each top-level block and put their tokens behind it."""
        for block in list(body):
            for token in reversed([self._take_one(mark) for mark in self._marks(block)]):
                if token:
                    block.addnext(_paragraph(token))

    def put_back(self, elements: list[ParsedElement]) -> list[ParsedElement]:
        """Image elements in place of the tokens."""
        result: list[ParsedElement] = []
        for element in elements:
            match = _TOKEN.fullmatch(element.text)
            part = self._parts[int(match[1])] if match else element
            if isinstance(part, Fault):
                self.faults.append(replace(part, page=element.page))
            elif match is None or self._options.extract_images:
                result.append(replace(part, page=element.page))
        return result

    def _marks(self, block: Any) -> list[tuple[str, str]]:
        """(relation id, alternative text) of each picture in `block`, in document order."""
        found = []
        for mark in block.iter(_BLIP, _VML_IMAGE):
            self.external += int(mark.get(f"{_R}link") is not None)
            relation = mark.get(f"{_R}embed") or mark.get(f"{_R}id")
            if relation:
                found.append((relation, _alternative_text(mark)))
        return found

    def _take_one(self, mark: tuple[str, str]) -> str:
        relation, caption = mark
        if relation in self._relations and self._relations[relation].is_external:
            self.external += 1
            return ""
        part = self._related.get(relation)
        data = part.blob if part is not None else b""
        where = str(part.partname) if part is not None else f"missing part {relation}"
        picture = documents.picture_element(data, self._options, caption=caption, where=where)
        self._parts.append(picture)
        return f"dsmpart{len(self._parts) - 1:06d}trapmsd"


def _partition(document: Document, options: ParseOptions) -> list[ParsedElement]:
    from unstructured.partition.docx import partition_docx

    prepare()
    copy = io.BytesIO()
    document.save(copy)
    copy.seek(0)
    return to_parsed(
        partition_docx(file=copy, languages=LANGUAGES), max_table_rows=options.max_table_rows
    )


def _transitional(path: Path) -> bytes:
    """The file's bytes, with the namespaces of the Strict dialect replaced by the usual ones."""
    data = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as container:
        if _STRICT not in containers.read_part(container, "word/document.xml")[:20_000]:
            return data
        translated = io.BytesIO()
        with zipfile.ZipFile(translated, "w", zipfile.ZIP_STORED) as copy:
            for part in container.infolist():
                content = container.read(part)
                if part.filename.endswith((".xml", ".rels")):
                    content = _translate(content)
                copy.writestr(part.filename, content)
    return translated.getvalue()


def _translate(content: bytes) -> bytes:
    usual = b"http://schemas.openxmlformats.org/"
    for family in (b"wordprocessingml", b"drawingml", b"spreadsheetml", b"presentationml"):
        content = content.replace(_STRICT + family + b"/", usual + family + b"/2006/")
    return content.replace(_STRICT + b"officeDocument/", usual + b"officeDocument/2006/")


def _unwrap_content_controls(body: Any) -> None:
    """Put the content of block-level content controls in their place."""
    for control in list(body.iter(f"{_W}sdt")):
        content = control.find(f"{_W}sdtContent")
        parent = control.getparent()
        if parent is None or parent.tag == f"{_W}p":
            continue
        place = parent.index(control)
        parent.remove(control)
        for offset, child in enumerate(list(content) if content is not None else ()):
            parent.insert(place + offset, child)


def _unwrap_frames(body: Any) -> None:
    """Put the content of one-cell tables, which are only frames, in their place."""
    for table in list(body.iterchildren(f"{_W}tbl")):
        cells = table.findall(f"{_W}tr/{_W}tc")
        while len(cells) == 1:
            content = [child for child in cells[0] if child.tag in (f"{_W}p", f"{_W}tbl")]
            for child in reversed(content):
                table.addnext(child)
            body.remove(table)
            inner = [child for child in content if child.tag == f"{_W}tbl"]
            if not inner:
                break
            table = inner[0]
            cells = table.findall(f"{_W}tr/{_W}tc")


def _lift_text_boxes(body: Any) -> None:
    """Move the paragraphs of text boxes behind the block that anchors them."""
    for fallback in list(body.iter(_FALLBACK)):
        fallback.getparent().remove(fallback)  # a second copy of the drawing for old Word
    for block in list(body):
        lifted = [child for box in block.iter(f"{_W}txbxContent") for child in box]
        for child in reversed(lifted):
            block.addnext(child)


def _write_equations(body: Any) -> None:
    """Replace each equation by a run with its linear text; those alone are marked as formulas."""
    for equation in list(body.iter(f"{_M}oMathPara", f"{_M}oMath")):
        parent = equation.getparent()
        if parent is None or parent.tag == f"{_M}oMathPara":
            continue
        text = linear_text(equation)
        is_display = equation.tag == f"{_M}oMathPara" and parent.getparent() is body
        is_alone = is_display and not _own_text(parent)
        run = _run((_FORMULA if is_alone else "") + text)
        run.tail = equation.tail
        parent.replace(equation, run)


def _own_text(paragraph: Any) -> str:
    return "".join(text.text or "" for text in paragraph.iter(f"{_W}t")).strip()


def _mark_entries(document: Document, body: Any) -> None:
    """Mark the paragraphs that list where others stand."""
    styles = {
        style.style_id for style in document.styles if _ENTRY_STYLE.fullmatch(style.name or "")
    }
    for paragraph in body.iterchildren(f"{_W}p"):
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        if style is not None and style.get(f"{_W}val") in styles and _own_text(paragraph):
            paragraph.find(f"{_W}pPr").addnext(_run(_ENTRY))


def _as_marked(element: ParsedElement) -> ParsedElement:
    for mark, category, metadata in (
        (_FORMULA, "Formula", {}),
        (_ENTRY, "UncategorizedText", {"role": CONTENTS}),
    ):
        if element.text.startswith(mark):
            return replace(
                element,
                category=category,
                text=element.text[len(mark) :].strip(),
                level=0,
                metadata={**element.metadata, **metadata},
            )
    return element


def _notes(path: Path) -> list[ParsedElement]:
    """Foot- and endnotes, in their order, on page 1 for want of a better one."""
    notes: list[ParsedElement] = []
    with zipfile.ZipFile(path) as container:
        for role in ("footnote", "endnote"):
            root = containers.read_xml(container, f"word/{role}s.xml")
            for note in root.iterchildren() if root is not None else ():
                kind = [value for key, value in note.attrib.items() if key.endswith("}type")]
                text = " ".join(
                    "".join(
                        run.text or "" for run in note.iter() if str(run.tag).endswith("}t")
                    ).split()
                )
                if text and not kind:
                    notes.append(ParsedElement(classify(text), text, metadata={"role": role}))
    return notes


def _alternative_text(mark: Any) -> str:
    """What the author wrote for readers who do not see the picture."""
    for holder in mark.iterancestors():
        properties = holder.find("{*}docPr")
        if properties is not None:
            text = properties.get("descr") or properties.get("title") or ""
            # Word's own guess, not the author's words.
            return "" if "automatically generated" in text else " ".join(text.split())
    return ""


def _paragraph(text: str) -> Any:
    paragraph = etree.Element(f"{_W}p")
    paragraph.append(_run(text))
    return _as_docx(paragraph)


def _run(text: str) -> Any:
    run = etree.Element(f"{_W}r")
    etree.SubElement(run, f"{_W}t").text = text
    return _as_docx(run)


def _as_docx(element: Any) -> Any:
    """The same element made by python-docx's parser, whose classes the tree is built of."""
    from docx.oxml import parse_xml

    return deepcopy(parse_xml(etree.tostring(element)))


def _page_size(document: Document) -> tuple[float, float]:
    for section in document.sections:
        if section.page_width and section.page_height:
            return section.page_width * _POINTS_PER_EMU, section.page_height * _POINTS_PER_EMU
    return 0.0, 0.0


FORMATS: Final = {"docx": parse_docx}
