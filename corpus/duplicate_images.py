"""Pictures of the corpus -> groups of equal and of look-alike ones.

Equal bytes are one picture. Pictures whose perceptual hashes differ in at most MAX_DISTANCE of 256
bits, and whose proportions agree, join the group of a representative: they are taken from the most
frequent hash to the rarest, and each joins the first that is close enough. Close hashes are found
by blocks: of MAX_DISTANCE + 1 blocks of bits, two such hashes have at least one in common. Blocks
of white paper (all zeros) are left out, since most drawings share them; a pair that has nothing
else in common is missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from corpus.picture_hash import BITS, hash_distance

MAX_DISTANCE: Final = 15
PROPORTION_TOLERANCE: Final = 0.05
# Look-alikes are sought among so many representatives that share a block.
MAX_COMPARED: Final = 256

_BLOCK_BYTES: Final = BITS // 8 // (MAX_DISTANCE + 1)


class Picture(NamedTuple):
    """All images of the same bytes."""

    sha256: str
    phash: str  # "" where there is none: such a picture is like no other
    width_px: int
    height_px: int
    occurrences: int


class LookAlike(NamedTuple):
    """The picture's group, named by the digest of its representative, and how close they are."""

    representative: str
    similarity: float


def group_pictures(pictures: Sequence[Picture]) -> dict[str, LookAlike]:
    """Digest -> group, for every picture; alone in its group when it is like no other."""
    ordered = sorted(pictures, key=lambda picture: (-picture.occurrences, picture.sha256))
    bits = {p.phash: np.frombuffer(bytes.fromhex(p.phash), np.uint8) for p in ordered if p.phash}
    blocks: dict[tuple[int, bytes], list[Picture]] = defaultdict(list)
    found: dict[str, LookAlike] = {}
    for picture in ordered:
        if not picture.phash:
            found[picture.sha256] = LookAlike(picture.sha256, 1.0)
            continue
        keys = _keys(bytes.fromhex(picture.phash))
        near = {other.sha256: other for key in keys for other in blocks.get(key, ())[:MAX_COMPARED]}
        close = [other for other in near.values() if _same_proportions(picture, other)]
        match = _closest(picture, close, bits)
        found[picture.sha256] = match or LookAlike(picture.sha256, 1.0)
        if match is None:
            for key in keys:
                blocks[key].append(picture)
    return found


def _closest(
    picture: Picture, others: Sequence[Picture], bits: dict[str, np.ndarray]
) -> LookAlike | None:
    if not others:
        return None
    distances = hash_distance(
        bits[picture.phash], np.stack([bits[other.phash] for other in others])
    )
    distance, best = min(
        (int(distance), other.sha256) for distance, other in zip(distances, others, strict=True)
    )
    return LookAlike(best, 1 - distance / BITS) if distance <= MAX_DISTANCE else None


def _keys(phash: bytes) -> list[tuple[int, bytes]]:
    starts = range(0, len(phash), _BLOCK_BYTES)
    blocks = [(start, phash[start : start + _BLOCK_BYTES]) for start in starts]
    return [block for block in blocks if any(block[1])]


def _same_proportions(first: Picture, second: Picture) -> bool:
    left = first.width_px * second.height_px
    right = second.width_px * first.height_px
    return abs(left - right) <= PROPORTION_TOLERANCE * max(left, right)
