"""MinHash signatures and LSH buckets in numpy: which texts are nearly the same.

    signature("some text")          -> 128 numbers, equal in about J(a, b) of their places
    band_keys(signature)            -> 16 bucket keys; near-duplicates share at least one
    similarity(a, b)                -> estimate of the Jaccard index of the two shingle sets

With 16 bands of 8 rows a pair at Jaccard 0.8 shares a bucket with probability 0.95, one at 0.5
with 0.06; callers check candidates with `similarity`. Numbers count as words, so two texts that
differ in numbers alone are near, not equal: they belong on one side of a split, yet neither is
dropped as a duplicate of the other.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Signature: TypeAlias = npt.NDArray[np.uint64]

PERMUTATIONS: Final = 128
BANDS: Final = 16
SHINGLE_WORDS: Final = 5

_WORD = re.compile(r"\w+|[^\w\s]")
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def _multipliers() -> tuple[Signature, Signature]:
    generator = np.random.Generator(np.random.PCG64(20240229))
    odd = generator.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    offsets = generator.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64)
    return odd, offsets


_ODD, _OFFSET = _multipliers()


def words(text: str) -> list[str]:
    """Lower-case words, numbers and punctuation marks."""
    return _WORD.findall(text.casefold())


def shingles(tokens: list[str], size: int = SHINGLE_WORDS) -> set[str]:
    """Runs of `size` tokens; a shorter text is one shingle."""
    if len(tokens) <= size:
        return {" ".join(tokens)} if tokens else set()
    return {" ".join(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}


def signature(text: str) -> Signature:
    """128 minima, one per hash function; all the largest number for a text without words."""
    found = shingles(words(text))
    if not found:
        return np.full(PERMUTATIONS, _EMPTY, dtype=np.uint64)
    hashes = np.fromiter(
        (int.from_bytes(hashlib.blake2b(s.encode(), digest_size=8).digest()) for s in found),
        dtype=np.uint64,
        count=len(found),
    )
    # Multiplication modulo 2^64 alone keeps the order of the low bits, so they are folded in.
    mixed = (hashes[:, None] ^ _OFFSET[None, :]) * _ODD[None, :]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    minima: Signature = mixed.min(axis=0)
    return minima


def similarity(left: Signature, right: Signature) -> float:
    """Share of equal places: an estimate of the Jaccard index (standard error ~0.04)."""
    return float(np.count_nonzero(left == right)) / PERMUTATIONS


def band_keys(signed: Signature) -> list[bytes]:
    """One key per band; the band's index is part of the key."""
    rows = PERMUTATIONS // BANDS
    return [
        bytes([band])
        + hashlib.blake2b(signed[band * rows : (band + 1) * rows].tobytes(), digest_size=8).digest()
        for band in range(BANDS)
    ]
