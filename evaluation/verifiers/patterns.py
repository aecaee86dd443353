"""Regular expressions whose matching time is linear in the text, whatever text and pattern.

RE2 has no backtracking, so a hostile answer cannot make a pattern explode, and a pattern that would
need it (look-around, back references) is refused when the ground truth is read.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import re2

from workspace.errors import UserError

MAX_PATTERN_CHARS: Final = 1000
_MEMORY_BYTES: Final = 1 << 20  # of the compiled pattern; a repetition of repetitions needs more


@functools.lru_cache(4096)
def compile_pattern(pattern: str, *, case_sensitive: bool = True) -> Any:
    """The compiled pattern, with `search` and `fullmatch` for texts.

    Raises `UserError` for one that RE2 does not take or that is too big.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UserError(f"pattern of {len(pattern)} characters, at most {MAX_PATTERN_CHARS}")
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = case_sensitive
    try:
        return re2.compile(encodable(pattern), options=options)
    except re2.error as error:
        raise UserError(
            f"pattern {pattern[:80]!r} is not one of RE2 (no look-around, no back references, no "
            f"huge repetitions): {error}"
        ) from error


def encodable(text: str) -> str:
    """`text` without half surrogate pairs, which JSON may hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
