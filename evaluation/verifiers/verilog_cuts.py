"""What an honest answer may hold but no simulation needs: cut out, so that it need not be refused.

    edits = cuts(tokens)

- calls that print, stop the simulation, dump or read memories: an empty statement each. An answer
  has no files here, so a memory keeps the X that a missing file leaves;
- functions that ask for files and options of the command line: 0, "there is none";
- assertions with their action blocks, properties, sequences, clocking blocks, cover groups, `final`
  blocks and timing checks (`specify`): Icarus refuses most of them, and none drives an output.

Cutting gives an answer nothing: what is left is gated, compiled and judged as if the rest had never
been written. Evidence for the list: the RTL of serv, picorv32 and lambdalib, and models' answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from typing import Final

from evaluation.verifiers.verilog_tokens import Edit, Token, after_label, after_parentheses, outside

PRINTS: Final = frozenset({
    *(f"${name}{radix}" for name in ("display", "write", "strobe", "monitor")
      for radix in ("", "b", "o", "h")),
    "$monitoron", "$monitoroff", "$error", "$warning", "$info", "$timeformat", "$printtimescale",
})  # fmt: skip
DUMPS: Final = frozenset({
    "$dumpfile", "$dumpvars", "$dumpon", "$dumpoff", "$dumpall", "$dumpflush", "$dumplimit",
    "$dumpports",
})  # fmt: skip
_STOPS: Final = frozenset({"$finish", "$stop", "$fatal", "$exit"})
_FILES: Final = frozenset({
    *(f"$f{name}{radix}" for name in ("display", "write", "strobe", "monitor")
      for radix in ("", "b", "o", "h")),
    "$fclose", "$fflush", "$readmemh", "$readmemb", "$writememh", "$writememb",
})  # fmt: skip
_ASSERTION_CONTROL: Final = frozenset({"$asserton", "$assertoff", "$assertkill"})
STATEMENTS: Final = PRINTS | DUMPS | _STOPS | _FILES | _ASSERTION_CONTROL
_ABSENT: Final = frozenset({"$fopen", "$test$plusargs", "$value$plusargs"})
_ASSERTIONS: Final = frozenset({"assert", "assume", "cover", "restrict"})
_BLOCKS: Final = {
    "property": "endproperty", "sequence": "endsequence", "clocking": "endclocking",
    "covergroup": "endgroup", "specify": "endspecify",
}  # fmt: skip
_HEADS: Final = frozenset({"if", "for", "while", "repeat", "foreach", "wait", "@", "forever"})
_CASES: Final = frozenset({"case", "casez", "casex"})

# Stands wherever a statement or a module item does, takes no `else` that follows it, and joins with
# no word that touches it.
EMPTY: Final = " if (1) begin end else begin end "


def cuts(tokens: Sequence[Token]) -> list[Edit]:
    """Edits that leave all of the above out."""
    verification = list(_verification(tokens))
    return [*verification, *call_edits(outside(tokens, verification), STATEMENTS, _ABSENT)]


def has_concurrent_assertion(tokens: Sequence[Token]) -> bool:
    """Whether Icarus would call the text a syntax error for an assertion over clock cycles."""
    return any(
        one.text in _ASSERTIONS and other.text in ("property", "sequence")
        for one, other in itertools.pairwise(tokens)
    )


def call_edits(
    tokens: Sequence[Token], statements: Container[str], absent: Container[str] = ()
) -> list[Edit]:
    """Edits that empty each statement that calls one of `statements`, and put 0 for `absent`."""
    edits: list[Edit] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.kind != "system":
            continue
        if token.text in absent:
            index = after_parentheses(tokens, index)
            edits.append(Edit(token.start, tokens[index - 1].end, " 0 "))
        elif token.text in statements:
            index = after_parentheses(tokens, index)
            statement = index < len(tokens) and tokens[index].text == ";"
            index += statement
            edits.append(Edit(token.start, tokens[index - 1].end, EMPTY if statement else " "))
    return edits


def _verification(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Assertions, blocks of verification and `final`, each once, the outermost first."""
    in_case: list[bool] = []  # the enclosing constructs: whether each is a case
    index = 0
    while index < len(tokens):
        word = tokens[index].text if tokens[index].kind == "word" else ""
        end = index
        if word in _CASES or word == "begin":
            in_case.append(word in _CASES)
        elif word in ("end", "endcase") and in_case:
            in_case.pop()
        elif word in _ASSERTIONS:
            end = _after_assertion(tokens, index)
        elif word == "final":
            end = _after_statement(tokens, index + 1)
        elif word in _BLOCKS:
            end = after_label(tokens, _after_word(tokens, _BLOCKS[word], index))
        elif word == "default":
            end = _after_default(tokens, index)
        if end == index:
            index += 1
            continue
        # `name : assert ...` is cut with its name, but an item of a case keeps its label.
        named = word in _ASSERTIONS and not (in_case and in_case[-1])
        named = named and index > 1 and tokens[index - 1].text == ":"
        start = tokens[index - 2 if named else index].start
        text = "\n" if word in _BLOCKS or word in ("final", "default") else EMPTY
        yield Edit(start, tokens[min(end, len(tokens)) - 1].end, text)
        index = end


def _after_assertion(tokens: Sequence[Token], index: int) -> int:
    """The index after an assertion and its action blocks; `index` where there is none."""
    start = index
    index += 1
    while index < len(tokens) and tokens[index].text != "(":
        if tokens[index].text not in ("property", "sequence", "final", "#", "0"):
            return start
        index += 1
    index = after_parentheses(tokens, index)
    if index < len(tokens) and tokens[index].text == ";":
        return index + 1  # an `else` that follows belongs to an `if` around the assertion
    if index < len(tokens) and tokens[index].text != "else":
        index = _after_statement(tokens, index)
    if index < len(tokens) and tokens[index].text == "else":
        index = _after_statement(tokens, index + 1)
    return index


def _after_default(tokens: Sequence[Token], index: int) -> int:
    """After `default disable iff ...;` or `default clocking ...`; `index` for a case's default."""
    following = [token.text for token in tokens[index + 1 : index + 3]]
    if following == ["disable", "iff"]:
        return _after_word(tokens, ";", index)
    if following[:1] == ["clocking"]:
        if [token.text for token in tokens[index + 3 : index + 4]] == [";"]:
            return index + 4
        return after_label(tokens, _after_word(tokens, "endclocking", index))
    return index


def _after_statement(tokens: Sequence[Token], index: int) -> int:
    """The index after the statement that begins at `index`.

    Without recursion, since a hostile text nests as deep as it likes.
    """
    open_ifs = 0
    while index < len(tokens):
        word = tokens[index].text
        if word in _HEADS:
            open_ifs += word == "if"
            index += 1
            if word != "forever":
                bracketed = index < len(tokens) and tokens[index].text == "("
                index = after_parentheses(tokens, index) if bracketed else index + 1
            continue
        if word == "begin" or word in _CASES:
            index = after_label(tokens, _after_block(tokens, index))
        else:
            index = _after_word(tokens, ";", index)
        if not (open_ifs and index < len(tokens) and tokens[index].text == "else"):
            return index
        open_ifs -= 1
        index += 1
    return index


def _after_block(tokens: Sequence[Token], index: int) -> int:
    """After the block or case that begins at `index`."""
    depth = 0
    while index < len(tokens):
        word = tokens[index].text
        depth += (word == "begin" or word in _CASES) - (word in ("end", "endcase"))
        index += 1
        if depth == 0:
            break
    return index


def _after_word(tokens: Sequence[Token], word: str, index: int) -> int:
    """After the next `word` at or behind `index`; the end of the text when there is none."""
    while index < len(tokens) and tokens[index].text != word:
        index += 1
    return index + 1
