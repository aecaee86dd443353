"""`alias`: the answer is one of several accepted names of the same thing.

Ground truth `{"aliases": ["WB", "Wishbone"], "case_sensitive": false}`.
"""

from __future__ import annotations

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.exact import match_any
from evaluation.verifiers.verdict import Verdict


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load("alias", ground_truth)
    accepted = truths.texts("alias", truth, "aliases")
    return match_any(accepted, answer, truth.get("case_sensitive"))
