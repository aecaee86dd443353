"""Units of measurement: enough of SI, electronics, computing and logistics to compare answers.

`parse_unit("mA")` and `parse_unit("milliamps")` give the same `Unit`; compounds with `/`, `*`,
`·`, `^` and `²` work (`V/µs`, `mm²`). Case counts in symbols (mA is not MA), not in names.
Celsius and kelvin are kept apart, as are dB and dBm: nothing with an offset is converted.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

_PREFIXES = {
    "f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "c": 1e-2, "d": 1e-1,
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30,
}  # fmt: skip
_PREFIX_NAMES = {
    "femto": 1e-15, "pico": 1e-12, "nano": 1e-9, "micro": 1e-6, "milli": 1e-3, "centi": 1e-2,
    "kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12,
}  # fmt: skip
# symbol -> (dimension, scale, takes a prefix)
_SYMBOLS = {
    "V": ("V", 1.0, True), "A": ("A", 1.0, True), "W": ("W", 1.0, True), "J": ("J", 1.0, True),
    "Hz": ("Hz", 1.0, True), "s": ("s", 1.0, True), "m": ("m", 1.0, True), "g": ("g", 1.0, True),
    "Ohm": ("ohm", 1.0, True), "ohm": ("ohm", 1.0, True), "F": ("F", 1.0, True),
    "H": ("H", 1.0, True), "C": ("C", 1.0, True), "S": ("S", 1.0, True), "N": ("N", 1.0, True),
    "Pa": ("Pa", 1.0, True), "bar": ("Pa", 1e5, True), "eV": ("eV", 1.0, True),
    "K": ("K", 1.0, False), "degC": ("degC", 1.0, False), "degF": ("degF", 1.0, False),
    "deg": ("deg", 1.0, False), "rad": ("rad", 1.0, True),
    "%": ("%", 1.0, False), "ppm": ("ppm", 1.0, False), "ppb": ("ppb", 1.0, False),
    "dB": ("dB", 1.0, False), "dBm": ("dBm", 1.0, False), "dBc": ("dBc", 1.0, False),
    "bit": ("bit", 1.0, True), "bits": ("bit", 1.0, True), "b": ("bit", 1.0, True),
    "B": ("bit", 8.0, True), "bps": ("bit/s", 1.0, True), "LSB": ("LSB", 1.0, False),
    "min": ("s", 60.0, False), "h": ("s", 3600.0, False), "hr": ("s", 3600.0, False),
    "d": ("s", 86400.0, False), "Wh": ("J", 3600.0, True), "Ah": ("C", 3600.0, True),
    "VA": ("VA", 1.0, True), "var": ("var", 1.0, True), "VAr": ("var", 1.0, True),
    "mil": ("m", 2.54e-5, False), "in": ("m", 0.0254, False), "ft": ("m", 0.3048, False),
    "t": ("g", 1e6, False), "lb": ("g", 453.59237, False), "L": ("L", 1.0, True),
    "l": ("L", 1.0, True), "rpm": ("rpm", 1.0, False), "Bd": ("Bd", 1.0, True),
    "cycle": ("cycle", 1.0, True), "cycles": ("cycle", 1.0, True),
    "USD": ("USD", 1.0, False), "EUR": ("EUR", 1.0, False),
}  # fmt: skip
_NAMES = {
    "volt": "V", "amp": "A", "ampere": "A", "watt": "W", "joule": "J", "hertz": "Hz",
    "second": "s", "sec": "s", "metre": "m", "meter": "m", "gram": "g", "ohm": "ohm",
    "farad": "F", "henry": "H", "henries": "H", "coulomb": "C", "siemens": "S", "newton": "N",
    "pascal": "Pa", "kelvin": "K", "celsius": "degC", "degree celsius": "degC",
    "degree": "deg", "percent": "%", "per cent": "%", "bit": "bit", "byte": "B",
    "minute": "min", "hour": "h", "day": "d", "inch": "in", "inches": "in", "foot": "ft",
    "feet": "ft", "tonne": "t", "ton": "t", "litre": "L", "liter": "L", "dollar": "USD",
    "euro": "EUR", "cycle": "cycle", "clock cycle": "cycle", "watt hour": "Wh", "watt-hour": "Wh",
}  # fmt: skip
# Micro sign, Greek mu, omega (NFC has already turned the ohm sign into it), product signs.
_SPELLING = str.maketrans(
    {
        **dict.fromkeys("\u00b5\u03bc", "u"),
        "\u03a9": "ohm",
        **dict.fromkeys("·×⋅", "*"),
        "²": "^2",
        "³": "^3",
    }
)
_FACTOR = re.compile(r"([A-Za-z%][A-Za-z% -]*?)(?:\^?(-?\d))?")


class Unit(NamedTuple):
    """`scale` converts to the dimension's own unit; `dimension` is sorted (symbol, power)."""

    scale: float
    dimension: tuple[tuple[str, int], ...]


@functools.lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit | None:
    """The unit that `text` names, or None when it is not one that we know."""
    spelled = unicodedata.normalize("NFC", text).strip().translate(_SPELLING)
    spelled = spelled.replace("°C", "degC").replace("°F", "degF").replace("°", "deg")
    spelled = re.sub(r"\s+per\s+", "/", spelled.replace("per cent", "percent"))
    scale, powers, sign = 1.0, dict[str, int](), 1
    for part in re.split(r"([/*])", spelled):
        if part in ("/", "*"):
            sign = -1 if part == "/" else 1
            continue
        match = _FACTOR.fullmatch(part.strip())
        base = _base_unit(match.group(1).strip()) if match else None
        if match is None or base is None:
            return None
        power = sign * int(match.group(2) or 1)
        scale *= base.scale**power
        for symbol, exponent in base.dimension:
            powers[symbol] = powers.get(symbol, 0) + exponent * power
    return Unit(scale, tuple(sorted((s, p) for s, p in powers.items() if p)))


def _base_unit(name: str) -> Unit | None:
    return _symbol(name) or _spelled_out(name.casefold())


def _symbol(name: str) -> Unit | None:
    if name in _SYMBOLS:
        return _unit(name)
    for length in (2, 1):
        prefix, rest = name[:length], name[length:]
        if prefix in _PREFIXES and rest in _SYMBOLS and _SYMBOLS[rest][2]:
            return _unit(rest, _PREFIXES[prefix])
    return None


def _spelled_out(name: str) -> Unit | None:
    for candidate in (name, name.removesuffix("s"), name.replace("degrees", "degree")):
        if candidate in _NAMES:
            return _unit(_NAMES[candidate])
        for prefix, scale in _PREFIX_NAMES.items():
            rest = candidate.removeprefix(prefix).lstrip("- ")
            if candidate.startswith(prefix) and rest in _NAMES and _SYMBOLS[_NAMES[rest]][2]:
                return _unit(_NAMES[rest], scale)
    return None


def _unit(symbol: str, prefix: float = 1.0) -> Unit:
    dimension, scale, _ = _SYMBOLS[symbol]
    if dimension == "bit/s":
        return Unit(prefix * scale, (("bit", 1), ("s", -1)))
    return Unit(prefix * scale, ((dimension, 1),))
