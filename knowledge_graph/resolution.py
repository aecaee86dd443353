"""Which keys are one entity, and which are worth being one.

Two passes over the mention candidates of all shards. Cheapest first: the normalised key has
already joined spellings; here acronyms join their long forms, and weak terms are left out.

- An acronym is joined to its long form everywhere when every definition of it in the corpus
  agrees, otherwise only inside the documents that define it (`TP` is two things in two papers).
- A term stands when it was named by structure (RTL, a table's key, a definition), is an
  identifier, or has support: mentions, plus distinct longer terms that contain it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from knowledge_graph.generic_terms import is_generic
from knowledge_graph.names import IDENTIFIER_PREFIX, norm_key
from workspace.ids import derive_id
from workspace.shards import Row

STRUCTURAL_KINDS: Final = frozenset({"module", "port", "parameter", "instance"})
# Definition-like statements vouch for both of their ends.
_VOUCHING: Final = frozenset({"is_a", "stands_for", "has_part", "part_of"})
_TYPE_OF_KIND: Final = {
    "module": "module",
    "instance": "module",
    "port": "port",
    "parameter": "parameter",
    "table_header": "attribute",
}
# A structural type is a fact; the others are opinions and go by number.
_TYPE_RANK: Final = {"module": 3, "port": 2, "parameter": 1}
MAX_ALIASES: Final = 20


@dataclass
class Acronyms:
    """Short key -> long key, for the whole corpus or for one document."""

    everywhere: dict[str, str] = field(default_factory=dict)
    in_document: dict[tuple[str, str], str] = field(default_factory=dict)

    def resolve(self, doc_id: str, key: str) -> str:
        """The key of the entity that `key` means in this document."""
        return self.everywhere.get(key) or self.in_document.get((doc_id, key), key)


@dataclass
class Tally:
    """What is counted for one key while candidates stream by."""

    n_mentions: int = 0
    n_docs: int = 0
    last_doc: str = ""
    names: Counter[str] = field(default_factory=Counter)
    surfaces: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def count(self, row: Row) -> None:
        """Add one mention; mentions of a document come together."""
        self.n_mentions += 1
        if row["doc_id"] != self.last_doc:
            self.n_docs += 1
            self.last_doc = row["doc_id"]
        self.names[row["name"]] += 1
        self.surfaces[row["surface"]] += 1
        self.kinds[row["kind"]] += 1


def entity_id(key: str) -> str:
    """The id of the entity with this normalised key, the same in every corpus."""
    return derive_id("entity", key)


def resolve_acronyms(definitions: Iterable[Row], rejects: Counter[str]) -> Acronyms:
    """Decide where each acronym holds. A long form that is itself an acronym is not followed."""
    by_short: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in definitions:
        by_short[row["short_key"]][row["doc_id"]][row["long_key"]] += 1
    acronyms = Acronyms()
    for short, by_doc in sorted(by_short.items()):
        longs = {long for counts in by_doc.values() for long in counts}
        if longs & by_short.keys():
            rejects["acronym_chain"] += 1
        elif len(longs) == 1:
            acronyms.everywhere[short] = next(iter(longs))
        else:
            for doc_id, counts in by_doc.items():
                best = min(counts, key=lambda long: (-counts[long], long))
                acronyms.in_document[(doc_id, short)] = best
    return acronyms


def tally_mentions(mentions: Iterable[Row], acronyms: Acronyms) -> dict[str, Tally]:
    """Key -> its tally, after acronyms are resolved."""
    tallies: dict[str, Tally] = {}
    for row in mentions:
        key = mention_key(row, acronyms)
        tallies.setdefault(key, Tally()).count(row)
    return tallies


def mention_key(row: Row, acronyms: Acronyms) -> str:
    """The resolved key of a mention; structure is never read as an acronym."""
    key: str = row["key"]
    return key if row["kind"] in STRUCTURAL_KINDS else acronyms.resolve(row["doc_id"], key)


def vouched_keys(relations: Iterable[Row], acronyms: Acronyms) -> set[str]:
    """Keys that a table row or a definition-like statement says something about."""
    keys: set[str] = set()
    for row in relations:
        if row["source"] == "table" or row["predicate"] in _VOUCHING:
            keys.add(acronyms.resolve(row["doc_id"], row["head_key"]))
            if row["tail_key"]:
                keys.add(acronyms.resolve(row["doc_id"], row["tail_key"]))
    return keys


def select_entities(
    tallies: Mapping[str, Tally],
    vouched: set[str],
    longs: set[str],
    min_mentions: int,
    rejects: Counter[str],
) -> dict[str, Tally]:
    """The tallies that become entities; the others are counted by reason."""
    containers = _count_containers(tallies)
    kept: dict[str, Tally] = {}
    for key, tally in tallies.items():
        reason = _refuse(key, tally, vouched, longs, min_mentions, containers[key])
        if reason:
            rejects[reason] += 1
        else:
            kept[key] = tally
    return kept


def _refuse(
    key: str, tally: Tally, vouched: set[str], longs: set[str], min_mentions: int, containers: int
) -> str:
    if STRUCTURAL_KINDS & tally.kinds.keys() or key in longs:
        return ""
    is_identifier = key.startswith(IDENTIFIER_PREFIX)
    if not is_identifier and is_generic(key):
        return "generic_term"
    if key in vouched or (is_identifier and not _is_number_like(key)):
        return ""
    if tally.n_mentions + containers < min_mentions:
        return "below_min_mentions"
    return ""


def _is_number_like(key: str) -> bool:
    """Hexadecimal and Verilog literals: names of places at best."""
    name = key.removeprefix(IDENTIFIER_PREFIX)
    return name[:2].lower() == "0x" or "'" in name


def _count_containers(tallies: Mapping[str, Tally]) -> Counter[str]:
    """For each key, how many distinct longer keys of words contain it."""
    containers: Counter[str] = Counter()
    for key in tallies:
        if key.startswith(IDENTIFIER_PREFIX):
            continue
        words = key.split()
        parts = {
            " ".join(words[start:end])
            for start in range(len(words))
            for end in range(start + 1, len(words) + 1)
            if end - start < len(words)
        }
        containers.update(part for part in parts if part in tallies)
    return containers


def entity_rows(kept: Mapping[str, Tally]) -> Iterator[Row]:
    """Rows of `entities` without degree and rank, in order of id."""
    for identity, key in sorted((entity_id(key), key) for key in kept):
        tally = kept[key]
        name = display_name(tally.names)
        aliases = [text for text, _ in ranked(tally.surfaces + tally.names) if text != name]
        yield {
            "entity_id": identity,
            "name": name,
            "norm_key": key,
            "type": vote_type(key, tally.kinds),
            "aliases": aliases[:MAX_ALIASES],
            "n_mentions": tally.n_mentions,
            "n_docs": tally.n_docs,
        }


def vote_type(key: str, kinds: Counter[str]) -> str:
    """The type that most mentions suggest; structure outranks numbers."""
    votes: Counter[str] = Counter()
    for kind, count in kinds.items():
        fallback = "identifier" if key.startswith(IDENTIFIER_PREFIX) else "term"
        votes[_TYPE_OF_KIND.get(kind, fallback)] += count
    return min(votes, key=lambda name: (-_TYPE_RANK.get(name, 0), -votes[name], name))


def display_name(names: Counter[str]) -> str:
    """The most frequent spelling, in the singular where that is written too."""
    best = most_common(names)
    same = norm_key(best)
    singular = Counter({name: n for name, n in names.items() if name.casefold() == same})
    return most_common(singular) if singular else best


def most_common(counts: Counter[str]) -> str:
    """The most frequent text; ties go to the first in alphabetical order."""
    return ranked(counts)[0][0]


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """Texts by falling frequency, ties in alphabetical order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
