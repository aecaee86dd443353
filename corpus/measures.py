"""Numbers with units as they stand in table cells and column headers.

`parse_number("3.3 V")` -> Quantity(3.3, "V"); anything that is not one plain number gives None:
ranges, hexadecimal, codes with leading zeros, versions, tolerances, bounds ("< 5").
Units are a closed list with SI prefixes, so that "2D" or "32b" is not taken for a quantity.
Values are Decimal until the end, so that 500 mV is 0.5 V exactly.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, NamedTuple

_PREFIXES: Final = {
    **{"f": -15, "p": -12, "n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3},
    **{"": 0, "k": 3, "M": 6, "G": 9, "T": 12},
}
_PREFIXED_NAMES: Final = (
    "V A W Hz s m g F H Ω ohm J C Pa eV S T B b bit bits bps Wh Ah VA var Vpp Vrms N Nm Sps baud"
)
_PLAIN_NAMES: Final = """
    % ‰ ppm ppb K °C °F ° deg rad dB dBm dBc dBV dBi min h hr hrs d day days week weeks month
    months year years byte bytes KB KiB MiB GiB kbit Mbit Gbit Kbps kbps Mbps Gbps MT/s rpm RPM
    cycle cycles clk clocks LSB LSBs mil mils in inch ft px pcs pieces unit units lb oz L l ml
    bar psi sq □ $ € £ ¥ USD EUR GBP p.u. pu cm mm² mm2 µm² um2 cm² cm2 m² m2 m³ m3 Ω/sq LUTs FFs
"""
_PREFIXED: Final = frozenset(_PREFIXED_NAMES.split())
_UNITS: Final = frozenset(_PLAIN_NAMES.split()) | {p + u for p in _PREFIXES for u in _PREFIXED}
_NUMBER: Final = re.compile(
    r"""(?P<currency>[$€£¥]?)\s?
        (?P<sign>[-+−–]?)
        (?P<digits>(?:0|[1-9]\d{0,2}(?:[,\u202f\u2009]\d{3})+|[1-9]\d*)(?:\.\d+)?|\.\d+)
        (?P<power>[eE][-+−]?\d{1,3}|\s?[×x]\s?10\^[-+−]?\d{1,3})?
        \s?(?P<unit>.*)""",
    re.VERBOSE | re.DOTALL,
)
_HEADER_UNIT: Final = re.compile(r"\s*(?:[\[(]\s*(?P<inner>[^\[\]()]{1,12}?)\s*[\])])\s*$")
_EMPTY: Final = frozenset(["", "-", "–", "—", "−", "--", "---", "n/a", "N/A", "n.a.", "NA", "…"])
# Glued to a digit, these letters are more often part of a name: "4T", "1F", "2S".
_NAME_LETTERS: Final = frozenset("TNSCBFbdhlL")
# A longer whole number is an identifier, and a float would not hold it.
_MAX_EXACT_DIGITS: Final = 15


class Quantity(NamedTuple):
    """A value as written, in its unit ("" when none is given)."""

    value: Decimal
    unit: str


class NamedUnit(NamedTuple):
    """A header split into its name and its unit ("" when none is given)."""

    name: str
    unit: str


def is_empty(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip() in _EMPTY


def is_unit(text: str) -> bool:
    """Whether `text` is a known unit or a quotient or product of them, e.g. "V/µs"."""
    if text in _UNITS:
        return True
    parts = re.split(r"[/·*]", text)
    return len(parts) in (2, 3) and all(_strip_power(part) in _UNITS for part in parts)


def parse_number(text: str) -> Quantity | None:
    """The one number that a cell holds, or None."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"].strip()
    if match["currency"]:
        if unit:
            return None
        unit = match["currency"]
    if unit and not is_unit(unit):
        return None
    if unit in _NAME_LETTERS and text.strip()[-2].isdigit():
        return None
    digits = re.sub(r"[,\u202f\u2009]", "", match["digits"])
    if digits.isdigit() and len(digits) > _MAX_EXACT_DIGITS:
        return None
    power = re.sub(r"[−]", "-", match["power"] or "")
    power = re.sub(r"\s?[×x]\s?10\^", "e", power)
    sign = "-" if match["sign"] in ("-", "−", "–") else ""
    value = Decimal(sign + digits + power)
    return Quantity(value, unit) if math.isfinite(float(value)) else None


def split_header(text: str) -> NamedUnit:
    """Take "Delay [ns]" or "Delay (ns)" apart; brackets that hold no unit stay in the name."""
    match = _HEADER_UNIT.search(text)
    if match and match.start() > 0 and is_unit(match["inner"]):
        return NamedUnit(text[: match.start()].strip(), match["inner"])
    return NamedUnit(text.strip(), "")


def convert(quantity: Quantity, unit: str) -> Decimal | None:
    """The value in `unit`, or None when the units differ by more than an SI prefix."""
    if quantity.unit == unit:
        return quantity.value
    have, want = _exponent(quantity.unit), _exponent(unit)
    for base, exponent in have.items():
        if base in want:
            return quantity.value.scaleb(exponent - want[base])
    return None


def _exponent(unit: str) -> dict[str, int]:
    """Each way of reading `unit` as SI prefix + base unit: base -> power of ten."""
    return {
        unit[len(prefix) :]: exponent
        for prefix, exponent in _PREFIXES.items()
        if unit.startswith(prefix) and unit[len(prefix) :] in _PREFIXED
    }


def _strip_power(unit: str) -> str:
    return re.sub(r"(?<=[A-Za-z])(?:\^?-?[1-4]|[²³])$", "", unit)
