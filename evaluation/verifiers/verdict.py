"""What a verifier says about an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTPUT_CHARS: Final = 1000


@dataclass(frozen=True)
class Verdict:
    """`score` in [0, 1], or None when there is no verdict (a tool is missing or failed).

    `outcome` is one of: pass, mismatch, partial, no_answer, no_code, no_top, compile,
    interface, rejected:<rule>, runtime, limit:<cpu|memory|output>, infra:<what>.
    `infra:*` always has `score` None: it is never counted as a wrong answer.
    """

    score: float | None
    outcome: str
    detail: str = ""
    output: str = ""  # the end of what a tool printed, at most OUTPUT_CHARS

    @property
    def passed(self) -> bool:
        return self.score == 1.0
