r"""`regex`: the whole answer matches a pattern.

Ground truth `{"pattern": "0x[0-9A-F]{4}", "case_sensitive": true}`, in RE2's syntax. The final
answer must match from end to end, as written or without quotes, emphasis and a closing full stop.
Matching takes linear time (`patterns`). A pattern that fits the empty text is refused.
"""

from __future__ import annotations

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import final_answer, normalise
from evaluation.verifiers.patterns import compile_pattern, encodable
from evaluation.verifiers.verdict import Verdict


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load("regex", ground_truth)
    strict = bool(truth.get("case_sensitive", True))
    text = truths.text("regex", truth, "pattern")
    pattern = compile_pattern(text, case_sensitive=strict)
    if pattern.fullmatch(""):
        truths.wrong("regex", "pattern", "one that does not fit an empty answer", text)
    found = final_answer(answer)
    if isinstance(found, Verdict):
        return found
    forms = (found.text, normalise(found.text, case_sensitive=True))
    if any(pattern.fullmatch(encodable(form)) for form in forms):
        return Verdict(1.0, "pass")
    return Verdict(0.0, "mismatch", f"said {found.text[:80]!r}")
