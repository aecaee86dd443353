"""From a generator's draft to a canonical row (`training.data.schema.ROWS`).

    draft = Draft(setting=OPEN_BOOK, task="table_lookup", prompt="...", answer="12.4", ...)
    row = to_row(draft, document, provenance)

The row's id is derived from what is asked and answered, so the same question made twice has the
same id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from corpus.tokenizers import count_tokens
from training.data.splits import TEST
from workspace.ids import derive_id
from workspace.shards import Row

OPEN_BOOK: Final = "open_book"
CLOSED_BOOK: Final = "closed_book"
SKILL: Final = "skill"
CPT: Final = "cpt"


@dataclass(frozen=True)
class Draft:
    """A proposed row. `wrong` holds near misses that its verifier must refuse."""

    setting: str
    task: str
    prompt: str  # "" for cpt
    answer: str
    verifier: str = ""  # "" for cpt
    truth: str = "{}"  # JSON for the verifier
    wrong: tuple[str, ...] = ()
    difficulty: int = 1
    rationale: str = ""
    fact_id: str = ""
    form: str = ""
    for_test: bool = False  # closed-book: the form that training lacks
    chunk_ids: tuple[str, ...] = ()
    element_ids: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    table_id: str = ""
    module_id: str = ""
    page: int = 0


@dataclass(frozen=True)
class Reject:
    """Why a context gave no row: a reason code."""

    reason: str


@dataclass(frozen=True)
class Provenance:
    """What a row inherits from its documents and its generator."""

    doc_ids: tuple[str, ...]
    licence: str
    split: str
    group_id: str
    generator: str
    generator_version: str
    seed: int


def to_row(draft: Draft, origin: Provenance) -> Row:
    """The canonical row. A closed-book test form of a training document gets split `test`."""
    messages = [{"role": "user", "content": draft.prompt}] if draft.prompt else []
    prompt_json = json.dumps(messages, ensure_ascii=False)
    split = TEST if draft.for_test else origin.split
    kind = CPT if draft.setting == CPT else "test" if split == TEST else "sft"
    return {
        "row_id": derive_id("row", draft.setting, draft.task, prompt_json, draft.answer),
        "kind": kind,
        "split": split,
        "setting": draft.setting,
        "task": draft.task,
        "difficulty": draft.difficulty,
        "prompt_json": prompt_json,
        "answer": draft.answer,
        "rationale": draft.rationale,
        "wrong": list(draft.wrong),
        "verifier": draft.verifier,
        "ground_truth": draft.truth,
        "fact_id": draft.fact_id,
        "form": draft.form,
        "group_id": origin.group_id,
        "doc_ids": list(origin.doc_ids),
        "element_ids": list(draft.element_ids),
        "chunk_ids": list(draft.chunk_ids),
        "entity_ids": list(draft.entity_ids),
        "table_id": draft.table_id,
        "module_id": draft.module_id,
        "page": draft.page,
        "licence": origin.licence,
        "generator": origin.generator,
        "generator_version": origin.generator_version,
        "seed": origin.seed,
        "tokens": count_tokens(draft.prompt) + count_tokens(draft.answer),
    }


def messages_of(row: Row) -> list[dict[str, str]]:
    """The prompt as chat messages."""
    messages: list[dict[str, str]] = json.loads(row["prompt_json"])
    return messages


def question_of(row: Row) -> str:
    """The text of the last user message, "" for cpt."""
    messages = messages_of(row)
    return messages[-1]["content"] if messages else ""


@dataclass
class Tally:
    """Counts of what was made and what was dropped, by name and by reason code."""

    counts: dict[str, int] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)

    def made(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def dropped(self, reason: str, n: int = 1) -> None:
        if n:
            self.rejects[reason] = self.rejects.get(reason, 0) + n

    def add(self, other: Tally) -> None:
        for name, n in other.counts.items():
            self.made(name, n)
        for reason, n in other.rejects.items():
            self.dropped(reason, n)

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": dict(sorted(self.counts.items())),
            "rejects": dict(sorted(self.rejects.items())),
        }
