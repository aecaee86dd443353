"""Every row against its own verifier: the reference passes, near misses and an echo fail."""

from __future__ import annotations

from evaluation.verifiers import verify
from training.data.rows import Draft

SELF_CHECK_FAILED = "self_check_failed"
PERTURBATION_PASSED = "perturbation_passed"
ECHO_PASSED = "echo_passed"


def refuse(draft: Draft) -> str:
    """The reason why the draft cannot be trusted, "" when it can."""
    if not draft.verifier:
        return ""
    if not verify(draft.verifier, draft.truth, draft.answer).passed:
        return SELF_CHECK_FAILED
    if any(verify(draft.verifier, draft.truth, wrong).passed for wrong in (*draft.wrong, "")):
        return PERTURBATION_PASSED
    if verify(draft.verifier, draft.truth, draft.prompt).passed:
        return ECHO_PASSED
    return ""
