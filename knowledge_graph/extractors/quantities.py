"""Numbers with units in table cells and headers.

split_quantity("3.3 V")          -> Quantity("3.3", "V")
split_header("Supply (mA)")      -> ("Supply", "mA")
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Quantity(NamedTuple):
    """A literal as written; `unit` is "" when none is stated."""

    value: str
    unit: str


class Header(NamedTuple):
    """A column's name without its unit."""

    name: str
    unit: str


_NUMBER: Final = r"[+\-−±]?\d[\d,]*(?:\.\d+)?(?:[eE][+\-]?\d+)?"
_UNIT: Final = r"(?:[%°µμΩ℃A-Za-z][%°µμΩ℃A-Za-z0-9²³/·^*-]{0,11})"
_QUANTITY: Final = re.compile(rf"({_NUMBER})\s*({_UNIT})")
# Hexadecimal and Verilog literals: no zero of a unit "x1F".
_RADIX: Final = re.compile(r"0[xXbBoO][0-9A-Fa-f]")
_PLAIN: Final = re.compile(_NUMBER)
_HEADER_UNIT: Final = re.compile(rf"(.+?)\s*[(\[]\s*(?:in\s+)?({_UNIT})\s*[)\]]\s*")
_LETTERS: Final = re.compile(r"[A-Za-z]{4,}")
# Long words that are units all the same.
_LONG_WORDS: Final = """
cycles cycle bits bytes volts amps watts ohms lambda microns units gates cells kbit mbit gbit
kbyte mbyte gbyte mbps gbps words days hours minutes seconds years tonnes percent
"""
_LONG_UNITS: Final = frozenset(_LONG_WORDS.split())


def split_quantity(text: str) -> Quantity:
    """A cell as value and unit; a text that is no single quantity is all value."""
    text = " ".join(text.split())
    match = _QUANTITY.fullmatch(text)
    if match and not _RADIX.match(text) and is_unit(match.group(2)):
        return Quantity(match.group(1), match.group(2))
    return Quantity(text, "")


def split_header(text: str) -> Header:
    """A header as name and the unit in its trailing brackets, if what stands there is a unit."""
    text = " ".join(text.split())
    match = _HEADER_UNIT.fullmatch(text)
    if match and is_unit(match.group(2)):
        return Header(match.group(1).rstrip(" ,:"), match.group(2))
    return Header(text.rstrip(" ,:"), "")


def is_number(text: str) -> bool:
    """A plain number, with sign, thousands separators or exponent."""
    return bool(_PLAIN.fullmatch(text.strip()))


def is_unit(text: str) -> bool:
    """Short enough to be a unit, or a known long one. Words such as "typical" are none."""
    words = _LETTERS.findall(text)
    return bool(text) and all(word.lower() in _LONG_UNITS for word in words)
