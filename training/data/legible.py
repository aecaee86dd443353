"""Does a cell or name read as it was printed, or did a PDF's spacing get lost on the way?

    legible("DFN-8")  True        legible("DFN - 8 .")  False (torn)
    legible("Specification") True legible("S ifi ti")   False (letters missing)
    legible("usequadraticinterpolation")                False (words run together)

Judged by form alone: a real word of twenty letters is refused, a misread number is not noticed.
"""

from __future__ import annotations

import re

# Few English words are longer than 18 letters; a longer run has lost its spaces.
_RUN_TOGETHER = re.compile(r"[^\W\d_]{19}")
# "2 , 500" and "DFN - 8" for "2,500" and "DFN-8".
_TORN = re.compile(r"(?:^|\s)[.,:;_-]+(?:\s|$)")
# "D i ti" for "Direction"; one letter alone is fine ("Class A amplifier").
_LETTERS_LOST = re.compile(r"(?:^|\s)[^\W\d_]\s[^\W\d_]{1,3}\s[^\W\d_]{1,3}(?:\s|$)")


def legible(text: str) -> bool:
    """Whether `text` shows none of the marks of lost or added spaces."""
    return not (_RUN_TOGETHER.search(text) or _TORN.search(text) or _LETTERS_LOST.search(text))
