r"""`numeric`: one number, with or without a unit.

Ground truth `{"value": 12.4, "unit": "mA", "rtol": 0.005, "atol": 0.0, "unit_required": false}`;
all but `value` optional. The answer may write the value in another prefix or spelling of the unit
(`0.0124 A`, `12.4 milliamps`); a bare number is read in the ground truth's unit unless
`unit_required`. A unit where the ground truth has none, or one of another dimension, fails.

A short sentence is read when it holds one quantity. Two different numbers, or more than
`MAX_WORDS` words, are rejected: a list of guesses or an echo of the question must not score.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import final_answer
from evaluation.verifiers.units import parse_unit
from evaluation.verifiers.verdict import Verdict

MAX_WORDS = 24
MAX_REPEATS = 3  # of the same number
MAX_RTOL = 0.2

# A number that is not part of a name (M2, v1.5, x_3) or of a longer number (1.2.3).
_NUMBER = re.compile(
    r"(?<![\w.^])([+\-−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,40})(?:\.\d{1,40})?|[+\-−]?\.\d{1,40})"
    r"(?:[eE]([+\-]?\d{1,4})|\s*(?:[x×*]|\\times)\s*10\s*\^\s*\{?([+\-−]?\d{1,3})\}?)?"
    r"(?![\d]|\.\d)"
)
_LETTERS = "A-Za-z\u00b5\u03bc\u2126\u03a9%°"
_UNIT = re.compile(
    rf"\s*([{_LETTERS}]+(?:\^?-?[0-9²³])?(?:\s?[/*·]\s?[{_LETTERS}]+(?:\^?-?[0-9²³])?)*)"
)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_LATEX_SPACE = re.compile(r"\\[ ,;]|~")
_WORDS_AFTER = re.compile(r"\s*([A-Za-z]+(?:[ -][A-Za-z]+)?)")


class Quantity(NamedTuple):
    """A number as read, and the unit's text behind it ("" when none)."""

    value: float
    unit: str


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load("numeric", ground_truth)
    wanted = Quantity(truths.number("numeric", truth, "value"), str(truth.get("unit") or ""))
    rtol = truths.number("numeric", truth, "rtol", 1e-9)
    atol = truths.number("numeric", truth, "atol", 0.0)
    if not (math.isfinite(wanted.value) and 0 <= rtol <= MAX_RTOL and 0 <= atol < math.inf):
        truths.wrong("numeric", "value, rtol or atol", f"finite, rtol at most {MAX_RTOL}", truth)
    found = final_answer(answer)
    if isinstance(found, Verdict):
        return found
    if len(found.text.split()) > MAX_WORDS:
        return Verdict(0.0, "rejected:wordy", f"more than {MAX_WORDS} words")
    return _compare(read_quantities(found.text), wanted, rtol, atol, truth.get("unit_required"))


def _compare(
    said: list[Quantity], wanted: Quantity, rtol: float, atol: float, unit_required: object
) -> Verdict:
    if not said:
        return Verdict(0.0, "no_answer", "no number")
    if len(set(said)) > 1 or len(said) > MAX_REPEATS:
        return Verdict(0.0, "rejected:ambiguous", f"{len(said)} numbers")
    quantity = said[0]
    value = quantity.value
    if quantity.unit:
        factor = conversion(quantity.unit, wanted.unit)
        if factor is None:
            return Verdict(0.0, "mismatch", f"unit {quantity.unit!r}, wanted {wanted.unit!r}")
        value *= factor
    elif wanted.unit and unit_required:
        return Verdict(0.0, "mismatch", f"no unit, wanted {wanted.unit!r}")
    # Half an ulp of slack, so that 0.0124 A equals 12.4 mA with rtol 0.
    slack = atol + max(rtol, 1e-12) * abs(wanted.value)
    if math.isfinite(value) and abs(value - wanted.value) <= slack:
        return Verdict(1.0, "pass")
    return Verdict(0.0, "mismatch", f"said {value:g} {wanted.unit}".rstrip())


def conversion(unit: str, wanted: str) -> float | None:
    """Factor from `unit` to `wanted`; None when they do not measure the same."""
    if unit == wanted or unit.casefold().rstrip("s") == wanted.casefold().rstrip("s") != "":
        left, right = parse_unit(unit), parse_unit(wanted)
        if left is None or right is None or left == right:
            return 1.0
    left, right = parse_unit(unit), parse_unit(wanted)
    if left is None or right is None or left.dimension != right.dimension:
        return None
    return left.scale / right.scale


def read_quantities(text: str) -> list[Quantity]:
    """Each number of `text` with the unit behind it, in order."""
    found: list[Quantity] = []
    text = _plain(text)
    for match in _NUMBER.finditer(text):
        mantissa = match.group(1).replace(",", "").replace("−", "-")
        exponent = (match.group(2) or match.group(3) or "0").replace("−", "-")
        found.append(Quantity(float(f"{mantissa}e{exponent}"), _unit_after(text, match.end())))
    return found


def _plain(text: str) -> str:
    """LaTeX's ways to write thousands, spaces, units and per cent, written plainly."""
    text = _LATEX_TEXT.sub(r"\1", text.replace("{,}", ",").replace("\\%", "%"))
    return _LATEX_SPACE.sub(" ", text.replace("\\mu ", "u").replace("\\mu", "u"))


def _unit_after(text: str, position: int) -> str:
    """The unit at `position`; words that are no unit ("12 modules", "3 and") are not one."""
    spelled = _WORDS_AFTER.match(text, position)
    if spelled and " " in spelled.group(1) and parse_unit(spelled.group(1)):
        return spelled.group(1)
    match = _UNIT.match(text, position)
    if match is None:
        return ""
    unit = match.group(1).replace(" ", "")
    if parse_unit(unit) is not None:
        return unit
    # Letters that touch the number ("12mX") are a unit that we do not know, never a word.
    return unit if match.start(1) == position else ""
