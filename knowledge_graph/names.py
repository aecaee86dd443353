"""When two surfaces name the same thing: classes of names and their normalised keys.

A surface is either an **identifier** (code-like: digits with letters, underscores, dots,
CamelCase, no vowels) or **words**. Identifiers are equal only when every character is; words fold
case, hyphens, spaces and a regular plural of the last word. Nothing is merged by similarity:
names such as `aes64ds` and `aes64es` are one letter apart and two things.

    norm_key("Clock Generators") == norm_key("clock generator") == "clock generator"
    norm_key("UART0_TX") == "id:UART0_TX"
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

IDENTIFIER_PREFIX: Final = "id:"

# Units and ordinals look like mixed letters and digits or like CamelCase, but name nothing.
_UNIT = (
    r"(?:[munpfkMGT]?(?:V|A|W|Hz|F|H|s|g|m|eV|dB|dBm|bps|b|B|bit|Ω)|mm|cm|km|nm|um|µm|μm|ns|us|µs|"
    r"ms|ps|KB|kB|MB|GB|TB|KiB|MiB|GiB|Kb|Mb|Gb|Mbps|Gbps|kbps|MHz|GHz|kHz|KHz|Hz|ppm|rpm|psi|mAh|"
    r"kWh|MWh|GWh|TWh|kW|MW|GW|kV|pF|nF|uF|mW|mV|mA|uA|nA|dpi|pt|px|in|ft|lb|oz|kg|ml|yr|th|st|nd|"
    r"rd|x|X|k|K|M|G|C|F|D|d)"
)
_QUANTITY = re.compile(rf"[±~]?[\d.,]+{_UNIT}?|{_UNIT}")
_HEX = re.compile(r"0[xX][0-9A-Fa-f]{2,}|\d*'[hHbBdDoO][0-9A-Fa-f_xXzZ]+")
_UNDERSCORED = re.compile(r"_*[A-Za-z0-9]+_[A-Za-z0-9_]*|_+[A-Za-z0-9]+")
_MIXED = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9]+")
_CAMEL = re.compile(r"[A-Za-z]*(?:[a-z][A-Z]|[A-Z]{2,}[a-z]{2,})[A-Za-z]*")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)+")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_SECTION = re.compile(r"[A-Z](?:\.\d+)+")  # of an appendix
_VOWELLESS = re.compile(r"[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz][b-df-hj-np-tv-xz]{2,}")
_WITHOUT_VOWELS = (
    "hrs vs pp nth mph cf nm mm cm km ml kg ltd mr mrs ms dr st rd ft hmm http https www"
)
_NOT_NAMES: Final = frozenset(_WITHOUT_VOWELS.split())

_VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s\-‐‑‒–—/]+")
_QUOTES = " \t\n.,;:!?\"'`“”‘’*•·"
_EDGES = " \t\n.,;:!?\"'`“”‘’()[]{}<>*•·"


def clean_surface(text: str) -> str:
    """Whitespace collapsed, quotes, list marks and stray brackets removed."""
    flat = " ".join(unicodedata.normalize("NFKC", text).split()).strip(_QUOTES)
    for opening, closing in ("()", "[]", "{}", "<>"):
        flat = _balance(flat, opening, closing)
    return flat.strip(_QUOTES)


def _balance(text: str, opening: str, closing: str) -> str:
    """Without brackets around the whole, and cut where one opens or closes nothing."""
    while text.startswith(opening) and text.find(closing) in (-1, len(text) - 1):
        text = text[1:].removesuffix(closing).strip(_QUOTES)
    if text.count(opening) > text.count(closing):
        text = text[: text.rfind(opening)]
    elif text.count(closing) > text.count(opening):
        text = (
            text.replace(closing, "", 1)
            if text.startswith(closing)
            else text[: text.rfind(closing)]
        )
    return text.strip(_QUOTES)


def is_identifier(token: str) -> bool:
    """Whether one token is code-like, so that only an exact match means the same thing."""
    if not token or len(token) > 80 or _QUANTITY.fullmatch(token):
        return False
    if _HEX.fullmatch(token) or _UNDERSCORED.fullmatch(token) or _MIXED.fullmatch(token):
        return True
    if _DOTTED.fullmatch(token):
        return not _ABBREVIATION.fullmatch(token) and not _SECTION.fullmatch(token)
    if _CAMEL.fullmatch(token):
        # Short ones (SoC, IoT) are acronyms and fold case like words; `RAMs` is a plural.
        return len(token) > 4 and not re.fullmatch(r"[A-Z]{2,}s", token)
    return len(token) >= 3 and bool(_VOWELLESS.fullmatch(token)) and token.lower() not in _NOT_NAMES


def is_quantity(text: str) -> bool:
    """A number, with or without a unit, or a bare unit."""
    return bool(_QUANTITY.fullmatch(text.replace(" ", "")))


def identifier_key(name: str) -> str:
    """The key of a name that is known to be an identifier (an RTL name, a code span)."""
    return IDENTIFIER_PREFIX + name


def words_key(surface: str) -> str:
    """The key of words: lower case, one space between, the last word's regular plural folded."""
    words = [word.strip(_EDGES) for word in _SEPARATORS.split(clean_surface(surface))]
    words = [_drop_possessive(word) for word in words if word]
    if not words:
        return ""
    *front, last = words
    return " ".join([*(word.casefold() for word in front), _singular(last).casefold()])


def norm_key(surface: str) -> str:
    """The key by which mentions meet; "" when nothing is left of the surface."""
    name = clean_surface(surface)
    return identifier_key(name) if is_identifier(name) else words_key(name)


def _drop_possessive(word: str) -> str:
    return re.sub(r"['’]s?$", "", word)


def _singular(word: str) -> str:
    """Fold a regular English plural; anything that may be a name stays as it is."""
    if re.fullmatch(r"[A-Z]{2,}s", word):
        return word[:-1]
    lower = word.lower()
    if len(word) < 4 or not lower.isalpha() or word.isupper() or not lower.endswith("s"):
        return word
    if lower.endswith(("ss", "us", "is", "ous", "ics")) or not _VOWEL.search(word[:-1]):
        return word
    if word[0].isupper() and len(word) < 6:
        return word
    if lower.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if lower.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1]
