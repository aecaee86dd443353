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
_PRIME = np.uint64((1 << 61) - 1)


def _permutations() -> tuple[Signature, Signature]:
    generator = np.random.Generator(np.random.PCG64(20240229))
    low = generator.integers(1, 1 << 29, PERMUTATIONS, dtype=np.uint64)
    high = generator.integers(0, 1 << 61, PERMUTATIONS, dtype=np.uint64)
    return low, high


_A, _B = _permutations()


def words(text: str) -> list[str]:
    """Lower-case words, numbers and punctuation marks."""
    return _WORD.findall(text.casefold())


def shingles(tokens: list[str], size: int = SHINGLE_WORDS) -> set[str]:
    """Runs of `size` tokens; a shorter text is one shingle."""
    if len(tokens) <= size:
        return {" ".join(tokens)} if tokens else set()
    return {" ".join(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}


def signature(text: str) -> Signature:
    """128 minima, one per permutation; all equal to the prime for a text without words."""
    found = shingles(words(text))
    if not found:
        return np.full(PERMUTATIONS, _PRIME, dtype=np.uint64)
    hashes = np.fromiter(
        (int.from_bytes(hashlib.blake2b(s.encode(), digest_size=4).digest()) for s in found),
        dtype=np.uint64,
        count=len(found),
    )
    # a < 2^29 and h < 2^32, so a*h stays below 2^61 and the sum below 2^62: no overflow.
    permuted = (hashes[:, None] * _A[None, :] + _B[None, :]) % _PRIME
    minima: Signature = permuted.min(axis=0)
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
