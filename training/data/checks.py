"""Every row against its own verifier: the reference passes, near misses and an echo fail."""

from __future__ import annotations

from typing import Final

from evaluation.verifiers import verify
from training.data.rows import Draft
from workspace.errors import TransientError

SELF_CHECK_FAILED: Final = "self_check_failed"
PERTURBATION_PASSED: Final = "perturbation_passed"
ECHO_PASSED: Final = "echo_passed"


def refuse(draft: Draft) -> str:
    """The reason why the draft cannot be trusted, "" when it can."""
    if not draft.verifier:
        return ""
    if not passes(draft.verifier, draft.truth, draft.answer):
        return SELF_CHECK_FAILED
    if any(passes(draft.verifier, draft.truth, wrong) for wrong in (*draft.wrong, "")):
        return PERTURBATION_PASSED
    if passes(draft.verifier, draft.truth, draft.prompt):
        return ECHO_PASSED
    return ""


def passes(verifier: str, truth: str, answer: str) -> bool:
    """Whether the answer is right.

    Raises `TransientError` when there is no verdict (the simulator ran out of wall time twice): a
    row dropped for that would make the data set depend on how busy the machine was.
    """
    verdict = verify(verifier, truth, answer)
    if verdict.outcome == "undecided":
        return False  # a proof that never converges: trying again would not help
    if verdict.score is None:
        raise TransientError(f"verifier {verifier} gave no verdict: {verdict.outcome}")
    return verdict.passed
