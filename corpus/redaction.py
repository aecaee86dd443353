"""Personal data in a parsed document -> typed placeholders, before any row is made of it.

In: a `ParsedDocument` and kinds (`KINDS`). Out: the document with every text (elements, cells,
captions, pages, title, metadata, RTL sources and comments) redacted alike, so that tables, chunks,
summaries and ids never see the original; the counts by kind are in the metadata as `redacted_KIND`.
Page images of pages with a finding are dropped (flag `redacted`), and so are the pictures of a
page whose text came from OCR, and pictures whose own caption or text has a finding.

Phone numbers, IBANs and cards are found by the libraries that validate them (`phonenumbers`,
`python-stdnum`). Phone numbers are found in international form, or in national form where a word
like "phone" or "tel" stands before them. Not covered: names and addresses of people, what a native
page shows only as a picture, a number that is spread over two elements, and file names in `uri`.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from corpus.parsed import Fault, ParsedDocument, ParsedElement, ParsedPage

RedactionKind = Literal["email", "phone", "iban", "credit_card", "ip"]
KINDS: Final[tuple[str, ...]] = get_args(RedactionKind)
_PREFIX: Final = "redacted_"
_MAX_TRIES: Final = 5_000  # candidates of one text that phonenumbers looks at
# Fields that name things of ours or of the format; never free text.
_NOT_TEXT: Final = frozenset({"category", "language", "licence", "format", "parser", "text_source",
                              "direction", "stage", "reason", "flags"})  # fmt: skip

_EMAIL: Final = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
)
_IBAN: Final = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?:[ \u00a0]?[A-Z0-9]){11,30}(?!\w)")
_CARD: Final = re.compile(r"(?<![\w.-])[2-6]\d(?:[ \u00a0-]?\d){11,17}(?![\w-]|\.\d)")
_IP: Final = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)|"
    r"[0-9A-Fa-f]{1,4}(?::{1,2}[0-9A-Fa-f]{1,4}){2,7}(?![\w:]))"
)
_VERSION_BEFORE: Final = re.compile(r"(?:version|release|rev(?:ision)?|v)\.?\s*$", re.IGNORECASE)
_PHONE_WORD: Final = re.compile(
    r"(?:phone|tel(?:efon|ephone|éfono)?|mobile|cell|fax|call)\b[^\d+(\n]{0,20}", re.IGNORECASE
)
_NATIONAL: Final = re.compile(r"\(?\d[\d ()/.\u00a0-]{6,20}\d")

T = TypeVar("T")


class Finding(NamedTuple):
    start: int
    end: int
    kind: str


def find_personal_data(text: str, kinds: Iterable[str]) -> list[Finding]:
    """Findings in order, none overlapping; of two that do, the earlier and longer stays."""
    found = sorted(
        (finding for kind in kinds for finding in _FINDERS[kind](text)),
        key=lambda finding: (finding.start, -finding.end, finding.kind),
    )
    kept: list[Finding] = []
    for finding in found:
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
    return kept


def redact(document: ParsedDocument, kinds: Sequence[str]) -> ParsedDocument:
    """`document` without personal data of `kinds`."""
    if not kinds:
        return document
    redactor = _Redactor(kinds)
    redactor.learn(document)
    if not redactor.known:
        return document
    elements = [_redact_element(element, redactor) for element in document.elements]
    hit_pages = {page for _, page, hit in elements if hit}
    pages = tuple(_redact_page(page, hit_pages, redactor) for page in document.pages)
    scanned = {
        page.page for page in pages if "redacted" in page.flags and page.text_source == "ocr"
    }
    kept = tuple(
        replace(element, image=None) if element.page in scanned else element
        for element, _, _ in elements
    )
    rest = redactor.apply(replace(document, pages=(), elements=(), metadata={}))
    metadata = redactor.apply(document.metadata)
    counts = {f"{_PREFIX}{kind}": str(count) for kind, count in sorted(redactor.counts.items())}
    return replace(rest, pages=pages, elements=kept, metadata={**metadata, **counts})


def redaction_counts(metadata_json: str) -> dict[str, int]:
    """Kind -> replaced texts, from a row of `documents`."""
    metadata: dict[str, str] = json.loads(metadata_json or "{}")
    return {
        kind: int(metadata[_PREFIX + kind])
        for kind in KINDS
        if metadata.get(_PREFIX + kind, "").isdecimal()
    }


def _redact_element(element: ParsedElement, redactor: _Redactor) -> tuple[ParsedElement, int, bool]:
    clean = redactor.apply(element)
    hit = clean != element
    if hit and element.image is not None:
        clean = replace(clean, image=None)
    return clean, element.page, hit


def _redact_page(page: ParsedPage, hit_pages: set[int], redactor: _Redactor) -> ParsedPage:
    before = redactor.counts.copy()
    clean = redactor.apply(page)
    redactor.counts = before  # a page repeats its elements: counted once
    if clean == page and page.page not in hit_pages:
        return page
    return replace(clean, image_png=None, image_dpi=0, flags=(*page.flags, "redacted"))


class _Redactor:
    """What was found anywhere in the document is replaced everywhere in it."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self.known: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: Any) -> None:
        for text in _texts(value):
            for finding in find_personal_data(text, self._kinds):
                self.known.setdefault(text[finding.start : finding.end], finding.kind)
        if self.known:
            longest_first = sorted(self.known, key=lambda text: (-len(text), text))
            options = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<!\w)(?:{options})(?!\w)")

    def apply(self, value: T) -> T:
        clean: T = _map_texts(value, self._clean)
        return clean

    def _clean(self, text: str) -> str:
        return self._pattern.sub(self._placeholder, text) if self._pattern else text

    def _placeholder(self, match: re.Match[str]) -> str:
        kind = self.known[match[0]]
        self.counts[kind] += 1
        return f"[{kind.upper()}]"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in _NOT_TEXT:
                yield from _texts(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _texts(item)


def _map_texts(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            new = old if field.name in _NOT_TEXT else _map_texts(old, clean)
            if new is not old and new != old:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    if isinstance(value, dict):
        return {key: _map_texts(item, clean) for key, item in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):  # not a Box
        return tuple(_map_texts(item, clean) for item in value)
    return value


def _find_emails(text: str) -> Iterator[Finding]:
    if "@" in text:
        yield from (Finding(*match.span(), "email") for match in _EMAIL.finditer(text))


def _find_phones(text: str) -> Iterator[Finding]:
    import phonenumbers

    if "+" in text or "00" in text:
        matcher = phonenumbers.PhoneNumberMatcher(text, None, max_tries=_MAX_TRIES)
        for match in matcher:
            yield Finding(match.start, match.end, "phone")
    for word in _PHONE_WORD.finditer(text):
        number = _NATIONAL.match(text, word.end())
        if number and 7 <= sum(map(str.isdigit, number[0])) <= 15:
            yield Finding(*number.span(), "phone")


def _find_ibans(text: str) -> Iterator[Finding]:
    from stdnum import iban

    for match in _IBAN.finditer(text):
        # The pattern may run into a following word in capitals: try shorter ends.
        end = match.end()
        while end - match.start() >= 15:
            if iban.is_valid(text[match.start() : end].replace("\u00a0", " ")):
                yield Finding(match.start(), end, "iban")
                break
            end = max(text.rfind(" ", match.start(), end), text.rfind("\u00a0", match.start(), end))


def _find_cards(text: str) -> Iterator[Finding]:
    from stdnum import luhn

    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if 13 <= len(digits) <= 19 and len(set(digits)) > 1 and luhn.is_valid(digits):
            yield Finding(*match.span(), "credit_card")


def _find_ips(text: str) -> Iterator[Finding]:
    for match in _IP.finditer(text):
        if _VERSION_BEFORE.search(text, max(0, match.start() - 12), match.start()):
            continue
        try:
            ipaddress.ip_address(match[0])
        except ValueError:
            continue
        yield Finding(*match.span(), "ip")


_FINDERS: Final[dict[str, Callable[[str], Iterator[Finding]]]] = {
    "email": _find_emails,
    "phone": _find_phones,
    "iban": _find_ibans,
    "credit_card": _find_cards,
    "ip": _find_ips,
}


def redact_fault(fault: Fault, kinds: Sequence[str]) -> Fault:
    """A fault whose detail quotes the document."""
    redactor = _Redactor(kinds)
    redactor.learn(fault)
    return redactor.apply(fault)
