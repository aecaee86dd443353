"""Facts of the graph that can be asked without the document: one head, one predicate, one answer.

In: `graph/` relations and entities; out: `Fact`s in id order. A relation is a fact when it is
asserted, when no other relation of the same head and predicate says something else, when every
document that states it is a training document, and when its answer is short. Everything else is
counted by reason.

`part` of `parts` takes the heads whose id falls into it, so that memory stays bounded.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from training.data.legible import legible
from training.data.rows import Tally
from training.data.splits import TRAIN, Splits
from workspace.ids import derive_id
from workspace.shards import Row, iterate_rows

MAX_ANSWER_CHARS: Final = 32
MAX_ANSWER_WORDS: Final = 4
MAX_NAME_CHARS: Final = 48
MIN_TO_JUDGE: Final = 4  # facts of one predicate

_LETTERS = re.compile(r"[^\W\d_]{2}")
# "IN" or "tm" could stand in any document; an identifier or a longer word could not.
_SAYS_SOMETHING = re.compile(r"[^\W\d_]{4}|[^\W\d_]\w*[\d_]|[\d_]\w*[^\W\d_]")
_FOOTNOTE = re.compile(r"\[\d+\]")
_LITERAL_RANGE = re.compile(r"\[\s*\d+\s*:\s*\d+\s*\]")
_TASKS: Final = {
    "default_value": "fact_parameter",
    "width": "fact_port_width",
    "instantiates": "fact_instance",
}
# A port has one of three directions and a comment is a sentence: nothing to be remembered.
_NOT_ASKED: Final = frozenset({"direction", "comment", "has_port", "has_parameter"})
# Columns that say nothing about the row's subject that could be known.
_ASIDE = re.compile(
    r"examples?\b|comments?\b|notes?\b|remarks?\b|links?\b|see\b|page", re.IGNORECASE
)
_EXPONENT = re.compile(r"[eE][-+]?\d")


class Fact(NamedTuple):
    """`subject` of `owner` ("" unless a module's port or parameter) has `answer` as `predicate`."""

    fact_id: str
    task: str
    owner: str
    subject: str
    predicate: str
    answer: str
    unit: str
    doc_ids: tuple[str, ...]
    element_ids: tuple[str, ...]
    entity_ids: tuple[str, ...]
    table_id: str
    page: int


def read_facts(
    graph: Path, splits: Splits, tally: Tally, *, part: int = 0, parts: int = 1
) -> Iterator[Fact]:
    """The facts of one part of the graph; what is left out goes to `tally`."""
    heads: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in iterate_rows(graph, "relations"):
        if row["kind"] == "asserted" and _part_of(row["head_id"], parts) == part:
            heads[row["head_id"], row["predicate"]].append(row)
    candidates = [rows for _, rows in sorted(heads.items()) if _is_asked(rows, tally)]
    wanted = {row[name] for rows in candidates for row in rows for name in ("head_id", "tail_id")}
    names = _names(graph, wanted - {""})
    found = []
    for rows in candidates:
        fact = _fact(rows, names, splits)
        if isinstance(fact, str):
            tally.dropped(fact)
        else:
            found.append(fact)
    guessed = _guessed_predicates(found)
    for fact in found:
        if fact.predicate in guessed and fact.task == "fact_table":
            tally.dropped("fact_guessable")
        else:
            yield fact


def _guessed_predicates(facts: list[Fact]) -> set[str]:
    """Predicates of which one answer holds for more than half ("Access" is mostly RW)."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for fact in facts:
        answers[fact.predicate][fact.answer.casefold()] += 1
    return {
        predicate
        for predicate, counts in answers.items()
        if counts.total() >= MIN_TO_JUDGE and 2 * max(counts.values()) > counts.total()
    }


def _part_of(head_id: str, parts: int) -> int:
    return int(derive_id("part", head_id)[:8], 16) % parts if parts > 1 else 0


def _is_asked(rows: list[Row], tally: Tally) -> bool:
    predicate, source = rows[0]["predicate"], rows[0]["source"]
    if (
        predicate in _NOT_ASKED
        or _ASIDE.match(predicate)
        or (source != "table" and predicate not in _TASKS)
    ):
        tally.dropped("fact_not_asked", len(rows))
        return False
    return True


class _Name(NamedTuple):
    name: str
    type: str


def _names(graph: Path, wanted: set[str]) -> dict[str, _Name]:
    return {
        row["entity_id"]: _Name(row["name"], row["type"])
        for row in iterate_rows(graph, "entities", ["entity_id", "name", "type"])
        if row["entity_id"] in wanted
    }


def _fact(rows: list[Row], names: dict[str, _Name], splits: Splits) -> Fact | str:
    """The fact that `rows` (one head, one predicate) state, or the reason why there is none."""
    answers = {(row["tail_id"], row["value"], row["unit"]) for row in rows}
    if len(answers) > 1:
        return "fact_ambiguous"
    first = rows[0]
    evidence = [item for row in rows for item in row["evidence"]]
    doc_ids = sorted({item["doc_id"] for item in evidence})
    if len(doc_ids) < max(row["n_docs"] for row in rows):
        return "fact_evidence_truncated"
    if any(splits.split.get(doc_id) != TRAIN for doc_id in doc_ids):
        return "fact_of_held_out_document"
    if first["head_id"] not in names or (first["tail_id"] and first["tail_id"] not in names):
        return "fact_entity_missing"
    head = names[first["head_id"]].name
    answer = names[first["tail_id"]].name if first["tail_id"] else first["value"].strip('"')
    texts = [item["text"] for item in evidence]
    if _EXPONENT.match(first["unit"]):
        return "fact_answer_unclear"  # "1 e-6", of which the exponent was read as a unit
    reason = _refuse(head, first["predicate"], answer, first["source"], texts)
    if reason:
        return reason
    return _build(first, head, answer, doc_ids, evidence)


def _refuse(head: str, predicate: str, answer: str, source: str, texts: list[str]) -> str:
    if len(answer) > MAX_ANSWER_CHARS or len(answer.split()) > MAX_ANSWER_WORDS:
        return "fact_answer_too_long"
    if len(head) > MAX_NAME_CHARS or len(predicate) > MAX_NAME_CHARS:
        return "fact_name_too_long"
    if not any(char.isalnum() for char in answer) or _FOOTNOTE.search(answer):
        return "fact_answer_unclear"
    if not all(legible(text) for text in (head, predicate, answer)):
        return "fact_illegible"
    if head.count("(") != head.count(")") or head.count("[") != head.count("]"):
        return "fact_name_cut_off"
    if not _LETTERS.search(predicate) or not _SAYS_SOMETHING.search(head):
        return "fact_name_says_nothing"
    said = f"{head} {predicate}".casefold()
    if answer.casefold() in said or head.casefold() in answer.casefold():
        return "fact_guessable"  # the question nearly says its answer ("ram" wraps "ram_impl")
    if source == "rtl" and predicate == "width":
        if answer == "1":
            return "fact_guessable"
        if not any(_LITERAL_RANGE.search(text) for text in texts):
            return "fact_width_of_parameters"
    return ""


def _build(
    first: Row, head: str, answer: str, doc_ids: list[str], evidence: list[dict[str, Any]]
) -> Fact:
    task = _TASKS.get(first["predicate"], "") if first["source"] == "rtl" else "fact_table"
    owner, dot, member = head.partition(".")
    scoped = task in ("fact_parameter", "fact_port_width") and bool(dot)
    return Fact(
        fact_id=derive_id("fact", first["head_id"], first["predicate"]),
        task=task,
        owner=owner if scoped else "",
        subject=member if scoped else head,
        predicate=first["predicate"],
        answer=answer,
        unit=first["unit"],
        doc_ids=tuple(doc_ids),
        element_ids=tuple(sorted({item["element_id"] for item in evidence} - {""})),
        entity_ids=tuple(item for item in (first["head_id"], first["tail_id"]) if item),
        table_id=evidence[0]["table_id"] if evidence else "",
        page=evidence[0]["page"] if evidence else 0,
    )
