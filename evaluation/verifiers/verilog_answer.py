"""Find the Verilog in a model's text. It only selects, it never repairs.

First, reasoning and byte order marks are dropped, `<answer>` tags are taken off, and a fence that
shares a line with other text (a start with its language, an end behind `endmodule`) gets its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from evaluation.verifiers.extraction import drop_thinking, fenced_blocks
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_tokens import tokens_of, units_of

MAX_CODE_CHARS = 100_000

# A line of its own or the end of one: `state[BEGIN]` is code.
_DONE = re.compile(
    r"(?:^[ \t]*\[BEGIN\]|(?<=[: ])\[BEGIN\][ \t]*$)(.*?)(?:\[DONE\]|\Z)",
    re.DOTALL | re.MULTILINE,
)
_FENCE_STARTS_LATE = re.compile(
    r"^(?![ \t]*(?:`{3}|~{3})|[^\n]*//)([^\n]*[^`\n])"
    r"(?=`{3,}[ \t]*(?:(?:system)?verilog|sv)[ \t]*$)",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE_ENDS_LATE = re.compile(
    r"(\bendmodule\b(?:[ \t]*:[ \t]*\w+)?)[ \t]*(?=(?:`{3,}|~{3,})[ \t]*$)", re.MULTILINE
)
# How a text without fences goes from prose to code, and back.
_FIRST_LINE = re.compile(
    r"""^[ \t]*(?:`\w+|//|/\*|\(\*|typedef\b|import\s+\w+::|(?:parameter|localparam)\b.*=
    |(?:macro)?module\s+(?:(?:automatic|static)\s+)?\w+\s*(?:[\#(;]|import\b|//|/\*)
    |(?:package|class)\s+\w+\s*;|primitive\s+\w+\s*\(|interface\s+\w+\s*[\#(;])""",
    re.MULTILINE | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"`\w+(?:[ \t]+\w+)?[ \t]*(?://.*|/\*.*\*/)?")
_LAST_LINE = re.compile(r"\bendmodule\b(?:[ \t]*:[ \t]*\w+)?(?=[ \t]*(?://.*)?$)", re.MULTILINE)


def extract_code(answer: str, top: str, before: str = "", after: str = "") -> str | Verdict:
    """The full text to compile for `answer`, or the verdict `no_code` or `no_top`.

    The last fenced block that holds `module <top>` wins, else the last block, else a
    `[BEGIN]...[DONE]` part, else from the first `module` word on, else the whole text. When the
    code found does not declare `top`, a task with `before` or `after` splices it between them.
    """
    kept = drop_thinking(answer)
    if kept is None or not kept.strip():
        return Verdict(0.0, "no_code", "empty" if kept is not None else "the reasoning never ends")
    if len(kept) > MAX_CODE_CHARS:
        return Verdict(0.0, "rejected:too_long", f"more than {MAX_CODE_CHARS} characters")
    text = _without_tags(kept.replace("\ufeff", ""), top)
    text = _FENCE_ENDS_LATE.sub(r"\1\n", _FENCE_STARTS_LATE.sub(r"\1\n", text))
    code = _select_code(text, top)
    if not code.strip():
        return Verdict(0.0, "no_code", "empty code block")
    if _declares(code, top):
        return code
    if before or after:
        return f"{before}{code}{after}"
    return Verdict(0.0, "no_top", f"no module {top}")


def _without_tags(text: str, top: str) -> str:
    """What stands in `<answer>` tags, unless only the text around them declares `top`."""
    inside = text.rpartition("<answer>")[2].partition("</answer>")[0]
    if inside == text or not inside.strip():
        return text
    return inside if _declares(inside, top) or not _declares(text, top) else text


def _select_code(text: str, top: str) -> str:
    fenced = fenced_blocks(text)
    blocks = [part for block in fenced or [text] for part in _DONE.findall(block)] or fenced
    if blocks:
        holders = [block for block in blocks if _declares(block, top)]
        return _with_helpers(str(holders[-1]), blocks) if holders else str(blocks[-1])
    return _bare_code(text, top)


def _with_helpers(chosen: str, blocks: Sequence[str]) -> str:
    """`chosen` with the units that it needs, directly or through others, but does not declare.

    The last one of each name. Packages and interfaces come first, as the language wants them.
    """
    tokens = tokens_of(chosen)
    have = {unit.name for unit in units_of(tokens)}
    declared = {
        unit.name: (unit, block[unit.edit.start : unit.edit.end])
        for block in blocks
        for unit in units_of(tokens_of(block))
    }
    before: list[str] = []
    after: list[str] = []
    waiting = list(tokens)
    while waiting:
        name = waiting.pop().text
        if name in declared and name not in have:
            have.add(name)
            unit, text = declared[name]
            (before if unit.tokens[0].text in ("package", "interface") else after).append(text)
            waiting += unit.tokens
    return "\n".join([*before[::-1], chosen, *after])


def _bare_code(text: str, top: str) -> str:
    """Code without a fence: when it declares `top`, prose lines before and after are left out."""
    first = _FIRST_LINE.search(text)
    code = text[first.start() :] if first else text
    if not _declares(code, top):
        return text
    *_, last = [0, *(match.end() for match in _LAST_LINE.finditer(code))]
    if not last or "/*" in code[last:]:
        return code
    return code[: _after_directives(code, last)] + "\n"


def _after_directives(code: str, start: int) -> int:
    """The end of the lines of directives that follow, such as an include guard's `endif."""
    end = position = start
    for line in code[start:].splitlines(keepends=True):
        position += len(line)
        said = line.strip()
        if _DIRECTIVE.fullmatch(said):
            end = position
        elif said and not said.startswith("//"):
            break
    return end


def _declares(code: str, top: str) -> bool:
    """Whether `code` declares `top`; a comment that mentions it does not."""
    words = [token.text for token in tokens_of(code) if token.text not in ("automatic", "static")]
    pairs = itertools.pairwise(words)
    return any(word in ("module", "macromodule") and name == top for word, name in pairs)
