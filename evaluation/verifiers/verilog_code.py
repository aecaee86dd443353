"""Find the Verilog in a model's text, and refuse what no honest module needs.

`extract_code` only selects, it never repairs. `clean_code` is the static gate, run on the
preprocessed text: an allow-list of system functions, no words that reach outside the module, no
comment left open. What an honest answer may hold but no simulation needs is left out instead of
refused: modules that the wanted one does not use (an answer's own test bench), and prints. Tokens
come from a small lexer of our own, because the gate must see exactly what a hostile text holds
even where a full parser would give up.

Not covered: whether the code is legal or right; the simulator decides that afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from evaluation.verifiers.extraction import drop_thinking, fenced_blocks
from evaluation.verifiers.verdict import Verdict

MAX_CODE_CHARS = 100_000

# Functions of constants, types and bits. Everything else (stop, files, random, time) is refused:
# an honest synthesisable module needs none of it.
SYSTEM_FUNCTIONS = frozenset({
    "$clog2", "$signed", "$unsigned", "$bits", "$size", "$high", "$low", "$left", "$right",
    "$increment", "$dimensions", "$unpacked_dimensions", "$countones", "$onehot", "$onehot0",
    "$isunknown", "$countbits", "$rtoi", "$itor", "$ceil", "$floor", "$pow", "$ln", "$log10",
    "$sqrt",
})  # fmt: skip
# Statements that only print. Honest answers hold them for debugging, so they are cut out, with
# their arguments: nothing that an answer says may reach the output that is judged.
PRINTS = frozenset({
    *(f"${name}{radix}" for name in ("display", "write", "strobe", "monitor")
      for radix in ("", "b", "o", "h")),
    "$monitoron", "$monitoroff", "$error", "$warning", "$info", "$timeformat",
})  # fmt: skip
FORBIDDEN_WORDS = frozenset({
    "force", "release", "bind", "final", "program", "config", "library", "primitive", "export",
    "extern", "checker", "alias",
})  # fmt: skip
DIRECTIVES = frozenset({
    "`timescale", "`default_nettype", "`resetall", "`celldefine", "`endcelldefine", "`line",
    "`begin_keywords", "`end_keywords", "`pragma", "`nounconnected_drive", "`unconnected_drive",
})  # fmt: skip

_UNIT_END = {
    "module": "endmodule", "macromodule": "endmodule",
    "interface": "endinterface", "package": "endpackage",
}  # fmt: skip
_PLAIN_DIRECTIVE = re.compile(
    r"^[ \t]*`(?:timescale[ \t]+[\w \t/]+|default_nettype[ \t]+\w+|resetall)[ \t]*$", re.MULTILINE
)
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
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Edit(NamedTuple):
    """A part of a text, by offsets, and what stands there instead."""

    start: int
    end: int
    text: str = "\n"


class Unit(NamedTuple):
    """A module, interface or package: its name and the tokens from its keyword to its end."""

    name: str
    tokens: list[Token]

    @property
    def edit(self) -> Edit:
        """Leaves the unit out."""
        return Edit(self.tokens[0].start, self.tokens[-1].end)


def tokens_of(code: str) -> list[Token]:
    """Tokens without spaces and comments, up to an unclosed comment, which is an `open` token.

    What stands in `(* attributes *)` counts as code: `@(*/* */)` must hide nothing.
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(code):
        kind = match.lastgroup or "mark"
        if kind not in ("space", "comment"):
            found.append(Token(kind, match.group(), match.start()))
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
    blocks = fenced_blocks(text) or _DONE.findall(text)
    if blocks:
        holders = [block for block in blocks if _declares(block, top)]
        return _with_helpers(str(holders[-1]), blocks) if holders else str(blocks[-1])
    return _bare_code(text, top)


def _with_helpers(chosen: str, blocks: Sequence[str]) -> str:
    """`chosen` and the modules that it names but another block declares, the last one of each."""
    words = {token.text for token in tokens_of(chosen) if token.kind == "word"}
    have = {unit.name for unit in units_of(tokens_of(chosen))}
    helpers: dict[str, str] = {}
    for block in blocks:
        for name, tokens in units_of(tokens_of(block)):
            if name in words - have:
                helpers[name] = block[tokens[0].start : tokens[-1].end]
    return "\n".join([chosen, *helpers.values()])


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


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with each edit made; one that lies in a part already replaced is dropped."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start >= position:
            parts += [text[position : edit.start], edit.text]
            position = edit.end
    return "".join([*parts, text[position:]])


def check_raw(code: str) -> Verdict | None:
    """What must be refused before the preprocessor sees it: other files, forged line numbers."""
    for token in tokens_of(code):
        if token.kind == "directive" and token.text in ("`include", "`line"):
            return Verdict(0.0, f"rejected:{token.text[1:]}")
    return None


def is_preprocessed(code: str) -> bool:
    """Whether the preprocessor would leave `code` as it is: no macro, no condition."""
    return "`" not in _PLAIN_DIRECTIVE.sub("", code)


def clean_code(code: str, top: str) -> str | Verdict:
    """The static gate on preprocessed code: the text that may be compiled, or the refusal."""
    tokens = tokens_of(code)
    refused = _check_ended(tokens) or (
        Verdict(0.0, "rejected:unterminated", "a string in three quotes") if '"""' in code else None
    )
    if refused is not None:
        return refused
    unused = _unused_units(tokens, top)
    if isinstance(unused, Verdict):
        return unused
    outside = [token for token in tokens if not any(_inside(token, unit.edit) for unit in unused)]
    prints = call_edits(outside, PRINTS)
    kept = [token for token in outside if not any(_inside(token, edit) for edit in prints)]
    for check in (_check_tokens, _check_hierarchy):
        refused = check(kept)
        if refused is not None:
            return refused
    return apply_edits(code, [*(unit.edit for unit in unused), *prints])


def _inside(token: Token, edit: Edit) -> bool:
    return edit.start <= token.start < edit.end


def call_edits(tokens: Sequence[Token], names: Container[str]) -> list[Edit]:
    """Edits that empty each statement that calls a system task of `names`."""
    edits: list[Edit] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.kind == "system" and token.text in names:
            index = after_parentheses(tokens, index)
            # An empty block stands wherever the statement did; a lone `;` does not after `initial`.
            statement = index < len(tokens) and tokens[index].text == ";"
            index += statement
            edits.append(
                Edit(token.start, tokens[index - 1].end, "begin end" if statement else " ")
            )
    return edits


def after_parentheses(tokens: Sequence[Token], index: int) -> int:
    """The index after the parentheses that open at `index`; `index` itself when none do."""
    depth = 0
    while index < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index + 1 if tokens[index].text == ")" else index
        index += 1
    return index


def _check_ended(tokens: Sequence[Token]) -> Verdict | None:
    if any(kind == "open" or (kind == "mark" and text == '"') for kind, text, _ in tokens):
        return Verdict(0.0, "rejected:unterminated", "a comment or string is left open")
    return None


def _check_tokens(tokens: list[Token]) -> Verdict | None:
    for index, (kind, text, _) in enumerate(tokens):
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


def units_of(tokens: Sequence[Token]) -> list[Unit]:
    """Modules, interfaces and packages in order."""
    units: list[Unit] = []
    index = 0
    while index < len(tokens):
        start = index
        index += 1
        if tokens[start].text not in _UNIT_END:
            continue
        while index < len(tokens) and tokens[index].text in ("automatic", "static"):
            index += 1
        name = tokens[index].text if index < len(tokens) else ""
        wanted = _UNIT_END[tokens[start].text]
        while index < len(tokens) and tokens[index].text != wanted:
            index += 1
        index += 1
        units.append(Unit(name, list(tokens[start:index])))
    return units


def _unused_units(tokens: Sequence[Token], top: str) -> list[Unit] | Verdict:
    """Units that `top` does not use, directly or through others; the refusal when it is absent."""
    units = units_of(tokens)
    words: dict[str, set[str]] = {}
    for unit in units:
        if unit.name in words:
            return Verdict(0.0, "rejected:redeclared", unit.name)
        words[unit.name] = {token.text for token in unit.tokens if token.kind == "word"}
    if top not in words:
        return Verdict(0.0, "no_top", f"no module {top}")
    inside = {token.start for unit in units for token in unit.tokens}
    used = {top, *(t.text for t in tokens if t.start not in inside and t.text in words)}
    waiting = list(used)
    while waiting:
        for name in words[waiting.pop()] & words.keys() - used:
            used.add(name)
            waiting.append(name)
    return [unit for unit in units if unit.name not in used]
