"""What a community is about: a label and an extractive summary.

The label is the names of its highest-ranked entities. The summary is the sentences, quoted from
the evidence of its inner relations, that name the most of its rank; a community known only from
RTL or tables is described by its facts instead. Nothing is generated.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from knowledge_graph.communities import Community
from workspace.shards import Row

LABEL_NAMES: Final = 3
SUMMARY_SENTENCES: Final = 3
SUMMARY_CHARS: Final = 700
# A whole sentence, not a heading or a scrap of code.
_SENTENCE: Final = re.compile(r"[A-Z“(][^{};$]{30,}[.!]", re.DOTALL)


def describe_communities(
    found: Sequence[Community], entities: Iterable[Row], relations: Sequence[Row]
) -> list[Row]:
    """Rows of `communities`, in the order of `found`."""
    by_id = {row["entity_id"]: row for row in entities}
    inner = _inner_relations(found, relations)
    return [_describe(item, by_id, inner[item.community_id]) for item in found]


def _inner_relations(
    found: Sequence[Community], relations: Sequence[Row]
) -> Mapping[str, list[Row]]:
    """Community -> relations with both ends (or the only one) inside it."""
    homes: dict[str, list[str]] = defaultdict(list)
    for item in found:
        for member in item.members:
            homes[member].append(item.community_id)
    inner: dict[str, list[Row]] = defaultdict(list)
    for row in relations:
        tails = homes[row["tail_id"]] if row["tail_id"] else homes[row["head_id"]]
        for community in homes[row["head_id"]]:
            if community in tails:
                inner[community].append(row)
    return inner


def _describe(item: Community, by_id: Mapping[str, Row], relations: Sequence[Row]) -> Row:
    members = sorted(item.members, key=lambda m: (-by_id[m]["pagerank"], by_id[m]["name"], m))
    return {
        "community_id": item.community_id,
        "level": item.level,
        "parent_id": item.parent_id,
        "size": len(members),
        "label": " · ".join(by_id[member]["name"] for member in members[:LABEL_NAMES]),
        "summary": _summary(members, by_id, relations),
        "entity_ids": members,
    }


def _summary(members: Sequence[str], by_id: Mapping[str, Row], relations: Sequence[Row]) -> str:
    sentences = _sentence_scores(by_id, relations)
    best = sorted(sentences, key=lambda text: (-sentences[text], text))[:SUMMARY_SENTENCES]
    return _within(best or list(_facts(members, by_id, relations)), SUMMARY_CHARS)


def _sentence_scores(by_id: Mapping[str, Row], relations: Sequence[Row]) -> dict[str, float]:
    """Sentence -> rank of the entities that its relations join."""
    named: dict[str, set[str]] = defaultdict(set)
    for row in relations:
        if row["source"] != "sentence":
            continue
        for evidence in row["evidence"]:
            if _SENTENCE.fullmatch(evidence["text"]):
                named[evidence["text"]].update((row["head_id"], row["tail_id"]))
    return {
        # Long sentences name more; the root keeps lists from winning by length alone.
        text: sum(by_id[name]["pagerank"] for name in names) / len(text) ** 0.5
        for text, names in named.items()
    }


def _facts(
    members: Sequence[str], by_id: Mapping[str, Row], relations: Sequence[Row]
) -> Iterator[str]:
    """One line for each of the first members that has facts."""
    about: dict[str, list[str]] = defaultdict(list)
    for row in relations:
        tail = by_id[row["tail_id"]]["name"] if row["tail_id"] else row["value"]
        about[row["head_id"]].append(f"{row['predicate']} {tail} {row['unit']}".strip())
    for member in members:
        if about[member]:
            shown = sorted(about[member])[:4]
            more = len(about[member]) - len(shown)
            rest = f" and {more} more" if more else ""
            yield f"{by_id[member]['name']}: {', '.join(shown)}{rest}."


def _within(texts: Sequence[str], limit: int) -> str:
    kept: list[str] = []
    for text in texts[:SUMMARY_SENTENCES]:
        if kept and sum(map(len, kept)) + len(text) > limit:
            break
        kept.append(text if len(text) <= limit else text[: limit - 1] + "…")
    return " ".join(kept)
