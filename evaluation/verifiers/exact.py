"""`exact`: the answer is one given text.

Ground truth `{"value": "posedge", "case_sensitive": false}`. Spaces, quotes, emphasis and a closing
full stop do not count; case counts only when asked for.
"""

from __future__ import annotations

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import final_answer, normalise
from evaluation.verifiers.verdict import Verdict


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load("exact", ground_truth)
    return match_any([truths.text("exact", truth, "value")], answer, truth.get("case_sensitive"))


def match_any(accepted: list[str], answer: str, case_sensitive: object) -> Verdict:
    """Pass when the final answer equals one of `accepted`."""
    found = final_answer(answer)
    if isinstance(found, Verdict):
        return found
    strict = bool(case_sensitive)
    said = normalise(found.text, case_sensitive=strict)
    if said in {normalise(form, case_sensitive=strict) for form in accepted}:
        return Verdict(1.0, "pass")
    return Verdict(0.0, "mismatch", f"said {said[:80]!r}")
