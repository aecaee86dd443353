"""Documents and rows -> training samples: pieces of text that do not see each other.

Packing is best fit decreasing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"):
only a document longer than a sequence is cut, and every token of the text is in exactly one sample.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from training.trainers.rows import IGNORED, TokenRow

LEARNED = 1  # flag of a token that is predicted from those before it
START = 2  # flag of a piece's first token: it sees nothing before it


class Piece(NamedTuple):
    """Tokens that see only each other, and what each of them is for."""

    ids: Sequence[int]
    flags: bytes


def row_pieces(rows: Iterable[TokenRow]) -> Iterator[list[Piece]]:
    """One sample a row; its prompt is not learned."""
    for row in rows:
        flags = bytearray(LEARNED if label != IGNORED else 0 for label in row.labels)
        flags[0] = START  # there is nothing that it could be predicted from
        yield [Piece(row.input_ids, bytes(flags))]


def pack(documents: Sequence[Sequence[int]], length: int) -> Iterator[list[Piece]]:
    """Samples of at most `length` tokens: documents that fit together, whole where they fit."""
    cuts = [
        (number, at, min(at + length, len(document)))
        for number, document in enumerate(documents)
        for at in range(0, len(document), length)
    ]
    for sequence in best_fit([last - first for _, first, last in cuts], length):
        pieces = []
        for number, first, last in (cuts[at] for at in sequence):
            flags = bytes([START]) + bytes([LEARNED]) * (last - first - 1)
            pieces.append(Piece(documents[number][first:last], flags))
        yield pieces


def best_fit(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Put items into bins of `room`, longest first, each where it leaves the least room.

    Returns the items of each bin in the order in which the bins were opened.
    """
    bins: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # room left -> bins, the last one in goes out first
    rooms: list[int] = []  # the keys, sorted
    for item in sorted(range(len(lengths)), key=lambda item: (-lengths[item], item)):
        at = bisect.bisect_left(rooms, lengths[item])
        if at == len(rooms):
            bins.append([])
            chosen, left = len(bins) - 1, room
        else:
            left = rooms[at]
            chosen = with_room[left].pop()
            if not with_room[left]:
                del with_room[left], rooms[at]
        bins[chosen].append(item)
        left -= lengths[item]
        if left and left not in with_room:
            bisect.insort(rooms, left)
            with_room[left] = []
        if left:
            with_room[left].append(chosen)
    return bins
