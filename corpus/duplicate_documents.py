"""Fingerprints of documents -> groups of near duplicates and families of variants.

Candidates share a band of their MinHash signatures (locality-sensitive hashing: Indyk & Motwani
1998); a pair counts when the estimated Jaccard similarity of its word shingles, numbers masked,
reaches the threshold. Then its numbers decide. A near duplicate says the same: the numbers that
stand at the same places agree about as well as the words do. A variant has the words and other
numbers: two corners of one cell library, two months of one form. Variants say different things.

Documents are taken from the longest to the shortest; each joins the first group whose
representative it matches, or begins one. So every member was compared with its representative (no
chains), and the result depends on the set of documents alone.

Bands of both signatures are used: with numbers, they find the twin of one form among thousands that
were filled in differently. Cost: one comparison for each representative in a shared band, at most
MAX_LEADERS a band, of which the MAX_COMPARED likest have their numbers read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.fingerprints import MAX_NUMBERS_AT_A_PLACE, MAX_PLACES, PERMUTATIONS, SHINGLE_WORDS

# 32 bands of 4: a pair of similarity 0.6 is found with 98.8 %, one of 0.8 with 99.99 %.
BAND_ROWS: Final = 4
MIN_WORDS: Final = 20
MAX_COMPARED: Final = 16
MAX_LEADERS: Final = 256
# This share of the numbers may differ in a near duplicate, or twice the share of words that differ
# (a PDF of formulas lost signs and points: 2.4 % against its DOCX). With all words equal: none.
NUMBER_TOLERANCE: Final = 0.05
NUMBER_TO_WORD_CHANGES: Final = 2.0

_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Sketch:
    """One row of `fingerprints` but for its places."""

    doc_id: str
    n_words: int
    words_hash: str
    text_hash: str
    signature: NDArray[np.uint32]
    plain_signature: NDArray[np.uint32]


class Likeness(NamedTuple):
    """Of a document to the representative of its group; shares from 0 to 1."""

    kind: str  # near | variant
    similarity: float
    number_agreement: float


class Member(NamedTuple):
    """A document in a group, which is named by its representative."""

    doc_id: str
    representative: str
    likeness: Likeness


Places = Mapping[str, NDArray[np.uint64]]


def candidates(sketches: Sequence[Sketch]) -> set[str]:
    """Ids of documents that share a band with another: only their places are needed."""
    shared = _shared_bands(sketches)
    return {sketches[index].doc_id for index in shared}


def group_documents(sketches: Sequence[Sketch], places: Places, threshold: float) -> list[Member]:
    """Members other than representatives; `places` has those of all `candidates`."""
    ordered = sorted(sketches, key=lambda sketch: (-sketch.n_words, sketch.doc_id))
    bands = _shared_bands(ordered)
    leaders: dict[tuple[int, int], list[int]] = defaultdict(list)
    family: dict[int, int] = {}  # a representative that is a variant -> the first of its family
    texts: dict[int, dict[str, str]] = defaultdict(dict)  # of a group: words_hash -> text_hash
    members = []
    for index, sketch in enumerate(ordered):
        if index not in bands:
            continue
        near = {other for band in bands[index] for other in leaders.get(band, ())}
        found = list(_matches(sketch, sorted(near), ordered, places, threshold))
        match = next((pair for pair in found if _joins(sketch, pair, texts)), None)
        leader = index if match is None else match[0]
        texts[leader].setdefault(sketch.words_hash, sketch.text_hash)
        if match is not None:
            members.append(Member(sketch.doc_id, ordered[leader].doc_id, match[1]))
            continue
        if found:
            first = family.get(found[0][0], found[0][0])
            family[index] = first
            likeness = _compare(sketch, ordered[first], places)
            members.append(
                Member(sketch.doc_id, ordered[first].doc_id, likeness._replace(kind="variant"))
            )
        for band in bands[index]:
            if len(leaders[band]) < MAX_LEADERS:
                leaders[band].append(index)
    return members


def _joins(
    sketch: Sketch, pair: tuple[int, Likeness], texts: Mapping[int, Mapping[str, str]]
) -> bool:
    """Whether a document is near a representative, and no variant of another member."""
    known = texts[pair[0]].get(sketch.words_hash, sketch.text_hash)
    return pair[1].kind == "near" and known == sketch.text_hash


def _matches(
    sketch: Sketch,
    others: Sequence[int],
    ordered: Sequence[Sketch],
    places: Places,
    threshold: float,
) -> Iterator[tuple[int, Likeness]]:
    """Representatives that are like enough, those with the likest numbers first."""
    if not others:
        return
    signatures = np.stack([ordered[index].signature for index in others])
    plain = np.stack([ordered[index].plain_signature for index in others])
    similar = (signatures == sketch.signature).mean(axis=1)
    alike = (plain == sketch.plain_signature).mean(axis=1)
    # lexsort takes its last key first; the position makes ties come out the same.
    ranked = np.lexsort((np.arange(len(others)), -similar, -alike))
    close = [
        position
        for position in ranked.tolist()
        if similar[position] >= threshold
        # Shingles are a set: half of a table says with masked numbers what the whole says.
        and sketch.n_words >= threshold * ordered[others[position]].n_words
    ]
    for position in close[:MAX_COMPARED]:
        other = others[position]
        yield other, _compare(sketch, ordered[other], places)


def _compare(first: Sketch, second: Sketch, places: Places) -> Likeness:
    similarity = float((first.signature == second.signature).mean())
    if first.text_hash == second.text_hash:
        return Likeness("near", 1.0, 1.0)
    agreement = number_agreement(places[first.doc_id], places[second.doc_id])
    if first.words_hash == second.words_hash:
        return Likeness("variant", 1.0, agreement)
    changed_words = 1 - (2 * similarity / (1 + similarity)) ** (1 / SHINGLE_WORDS)
    allowed = max(NUMBER_TOLERANCE, NUMBER_TO_WORD_CHANGES * changed_words)
    kind = "near" if 1 - agreement <= allowed else "variant"
    return Likeness(kind, similarity, agreement)


def number_agreement(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> float:
    """Share of numbers that are equal at the places that both documents have; 1.0 without any.

    A number that one of them has in addition is no contradiction: layouts lose cells and captions.
    """
    limit = min(_reach(first), _reach(second))
    ours, theirs = _by_place(first, limit), _by_place(second, limit)
    differ = compared = 0
    for place in ours.keys() & theirs.keys():
        left, right = _cut(ours[place], theirs[place])
        compared += min(len(left), len(right))
        differ += min(len(left - right), len(right - left))
    return 1 - differ / compared if compared else 1.0


def _reach(places: NDArray[np.uint64]) -> int:
    """The largest place hash up to which the sample is complete."""
    known = np.unique(places[:, 0])
    return int(known[-1]) if len(known) >= MAX_PLACES else int(_ALL)


def _by_place(places: NDArray[np.uint64], limit: int) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for place, number in places.tolist():
        if place <= limit:
            found[place].add(number)
    return found


def _cut(left: set[int], right: set[int]) -> tuple[set[int], set[int]]:
    """Both sets up to the hash to which both samples of numbers are complete."""
    full = [max(side) for side in (left, right) if len(side) >= MAX_NUMBERS_AT_A_PLACE]
    if not full:
        return left, right
    return {n for n in left if n <= min(full)}, {n for n in right if n <= min(full)}


def _shared_bands(sketches: Sequence[Sketch]) -> dict[int, list[tuple[int, int]]]:
    """Index of a sketch -> its (first column, number of the values) that another has too."""
    long_enough = [i for i, sketch in enumerate(sketches) if sketch.n_words >= MIN_WORDS]
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if len(long_enough) < 2:
        return found
    masked = np.stack([sketches[i].signature for i in long_enough])
    plain = np.stack([sketches[i].plain_signature for i in long_enough])
    columns = np.concatenate([masked, plain], axis=1)
    for first in range(0, 2 * PERMUTATIONS, BAND_ROWS):
        rows = columns[:, first : first + BAND_ROWS]
        _, inverse, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        inverse = inverse.ravel()
        for position in np.flatnonzero(counts[inverse] > 1).tolist():
            found[long_enough[position]].append((first, int(inverse[position])))
    return found


def groups(members: Iterable[Member], kind: str) -> dict[str, list[Member]]:
    """Members of one kind by representative."""
    found: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        if member.likeness.kind == kind:
            found[member.representative].append(member)
    return found
