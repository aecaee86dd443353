"""Refuse what no honest module needs, leave out what it may hold and no simulation needs.

`clean_code` is the static gate, run on the preprocessed text: an allow-list of system functions, no
words that reach outside of the module, no comment left open. Left out instead of refused are
modules that the wanted one does not use (an answer's own test bench) and what `verilog_cuts` says.

Not covered: whether the code is legal or right; the simulator decides that afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_cuts import cuts
from evaluation.verifiers.verilog_tokens import (
    Edit,
    Token,
    Unit,
    apply_edits,
    outside,
    tokens_of,
    units_of,
    without_layout,
)

# Functions of constants, types and bits. Everything else (files, randomness, time) is refused: an
# honest synthesisable module needs none of it.
SYSTEM_FUNCTIONS = frozenset({
    "$clog2", "$signed", "$unsigned", "$bits", "$size", "$high", "$low", "$left", "$right",
    "$increment", "$dimensions", "$unpacked_dimensions", "$countones", "$onehot", "$onehot0",
    "$isunknown", "$countbits", "$cast", "$rtoi", "$itor", "$realtobits", "$bitstoreal", "$ceil",
    "$floor", "$pow", "$ln", "$log10", "$exp", "$sqrt", "$hypot",
    *(f"${arc}{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
      for arc in ("", "a")),
    "$atan2",
})  # fmt: skip
FORBIDDEN_WORDS = frozenset({
    "force", "release", "bind", "program", "config", "library", "extern", "checker", "alias",
})  # fmt: skip
DIRECTIVES = frozenset({
    "`timescale", "`default_nettype", "`resetall", "`celldefine", "`endcelldefine",
    "`begin_keywords", "`end_keywords", "`pragma", "`nounconnected_drive", "`unconnected_drive",
})  # fmt: skip

_INCLUDE = "dsm_include_of_a_file"
# Other escaped names may hold anything that the simulator's own files are written in.
_ESCAPED = re.compile(r"\\[A-Za-z_][A-Za-z_0-9$]*(?:\[\d+\])?")
_PLAIN_DIRECTIVE = re.compile(
    r"^[ \t]*`(?:timescale[ \t]+[\w \t/]+|default_nettype[ \t]+\w+|resetall)[ \t]*$", re.MULTILINE
)


def check_raw(code: str) -> str | Verdict:
    """The text that the preprocessor may see, or the refusal of forged line numbers.

    An `include` becomes a word that `clean_code` refuses: one that no condition selects, or that
    only an own test bench holds, is no reason to refuse an answer.
    """
    directives = [token for token in tokens_of(code) if token.kind == "directive"]
    if any(token.text == "`line" for token in directives):
        return Verdict(0.0, "rejected:line")
    return apply_edits(
        code, [Edit(t.start, t.end, f" {_INCLUDE} ") for t in directives if t.text == "`include"]
    )


def program_of(code: str) -> str:
    """The same text for codes that are the same program but for comments and layout."""
    return without_layout(code) if is_preprocessed(code) else code


def is_preprocessed(code: str) -> bool:
    """Whether the preprocessor would leave `code` as it is: no macro, no condition."""
    return "`" not in _PLAIN_DIRECTIVE.sub("", code)


def clean_code(code: str, top: str) -> str | Verdict:
    """The static gate on preprocessed code: the text that may be compiled, or the refusal."""
    tokens = tokens_of(code)
    refused = _check_ended(code, tokens)
    if refused is not None:
        return refused
    unused = _unused_units(tokens, top)
    if isinstance(unused, Verdict):
        return unused
    edits = [unit.edit for unit in unused]
    edits += cuts(outside(tokens, edits))
    cleaned = apply_edits(code, edits)
    kept = tokens_of(cleaned)  # read again: what is judged here is the very text that is compiled
    for check in (_check_tokens, _check_hierarchy):
        refused = check(kept)
        if refused is not None:
            return refused
    return cleaned


def _check_ended(code: str, tokens: Sequence[Token]) -> Verdict | None:
    if any(kind == "open" or (kind == "mark" and text == '"') for kind, text, _ in tokens):
        return Verdict(0.0, "rejected:unterminated", "a comment or string is left open")
    # An opening """ of newer standards reads as an empty string and the start of another.
    if any(token.text == '""' and code[token.end : token.end + 1] == '"' for token in tokens):
        return Verdict(0.0, "rejected:unterminated", "a string in three quotes")
    return None


def _check_tokens(tokens: list[Token]) -> Verdict | None:
    for index, (kind, text, _) in enumerate(tokens):
        if text == _INCLUDE:
            return Verdict(0.0, "rejected:include")
        if text in FORBIDDEN_WORDS:
            return Verdict(0.0, "rejected:word", text)
        if kind == "system" and text not in SYSTEM_FUNCTIONS:
            return Verdict(0.0, "rejected:system_task", text)
        if kind == "directive" and text not in DIRECTIVES:
            return Verdict(0.0, "rejected:directive", text)
        if kind == "escaped" and not _ESCAPED.fullmatch(text):
            return Verdict(0.0, "rejected:escaped_name", text[:40])
        foreign = text in ("import", "export") and index + 1 < len(tokens)
        if foreign and tokens[index + 1].kind == "string":
            return Verdict(0.0, "rejected:word", f"{text} of a foreign function")
    return None


def _check_hierarchy(tokens: list[Token]) -> Verdict | None:
    """`a.b` is allowed only when `a` is also declared or used on its own in this text."""
    names = [_name(token) for token in tokens]
    last = len(names) - 1
    alone = {
        name
        for index, name in enumerate(names)
        if name
        and not (index < last and tokens[index + 1].text == ".")
        and not (index > 0 and tokens[index - 1].text == ".")
    }
    for index in range(1, last):
        left, right = names[index - 1], names[index + 1]
        if tokens[index].text == "." and left and right and left not in alone:
            return Verdict(0.0, "rejected:hierarchy", f"{left}.{right}"[:80])
    return None


def _name(token: Token) -> str:
    """What a token names: `\\x ` and `x` are the same name. "" when it names nothing."""
    if token.kind == "escaped":
        return token.text[1:]
    return token.text if token.kind == "word" else ""


def _unused_units(tokens: Sequence[Token], top: str) -> list[Unit] | Verdict:
    """Units that `top` does not use, directly or through others; the refusal when it is absent."""
    units = units_of(tokens)
    words: dict[str, set[str]] = {}
    for unit in units:
        if unit.name in words:
            return Verdict(0.0, "rejected:redeclared", unit.name)
        words[unit.name] = {_name(token) for token in unit.tokens} - {""}
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
