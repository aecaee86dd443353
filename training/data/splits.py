"""Which document is for training, which for validation, which for the test: before any row.

Documents that share content form one group and stay on one side: an equal chunk, table or
module, or a nearly equal one (MinHash). Groups are ordered by a seeded hash and allotted by
weight, prose and code apart, so that one huge manual does not become the whole test and a few
tiny files do not either.

Text that stands in more than `boilerplate_documents` documents (a licence, a footer) links
nothing. Such units, and equal units too short to link, may stand on both sides: they are listed
in `Splits.shared` and no row is made from them.

In: `iterate_units(corpus)`; out: `Splits`. Not covered: paraphrases and translations.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.data.minhash import Signature, band_keys, signature, similarity
from training.data.units import Unit
from workspace import publish
from workspace.ids import derive_id

TRAIN: Final = "train"
VALIDATION: Final = "validation"
TEST: Final = "test"
SPLITS: Final = (TRAIN, VALIDATION, TEST)

LINK_WORDS: Final = 12  # a shorter text ("Table of contents") says nothing about its document
NEAR: Final = 0.8
BUCKET_HEADS: Final = 8  # members of an LSH bucket that a newcomer is compared with


@dataclass(frozen=True)
class SplitSettings:
    seed: int = 0
    test_fraction: float = 0.15
    validation_fraction: float = 0.05
    min_test_units: int = 40
    boilerplate_documents: int = 20


@dataclass(frozen=True)
class Splits:
    """The decision for every document."""

    split: dict[str, str]  # doc_id -> train | validation | test
    group: dict[str, str]  # doc_id -> group_id
    shared: frozenset[str]  # unit ids that no row may be made from
    links: dict[str, int] = field(default_factory=dict)  # kind of link -> how many

    def save(self, path: Path) -> None:
        """Write as JSON, atomically."""
        value = {
            "split": self.split,
            "group": self.group,
            "shared": sorted(self.shared),
            "links": self.links,
        }
        publish.write_json(path, value)

    @classmethod
    def load(cls, path: Path) -> Splits:
        """Read what `save` wrote."""
        value = json.loads(path.read_text(encoding="utf-8"))
        return cls(value["split"], value["group"], frozenset(value["shared"]), value["links"])


def make_splits(doc_ids: Iterable[str], units: Iterable[Unit], settings: SplitSettings) -> Splits:
    """Group the documents and allot the groups. The order of the inputs does not matter."""
    documents = sorted(set(doc_ids))
    ordered = sorted(units, key=lambda unit: (unit.kind, unit.unit_id))
    links = _Links(documents)
    exact, boilerplate = _link_equal(ordered, links, settings.boilerplate_documents)
    near, near_boilerplate = _link_near(ordered, links, boilerplate, settings.boilerplate_documents)
    groups = links.groups()
    weights = _weights(ordered, boilerplate | near_boilerplate)
    split = allot(groups, weights, settings)
    by_document = {doc: split[group] for group, members in groups.items() for doc in members}
    crossing = _crossing(ordered, by_document)
    return Splits(
        split=dict(sorted(by_document.items())),
        group={doc: group for group, members in sorted(groups.items()) for doc in members},
        shared=frozenset(boilerplate | near_boilerplate | crossing),
        links={"equal": exact, "near": near, "groups": len(groups)},
    )


class _Links:
    """Union-find whose root is the smallest doc_id of a component."""

    def __init__(self, documents: list[str]) -> None:
        self._parent = {doc: doc for doc in documents}

    def find(self, doc: str) -> str:
        while self._parent[doc] != doc:
            self._parent[doc] = self._parent[self._parent[doc]]
            doc = self._parent[doc]
        return doc

    def join(self, left: str, right: str) -> bool:
        """True when the two were apart before."""
        a, b = sorted((self.find(left), self.find(right)))
        self._parent[b] = a
        return a != b

    def groups(self) -> dict[str, list[str]]:
        """group_id -> sorted members; the id is derived from the members."""
        members: dict[str, list[str]] = defaultdict(list)
        for doc in self._parent:
            members[self.find(doc)].append(doc)
        return {derive_id("group", *sorted(docs)): sorted(docs) for docs in members.values()}


def _link_equal(units: list[Unit], links: _Links, limit: int) -> tuple[int, set[str]]:
    """Join documents with equal units: the joins made, and the units that are boilerplate."""
    holders: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        holders[unit.content_hash].append(unit)
    joined = 0
    boilerplate: set[str] = set()
    for same in holders.values():
        documents = sorted({unit.doc_id for unit in same})
        if len(documents) > limit and same[0].kind != "module":
            boilerplate.update(unit.unit_id for unit in same)
        elif len(documents) > 1 and _links(same[0]):
            joined += sum(links.join(documents[0], other) for other in documents[1:])
    return joined, boilerplate


def _link_near(
    units: list[Unit], links: _Links, skip: set[str], limit: int
) -> tuple[int, set[str]]:
    """Join documents with nearly equal units; a bucket over `limit` documents is boilerplate."""
    signatures: dict[str, Signature] = {}
    buckets: dict[tuple[str, bytes], list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.unit_id in skip or not _links(unit):
            continue
        signed = signatures[unit.unit_id] = signature(unit.text)
        for key in band_keys(signed):
            buckets[unit.kind, key].append(unit)
    pairs: dict[tuple[str, str], tuple[str, str]] = {}
    boilerplate: set[str] = set()
    for (kind, _), members in sorted(buckets.items()):
        alike = _alike(members, signatures)
        if kind != "module" and len({unit.doc_id for unit in members}) > limit:
            boilerplate.update(unit.unit_id for pair in alike for unit in pair)
            continue
        for left, right in alike:
            pairs[left.unit_id, right.unit_id] = (left.doc_id, right.doc_id)
    joined = 0
    for (left_id, right_id), (left_doc, right_doc) in sorted(pairs.items()):
        if left_id not in boilerplate and right_id not in boilerplate:
            joined += links.join(left_doc, right_doc)
    return joined, boilerplate


def _alike(members: list[Unit], signatures: dict[str, Signature]) -> list[tuple[Unit, Unit]]:
    """Pairs of different documents in one bucket that really are near."""
    heads: list[Unit] = []
    found = []
    for unit in members:
        near = [
            head
            for head in heads
            if head.doc_id != unit.doc_id
            and similarity(signatures[head.unit_id], signatures[unit.unit_id]) >= NEAR
        ]
        found += [(head, unit) for head in near]
        if not near and len(heads) < BUCKET_HEADS:
            heads.append(unit)
    return found


def _links(unit: Unit) -> bool:
    return len(unit.text.split()) >= LINK_WORDS


def _crossing(units: list[Unit], split: dict[str, str]) -> set[str]:
    """Units whose equal stands in another split (only possible for those too short to link)."""
    sides: dict[str, set[str]] = defaultdict(set)
    for unit in units:
        sides[unit.content_hash].add(split[unit.doc_id])
    return {unit.unit_id for unit in units if len(sides[unit.content_hash]) > 1}


def _weights(units: list[Unit], left_out: set[str]) -> dict[str, tuple[int, int]]:
    """doc_id -> (prose units, modules) that rows can be made from."""
    weights: dict[str, tuple[int, int]] = {}
    for unit in units:
        if unit.unit_id in left_out:
            continue
        prose, code = weights.get(unit.doc_id, (0, 0))
        is_code = unit.kind == "module"
        weights[unit.doc_id] = (prose + (not is_code), code + is_code)
    return weights


def allot(
    groups: dict[str, list[str]], weights: dict[str, tuple[int, int]], settings: SplitSettings
) -> dict[str, str]:
    """group_id -> split. Prose groups and code groups are allotted apart.

    With three groups or more of a kind each of train and test gets one; with two, train and test;
    a single group is for training.
    """
    prose: dict[str, int] = {}
    code: dict[str, int] = {}
    for group, members in groups.items():
        of_prose = sum(weights.get(doc, (0, 0))[0] for doc in members)
        of_code = sum(weights.get(doc, (0, 0))[1] for doc in members)
        # A source file's code chunks count as prose units; its modules decide what it is.
        if of_code:
            code[group] = of_code
        else:
            prose[group] = of_prose
    return {**_allot_kind(prose, settings), **_allot_kind(code, settings)}


def _allot_kind(weights: dict[str, int], settings: SplitSettings) -> dict[str, str]:
    split = dict.fromkeys(weights, TRAIN)
    # A group that yields nothing would make a test that asks nothing.
    useful = [group for group in weights if weights[group] > 0]
    order = sorted(useful, key=lambda group: derive_id("split", settings.seed, group))
    if len(order) < 2:
        return split
    for group in _choose_test(order, weights, settings):
        split[group] = TEST
    left = [group for group in order if split[group] == TRAIN]
    wanted = settings.validation_fraction * sum(weights.values())
    for group in _fitting(left, weights, wanted):
        split[group] = VALIDATION
    return split


def _choose_test(order: list[str], weights: dict[str, int], settings: SplitSettings) -> list[str]:
    """At least one group, never all: those that fit into the fraction, in hash order.

    When they bring too few units for a test, a group that brings enough is taken instead (or as
    well), the one that ends nearest to the fraction, unless training would keep less than half.
    """
    total = sum(weights.values())
    wanted = total * settings.test_fraction
    chosen = _fitting(order, weights, wanted)
    have = sum(weights[group] for group in chosen)
    enough = min(settings.min_test_units, wanted / 2)
    if have < enough:
        rest = [group for group in order if group not in set(chosen)]
        large = [g for g in rest if have + weights[g] >= enough and weights[g] <= total / 2]
        if large:
            nearest = min(large, key=lambda group: abs(have + weights[group] - wanted))
            chosen = [nearest] if weights[nearest] >= wanted else [*chosen, nearest]
    return chosen or [min(order, key=lambda group: weights[group])]


def _fitting(order: list[str], weights: dict[str, int], wanted: float) -> list[str]:
    """Groups, in order, that together stay within `wanted`; the last of all is never taken."""
    chosen: list[str] = []
    have = 0
    for group in order[:-1]:
        if have + weights[group] <= wanted:
            chosen.append(group)
            have += weights[group]
    return chosen
