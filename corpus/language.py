"""A guess at a text's language: its script, or for Latin script its most frequent small words.

Tells apart en de fr es it pt nl zh ja ko ru ar el he; anything else is "". Made for choosing what
to do with a document, not for linguistics.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_SMALL_WORDS: Final = {
    code: frozenset(words.split())
    for code, words in {
        "en": "the of and to in is that for it as with be by this are from or an at",
        "de": "der die und das ist nicht ein eine zu den mit von auf dem werden im",
        "fr": "le la les des et est une dans que pour du qui sur par au aux avec ne",
        "es": "el los las del que y es una por con para se su al como más lo",
        "it": "il che della di non una per sono con gli dei nel alla è le si",
        "pt": "que não uma para com os as dos da do em um por mais é ao na no",
        "nl": "de het een van en is dat op te niet zijn voor met worden aan bij",
    }.items()
}
_SCRIPTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
)
SCRIPT_SHARE: Final = 0.15
MIN_WORDS: Final = 20
MIN_SMALL_WORDS: Final = 0.08


def guess_language(text: str) -> str:
    """ISO 639-1 code, "" when there is too little to go by."""
    letters = sum(1 for char in text if char.isalpha())
    if not letters:
        return ""
    for code, pattern in _SCRIPTS:
        # Japanese mixes kana with Chinese characters, so a little kana is enough.
        share = SCRIPT_SHARE / 3 if code == "ja" else SCRIPT_SHARE
        if len(pattern.findall(text)) >= share * letters:
            return code
    words = Counter(re.findall(r"[^\W\d_]+", text.lower()))
    total = sum(words.values())
    if total < MIN_WORDS:
        return ""
    scores = {
        code: sum(words[word] for word in small) / total for code, small in _SMALL_WORDS.items()
    }
    best = min(scores, key=lambda code: (-scores[code], code))
    return best if scores[best] >= MIN_SMALL_WORDS else ""
