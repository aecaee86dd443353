r"""The final answer inside a model's text, and how texts are compared.

The rule, in this order:
1. everything up to the last `</think>` is dropped; a `<think>` that never closes is no answer;
2. the content of the last `\boxed{...}`;
3. else the rest of the last line that starts with `Answer:` or `The answer is`;
4. else the whole text, trimmed.
Several boxes, or several answer lines, that disagree are a hedge and are rejected. So are, behind
the reasoning, more than `MAX_CHARS` and digits outside ASCII.

`code_or_answer` is for kinds whose answer is a text in a formal language: the content of the last
Markdown fence, else the final answer by the rule above.

Not covered: understanding free prose. A sentence around the value is only read where a verifier
says so (numeric, choice); an exact answer has to stand alone or behind a marker.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from evaluation.verifiers.verdict import Verdict

MAX_CHARS = 20_000

# Blanks within a line only: `\s` would cross lines and make a text of empty lines quadratic.
_ANSWER_LINE = re.compile(
    r"^[ \t>*_#]*(?:the[ \t]+)?(?:final[ \t]+|correct[ \t]+)?answer"
    r"(?:[ \t]+is[ \t]*:?|[ \t]*[*_]*[ \t]*:)[*_]*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_SPACES = re.compile(r"\s+")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_WRAPPERS = ("**", "__", "`", '"', "'", "$", "*", "“", "”", "‘", "’")


class Extracted(NamedTuple):
    """The answer's text; `marked` when a box or an answer line set it apart."""

    text: str
    marked: bool


def final_answer(text: str) -> Extracted | Verdict:
    """The final answer of `text`, or the verdict that says why there is none."""
    kept = drop_thinking(text)
    if kept is None:
        return Verdict(0.0, "no_answer", "the reasoning never ends")
    if len(kept) > MAX_CHARS:
        return Verdict(0.0, "rejected:too_long", f"{len(kept)} characters, at most {MAX_CHARS}")
    if any(ord(char) > 127 and unicodedata.category(char) == "Nd" for char in kept):
        return Verdict(0.0, "rejected:digits", "digits outside ASCII")
    for found in (boxed_contents(kept), [m.group(1) for m in _ANSWER_LINE.finditer(kept)]):
        if found:
            if len({normalise(item) for item in found}) > 1:
                return Verdict(0.0, "rejected:ambiguous", f"{len(found)} different final answers")
            return _or_empty(Extracted(found[-1].strip(), marked=True))
    return _or_empty(Extracted(kept.strip(), marked=False))


def code_or_answer(text: str) -> str | Verdict:
    """The last fenced block of `text`, else its final answer; a verdict when there is neither."""
    kept = drop_thinking(text)
    blocks = fenced_blocks(kept) if kept and len(kept) <= MAX_CHARS else []
    if blocks:
        return blocks[-1] if blocks[-1].strip() else Verdict(0.0, "no_answer", "empty code block")
    found = final_answer(text)
    return found if isinstance(found, Verdict) else found.text


def fenced_blocks(text: str) -> list[str]:
    """The contents of Markdown fences; one that never closes ends with the text.

    Line by line: a regular expression over fences of any length is quadratic in hostile texts.
    """
    blocks: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if fence and match and match.group(1).startswith(fence) and not match.group(2).strip():
            fence = ""
        elif fence:
            blocks[-1] += line
        elif match:
            fence = match.group(1)
            blocks.append("")
    return blocks


def _or_empty(extracted: Extracted) -> Extracted | Verdict:
    return extracted if extracted.text else Verdict(0.0, "no_answer", "empty")


def drop_thinking(text: str) -> str | None:
    """The text after the last `</think>`; None when a `<think>` is left open."""
    rest = text.rpartition("</think>")[2]
    return None if "<think>" in rest else rest


def boxed_contents(text: str) -> list[str]:
    r"""The contents of each outermost `\boxed{...}` with balanced braces, in order."""
    found: list[str] = []
    position = text.find("\\boxed{")
    while position >= 0:
        start = position + len("\\boxed{")
        end = _closing_brace(text, start)
        if end is None:
            break
        found.append(text[start:end])
        position = text.find("\\boxed{", end)
    return found


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return None


def normalise(text: str, *, case_sensitive: bool = False) -> str:
    r"""Comparable form: NFC, one space between words, no quotes, emphasis or closing full stop.

    Case is folded unless `case_sensitive`. `\text{...}` of LaTeX is unwrapped.
    """
    result = _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()
    result = re.sub(r"\\(?:text|mathrm|texttt)\{([^{}]*)\}", r"\1", result)
    before = ""
    while result != before:
        before = result
        if len(result) > 1 and result.endswith("."):
            result = result[:-1].rstrip()
        for mark in _WRAPPERS:
            if result.startswith(mark) and len(result) > len(mark):
                result = result[len(mark) :].lstrip()
            if result.endswith(mark) and len(result) > len(mark):
                result = result[: -len(mark)].rstrip()
    return result if case_sensitive else result.casefold()
