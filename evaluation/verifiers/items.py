"""`set`: several items, order and repetition do not count.

Ground truth `{"items": ["clk", "rst"], "case_sensitive": false}`. The answer is a JSON list, or
items separated by commas, semicolons, line ends or a last "and". The score is F1, so it is 1 only
when the sets are equal; below half precision (a list of everything in sight) it is 0.
"""

from __future__ import annotations

import json
import re

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import final_answer, normalise
from evaluation.verifiers.verdict import Verdict

_SEPARATOR = re.compile(r"[,;\n]|\s+and\s+", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load("set", ground_truth)
    strict = bool(truth.get("case_sensitive"))
    wanted = {normalise(i, case_sensitive=strict) for i in truths.texts("set", truth, "items")}
    found = final_answer(answer)
    if isinstance(found, Verdict):
        return found
    said = {normalise(item, case_sensitive=strict) for item in split_items(found.text)} - {""}
    if not said:
        return Verdict(0.0, "no_answer", "no items")
    hits = len(wanted & said)
    if hits == len(wanted) == len(said):
        return Verdict(1.0, "pass")
    detail = f"{hits} of {len(wanted)} items, {len(said) - hits} wrong"
    if 2 * hits < len(said):
        return Verdict(0.0, "mismatch", detail)
    return Verdict(2 * hits / (len(wanted) + len(said)), "partial", detail)


def split_items(text: str) -> list[str]:
    """The items of a JSON list, or of a written list."""
    stripped = text.strip()
    if stripped.startswith("["):
        try:
            values = json.loads(stripped)
        except (ValueError, RecursionError):
            stripped = stripped.strip("[]")
        else:
            return [str(v) for v in values] if isinstance(values, list) else []
    return [
        _BULLET.sub("", part).strip()
        for line in stripped.splitlines()
        for part in _SEPARATOR.split(_BULLET.sub("", line))
    ]
