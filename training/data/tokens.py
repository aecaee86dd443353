"""Token counts without a model: words, single digits and marks.

An estimate that needs no files. It sizes prompts and budgets; trainers count with their own
tokenizer.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"[A-Za-z]+|\d|[^\w\s]+|\n|_|[^\x00-\x7f]")
_LONG_WORD = 7  # letters; longer words are two pieces and more


def count_tokens(text: str) -> int:
    """Estimated number of tokens of `text`."""
    total = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        total += 1 + (len(piece) - 1) // _LONG_WORD if piece.isalpha() else 1
    return total
