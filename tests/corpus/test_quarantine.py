"""Reason codes are documented in one place, and say when something is tried again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from corpus.quarantine import REASONS, Tries, is_retried

CORPUS = Path(__file__).parents[2] / "corpus"
# Where each of these takes its code.
PLACES = {"Unreadable": 0, "PictureError": 0, "Fault": 2, "quarantine_row": 3}


def codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            place = PLACES.get(name)
            if place is not None and len(node.args) > place:
                code = node.args[place]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    yield code.value


def test_every_code_is_documented() -> None:
    used = {
        code
        for path in CORPUS.rglob("*.py")
        for code in codes(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert {"empty", "encrypted", "corrupt", "no_pages"} <= used  # the search finds them
    assert used <= REASONS.keys()


def test_only_what_may_succeed_is_retried() -> None:
    assert is_retried("timeout") and is_retried("out_of_memory") and is_retried("too_large")
    assert not is_retried("encrypted") and not is_retried("corrupt")


@given(st.integers(1, 5), st.integers(0, 8))
def test_tries_end(max_tries: int, runs: int) -> None:
    tries = Tries({}).after(["d"], ["d"], ["d"], "low")
    done = 1
    for _ in range(runs):
        if tries.due("d", ["timeout"], limits="low", max_tries=max_tries):
            tries = tries.after(["d"], ["d"], ["d"], "low")
            done += 1
    assert tries.of("d") == done <= max(max_tries, 1)
    assert tries.due("d", ["timeout"], limits="high", max_tries=1)
    assert not tries.due("d", ["encrypted"], limits="high", max_tries=99)
    assert tries.after([], [], [], "low").counts == {}


def test_a_document_too_large_waits_for_another_limit(tmp_path: Path) -> None:
    tries = Tries({}).after(["d"], ["d"], ["d"], "low")
    tries.write(tmp_path)
    again = Tries.read(tmp_path)
    assert not again.due("d", ["too_large"], limits="low", max_tries=9)
    assert again.due("d", ["too_large"], limits="high", max_tries=9)
