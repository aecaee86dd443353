"""A parsed document -> its row of `fingerprints`, and the hashes of its pages and pictures.

Made in the worker while the document's text is at hand, so that publishing compares small sketches
and never reads text again. In: `DocumentRows` after `corpus.rows`. Text is that of the elements in
reading order, without headers, footers and page numbers; letters are case-folded (NFKC), CJK
characters are words of their own, and every run of digits inside a word counts as a number.

    signature  MinHash (Broder 1997) of 5-word shingles in which all numbers are masked
    plain      the same with the numbers
    places     a sample of the places where numbers stand (three words before, two after, masked)
               with the numbers found there. The sample is taken by the hash of the place, so two
               documents sample the same places, and their numbers can be compared place by place.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.picture_hash import is_flat, perceptual_hash
from corpus.rows import OUT_OF_FLOW, DocumentRows
from corpus.units import PageImage
from workspace.shards import Row

Hashes = NDArray[np.uint64]

PERMUTATIONS: Final = 128
SHINGLE_WORDS: Final = 5
MASK: Final = "#"
WORDS_BEFORE: Final = 3
WORDS_AFTER: Final = 2
MAX_PLACES: Final = 256
MAX_NUMBERS_AT_A_PLACE: Final = 64
# A page with fewer words is the same as another only if it also looks the same.
MIN_PAGE_WORDS: Final = 20

_CJK: Final = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")
# A sign belongs to its number only where no word or number stands before it (not in `a-1`, `1-2`).
_TOKEN: Final = re.compile(r"(?<![\w)])[-+\u2212]?\d+(?:[.,']\d+)*|\d+(?:[.,']\d+)*|[^\W\d_]+")
_BLOCK: Final = 8192  # shingles hashed at once: 8 MB


class Tokens(NamedTuple):
    """Hashes of the words in order, plain and with numbers masked, and where the numbers are."""

    plain: Hashes
    masked: Hashes
    is_number: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.plain)


def fingerprint(rows: DocumentRows, page_image: PageImage) -> list[Row]:
    """The document's row; fills in `content_hash` of its pages and `phash` of its pictures."""
    texts: dict[int, list[str]] = {}
    for element in rows.elements:
        if element["category"] not in OUT_OF_FLOW:
            texts.setdefault(element["page"], []).append(element["text"])
    pictures = {
        page: [image["sha256"] for image in images]
        for page, images in groupby(rows.images, key=lambda image: int(image["page"]))
    }
    hashes: dict[str, str] = {}
    for image in rows.images:
        digest = image["sha256"]
        if digest not in hashes:
            hashes[digest] = perceptual_hash(image["image"]["bytes"])
        image["phash"] = hashes[digest]
    vocabulary = _Vocabulary()
    tokens = {page: vocabulary.tokens(found) for page, found in sorted(texts.items())}
    nothing = vocabulary.tokens([])
    for page in rows.pages:
        number = page["page"]
        words = tokens.get(number, nothing)
        page["content_hash"] = _page_hash(words, pictures.get(number, []), page_image(number))
    every = Tokens(
        *(np.concatenate(column) for column in zip(nothing, *tokens.values(), strict=True))
    )
    return [{"doc_id": rows.doc_id, **describe(every)}]


def describe(tokens: Tokens) -> Row:
    """The columns of `fingerprints` for a text."""
    return {
        "n_words": len(tokens),
        "words_hash": _digest(tokens.masked),
        "text_hash": _digest(tokens.plain),
        "signature": minhash(tokens.masked).tobytes(),
        "plain_signature": minhash(tokens.plain).tobytes(),
        "places": number_places(tokens).tobytes(),
    }


def read_text(text: str) -> Tokens:
    """The tokens of one text."""
    return _Vocabulary().tokens([text])


class _Vocabulary:
    """Hashes of words, each computed once a document."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}

    def tokens(self, texts: Iterable[str]) -> Tokens:
        plain: list[int] = []
        numbers: list[bool] = []
        for word in _words(texts):
            is_number = word[-1].isdigit()
            plain.append(self._hash(word))
            numbers.append(is_number)
        hashes = np.array(plain, dtype=np.uint64)
        mask = np.array(numbers, dtype=np.bool_)
        return Tokens(hashes, np.where(mask, np.uint64(self._hash(MASK)), hashes), mask)

    def _hash(self, word: str) -> int:
        value = self._hashes.get(word)
        if value is None:
            data = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            value = self._hashes[word] = int.from_bytes(data, "little")
        return value


def _words(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        flat = _CJK.sub(r" \1 ", unicodedata.normalize("NFKC", text).casefold())
        for word in _TOKEN.findall(flat):
            yield _number(word) if word[-1].isdigit() else word


def _number(word: str) -> str:
    """One spelling for each number: 1,000 is 1000, and a dash before it is a minus."""
    text = word.replace("\u2212", "-").replace("'", "").lstrip("+")
    return re.sub(r",(?=\d{3}(?:\D|$))", "", text)


def minhash(words: Hashes) -> NDArray[np.uint32]:
    """128 minima; all ones for a text of fewer words than a shingle has."""
    shingles = np.unique(_shingles(words, SHINGLE_WORDS))
    least = np.full(PERMUTATIONS, np.iinfo(np.uint32).max, dtype=np.uint32)
    for start in range(0, len(shingles), _BLOCK):
        block = shingles[start : start + _BLOCK, None]
        values = (_mix(block ^ _SEEDS) >> np.uint64(32)).astype(np.uint32)
        least = np.minimum(least, values.min(axis=0))
    return least


def number_places(tokens: Tokens) -> NDArray[np.uint64]:
    """Pairs (place, number), shape (n, 2): MAX_PLACES places of smallest hash, sorted."""
    where = np.flatnonzero(tokens.is_number)
    if not len(where):
        return np.empty((0, 2), dtype=np.uint64)
    padded = np.pad(tokens.masked, (WORDS_BEFORE, WORDS_AFTER))
    place = np.zeros(len(where), dtype=np.uint64)
    for offset in range(WORDS_BEFORE + 1 + WORDS_AFTER):
        place = _mix(place ^ padded[where + offset])
    pairs = np.unique(np.stack([place, _mix(tokens.plain[where])], axis=1), axis=0)
    places, first, counts = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    kept = np.minimum(counts, MAX_NUMBERS_AT_A_PLACE)[: len(places[:MAX_PLACES])]
    ranges = [np.arange(start, start + n) for start, n in zip(first, kept, strict=False)]
    chosen: NDArray[np.uint64] = pairs[np.concatenate(ranges)]
    return chosen


def _page_hash(tokens: Tokens, pictures: Sequence[str], image: bytes | None) -> str:
    """Equal for pages of equal words and pictures; "" for a page that shows nothing."""
    digest = hashlib.sha256(tokens.plain.tobytes())
    for picture in pictures:
        digest.update(picture.encode())
    if len(tokens) < MIN_PAGE_WORDS:
        if not len(tokens) and not pictures and (image is None or is_flat(image)):
            return ""
        digest.update(image or b"")
    return digest.hexdigest()[:32]


def _shingles(words: Hashes, length: int) -> Hashes:
    count = len(words) - length + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    value = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        value = _mix(value ^ words[offset : offset + count])
    return value


def _mix(value: Any) -> Any:
    """SplitMix64's finaliser (Steele et al. 2014): each input bit reaches each output bit."""
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


_SEEDS: Final = _mix(np.arange(1, PERMUTATIONS + 1, dtype=np.uint64) << np.uint64(20))


def _digest(hashes: Hashes) -> str:
    return hashlib.sha256(hashes.tobytes()).hexdigest()[:32]
