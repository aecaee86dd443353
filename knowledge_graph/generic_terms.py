"""Words that name nothing by themselves in a technical document.

A term made only of these (or of stop words) is dropped as `generic_term`: they are the words by
which documents speak of themselves or of things in general ("the following figure", "this
section"), so an entity for one would join everything to everything.
"""

from __future__ import annotations

import functools
from typing import Final

# The document about itself.
_DOCUMENT = """
appendix article author book caption chapter column content copy copyright document draft edition
example figure fig footnote guide heading index introduction item line list manual note notice
overview page paper paragraph part preface publication reference report revision row section
sentence summary table text title topic version volume contents footer header date contact
remark warning caution tip page bullet entry
"""
# Things in general.
_GENERAL = """
ability access action activity addition advantage age aim amount answer approach area aspect
attention basis beginning behavior behaviour benefit bit case cause change chance choice
circumstance class combination comment comparison condition consequence consideration correspondence
course default degree description detail difference difficulty effect effort end ease event
evidence exception existence expectation experience explanation extent fact factor feature field
form format function future goal group hand help idea image impact importance increase information
input instance intention interest issue kind knowledge lack length level life limit location look
lot majority manner matter mean meaning means measure member method middle mode moment
month name nature need number object one operation opportunity option order other output overall
paragraph people period person place point position possibility practice presence problem
procedure process product program purpose quality quantity question range rate reason relation
requirement respect result role rule same scope second set setting side sign similarity
situation size sort source space specification spot stage standard start state statement
status step structure stuff subject support system task technique thing
time today total trade treatment tree try turn type unit us use user usage value variety
view way week while whole word work world year yes no true false none null n/a na tbd
percent percentage respective following previous next above below new old various several many
such different certain particular general specific given available possible necessary
important main major minor high low large small long short good bad best first last left right
top bottom upper lower same similar single multiple full empty current present
"""
_MONTHS = """
january february march april may june july august september october november december
monday tuesday wednesday thursday friday saturday sunday jan feb mar apr jun jul aug sep sept oct
nov dec
"""
GENERIC_WORDS: Final = frozenset(f"{_DOCUMENT} {_GENERAL} {_MONTHS}".split())


@functools.cache
def stop_words() -> frozenset[str]:
    """English stop words (spaCy's list), lower case."""
    from spacy.lang.en.stop_words import STOP_WORDS

    return frozenset(str(word) for word in STOP_WORDS)


def is_generic(key: str) -> bool:
    """Whether every word of a words key is generic or a stop word."""
    stops = stop_words()
    return all(
        word in GENERIC_WORDS or word in stops or not any(map(str.isalpha, word))
        for word in key.split()
    )
