"""What a verifier says about an answer."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

OUTPUT_CHARS: Final = 1000
UNDECIDED: Final = "undecided"


_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Verdict:
    """`score` in [0, 1], or None when there is no verdict.

    `outcome` is one of: pass, mismatch, partial, no_answer, no_code, no_top, compile,
    interface, rejected:<rule>, runtime, limit:<cpu|memory|output>, infra:<what>, undecided.
    `infra:*` (a fault of the machine) and undecided (a proof that did not converge) always have
    `score` None: they are never counted as wrong answers.
    """

    score: float | None
    outcome: str
    detail: str = ""
    output: str = ""  # the end of what a tool printed, at most OUTPUT_CHARS

    @property
    def passed(self) -> bool:
        return self.score == 1.0


def no_verdict(error: OSError) -> Verdict:
    """What a full disk says of an answer: nothing. Any other error goes on."""
    if error.errno not in _DISK_FULL:
        raise error
    return Verdict(None, "infra:disk", f"{error.filename or 'temporary folder'}: {error.strerror}")
