"""Find the Verilog in a model's text, and refuse what no honest module needs.

`extract_code` only selects, it never repairs. `check_code` is the static gate, run on the
preprocessed text: an allow-list of system functions, no words that reach outside the module, no
comment left open, no modules besides the wanted one and those that it uses. Tokens come from a
small lexer of our own, because the gate must see exactly what a hostile text holds even where a
full parser would give up.

Not covered: whether the code is legal or right; the simulator decides that afterwards.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from evaluation.verifiers.extraction import drop_thinking
from evaluation.verifiers.verdict import Verdict

MAX_CODE_CHARS = 100_000

# Functions of constants, types and bits. Everything else (print, stop, files, random, time) is
# out: an honest synthesisable module needs none of it.
SYSTEM_FUNCTIONS = frozenset({
    "$clog2", "$signed", "$unsigned", "$bits", "$size", "$high", "$low", "$left", "$right",
    "$increment", "$dimensions", "$unpacked_dimensions", "$countones", "$onehot", "$onehot0",
    "$isunknown", "$countbits", "$rtoi", "$itor", "$ceil", "$floor", "$pow", "$ln", "$log10",
    "$sqrt",
})  # fmt: skip
FORBIDDEN_WORDS = frozenset({
    "force", "release", "bind", "deassign", "defparam", "final", "program", "config", "library",
    "primitive", "export", "extern", "checker", "alias",
})  # fmt: skip
DIRECTIVES = frozenset({
    "`timescale", "`default_nettype", "`resetall", "`celldefine", "`endcelldefine", "`line",
    "`begin_keywords", "`end_keywords", "`pragma", "`nounconnected_drive", "`unconnected_drive",
})  # fmt: skip

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_DONE = re.compile(r"\[BEGIN\](.*?)(?:\[DONE\]|\Z)", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:\\.|[^"\\\n])*")
    |(?P<system>\$[A-Za-z_0-9$]+)
    |(?P<directive>`[A-Za-z_0-9$]*)
    |(?P<escaped>\\\S+)
    |(?P<number>\d*\s*'[sS]?[bBoOdDhH]\s*[0-9a-fA-FxXzZ?_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_][A-Za-z_0-9$]*)
    |(?P<open>/\*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is word, system, directive, escaped, number, string, open or mark."""

    kind: str
    text: str


def tokens_of(code: str) -> list[Token]:
    """Tokens without spaces and comments, up to an unclosed comment, which is an `open` token.

    What stands in `(* attributes *)` counts as code: `@(*/* */)` must hide nothing.
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(code):
        kind = match.lastgroup or "mark"
        if kind not in ("space", "comment"):
            found.append(Token(kind, match.group()))
        if kind == "open":
            break
    return found


def extract_code(answer: str, top: str, before: str = "", after: str = "") -> str | Verdict:
    """The full text to compile for `answer`, or the verdict `no_code` or `no_top`.

    The last fenced block that holds `module <top>` wins, else the last block, else a
    `[BEGIN]...[DONE]` part, else from the first `module` word on, else the whole text. When the
    code found does not declare `top`, a task with `before` or `after` splices it between them.
    """
    if len(answer) > MAX_CODE_CHARS:
        return Verdict(0.0, "rejected:too_long", f"more than {MAX_CODE_CHARS} characters")
    kept = drop_thinking(answer)
    if kept is None or not kept.strip():
        return Verdict(0.0, "no_code", "empty" if kept is not None else "the reasoning never ends")
    code = _select_code(kept, top)
    if not code.strip():
        return Verdict(0.0, "no_code", "empty code block")
    if _declares(code, top):
        return code
    if before or after:
        return f"{before}{code}{after}"
    return Verdict(0.0, "no_top", f"no module {top}")


def _select_code(text: str, top: str) -> str:
    blocks = _fenced_blocks(text) or _DONE.findall(text)
    if blocks:
        holders = [block for block in blocks if _declares(block, top)]
        return str((holders or blocks)[-1])
    return _bare_code(text, top)


def _fenced_blocks(text: str) -> list[str]:
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


def _bare_code(text: str, top: str) -> str:
    """Code without a fence: when it declares `top`, prose lines before and after are left out."""
    if not _declares(text, top):
        return text
    first = re.search(r"^[ \t]*(?:`\w+|module\b|package\b|typedef\b|//|/\*)", text, re.MULTILINE)
    last = text.rfind("endmodule")
    start = first.start() if first else 0
    if last < 0 or "/*" in text[last:]:
        return text[start:]
    return text[start : last + len("endmodule")] + "\n"


def _declares(code: str, top: str) -> bool:
    return re.search(rf"\bmodule\s+(?:automatic\s+|static\s+)?{re.escape(top)}\b", code) is not None


def check_raw(code: str) -> Verdict | None:
    """What must be refused before the preprocessor sees it: inclusion of other files."""
    for token in tokens_of(code):
        if token.kind == "directive" and token.text == "`include":
            return Verdict(0.0, "rejected:include")
    return None


def check_code(code: str, top: str) -> Verdict | None:
    """The static gate on preprocessed code; None when it may be compiled."""
    tokens = tokens_of(code)
    for check in (_check_tokens, _check_hierarchy):
        refused = check(tokens)
        if refused is not None:
            return refused
    return _check_modules(tokens, top)


def _check_tokens(tokens: list[Token]) -> Verdict | None:
    for index, (kind, text) in enumerate(tokens):
        if kind == "open" or (kind == "mark" and text == '"'):
            return Verdict(0.0, "rejected:unterminated", "a comment or string is left open")
        if text in FORBIDDEN_WORDS:
            return Verdict(0.0, "rejected:word", text)
        if kind == "system" and text not in SYSTEM_FUNCTIONS:
            return Verdict(0.0, "rejected:system_task", text)
        if kind == "directive" and text not in DIRECTIVES:
            return Verdict(0.0, "rejected:directive", text)
        if kind == "escaped":
            return Verdict(0.0, "rejected:escaped_name", text[:40])
        if text == "import" and index + 1 < len(tokens) and tokens[index + 1].kind == "string":
            return Verdict(0.0, "rejected:word", "import of a foreign function")
    return None


def _check_hierarchy(tokens: list[Token]) -> Verdict | None:
    """`a.b` is allowed only when `a` is also declared or used on its own in this text."""
    alone = {
        token.text
        for index, token in enumerate(tokens)
        if token.kind == "word"
        and not (index + 1 < len(tokens) and tokens[index + 1].text == ".")
        and not (index > 0 and tokens[index - 1].text == ".")
    }
    for index in range(len(tokens) - 2):
        left, dot, right = tokens[index : index + 3]
        if dot.text == "." and left.kind == right.kind == "word" and left.text not in alone:
            return Verdict(0.0, "rejected:hierarchy", f"{left.text}.{right.text}")
    return None


def _check_modules(tokens: list[Token], top: str) -> Verdict | None:
    """Each module must be `top` or be used, directly or not, by it; no name twice."""
    bodies: dict[str, set[str]] = {}
    index = 0
    while index < len(tokens):
        if tokens[index].text not in ("module", "macromodule", "interface", "package"):
            index += 1
            continue
        name_at = index + 1
        while name_at < len(tokens) and tokens[name_at].text in ("automatic", "static"):
            name_at += 1
        name = tokens[name_at].text if name_at < len(tokens) else ""
        end = next(
            (i for i in range(name_at, len(tokens)) if tokens[i].text.startswith("end" "module")
             or tokens[i].text in ("endinterface", "endpackage")),
            len(tokens),
        )  # fmt: skip
        if name in bodies:
            return Verdict(0.0, "rejected:redeclared", name)
        bodies[name] = {t.text for t in tokens[name_at + 1 : end] if t.kind == "word"}
        index = end + 1
    if top not in bodies:
        return Verdict(0.0, "no_top", f"no module {top}")
    used, waiting = {top}, [top]
    while waiting:
        for name in bodies[waiting.pop()] & bodies.keys() - used:
            used.add(name)
            waiting.append(name)
    extra = sorted(bodies.keys() - used)
    return Verdict(0.0, "rejected:extra_top", ", ".join(extra)) if extra else None
