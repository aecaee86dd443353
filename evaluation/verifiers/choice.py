"""`choice`: one of several options, named by its letter.

Ground truth `{"letter": "B", "choices": ["8", "16", "32", "64"]}` (choices optional; the first is
A). Accepted: the letter (`B`, `(B)`, `B.`, `Option B`), the letter followed by that choice's own
text, or that choice's text alone when no other choice reads the same. Anything longer, such as a
list of all choices, fails.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import final_answer, normalise
from evaluation.verifiers.verdict import Verdict

_LETTER = re.compile(
    r"(?:(?:option|choice)\s+)?[(\[]?([a-z])[)\]]?(?:\s*[.:)\-]\s*(.*)|\s+(.*))?", re.DOTALL
)


class Question(NamedTuple):
    """The right letter, in upper case, and the choices as they are written, none when not given."""

    letter: str
    choices: list[str]


def read_question(ground_truth: str) -> Question:
    """What a ground truth says. Raises `UserError` when it has another shape."""
    truth = truths.load("choice", ground_truth)
    letter = truths.text("choice", truth, "letter").strip()
    if not re.fullmatch("[A-Za-z]", letter):
        truths.wrong("choice", "letter", "one letter", letter)
    letter = letter.upper()
    if "choices" not in truth:
        return Question(letter, [])
    choices = truths.texts("choice", truth, "choices")
    if ord(letter) - ord("A") >= len(choices):
        truths.wrong("choice", "letter", f"one of the {len(choices)} choices", letter)
    return Question(letter, choices)


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    letter, choices = read_question(ground_truth)
    found = final_answer(answer)
    if isinstance(found, Verdict):
        return found
    said = _chosen(normalise(found.text), [normalise(choice) for choice in choices])
    if said is None:
        return Verdict(0.0, "no_answer", f"names no single choice: {found.text[:80]!r}")
    if said.upper() == letter:
        return Verdict(1.0, "pass")
    return Verdict(0.0, "mismatch", f"chose {said.upper()}")


def _chosen(said: str, choices: list[str]) -> str | None:
    """The letter that `said` names, or None."""
    if choices.count(said) == 1:
        return chr(ord("a") + choices.index(said))
    match = _LETTER.fullmatch(said)
    if match is None:
        return None
    letter = match.group(1)
    rest = normalise(match.group(2) or match.group(3) or "")
    index = ord(letter) - ord("a")
    if choices and index >= len(choices):
        return None
    if rest and (not choices or rest != choices[index]):
        return None
    return letter
