"""Run every generator over documents: drafts, checks, quotas.

In: `Document`s; out: canonical rows and a `Tally`. The quota is per unit (table, chunk, module)
and generator, so that coverage does not depend on a document's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from training.data import checks
from training.data.documents import Document
from training.data.facts import Fact
from training.data.generators import closed_book
from training.data.generators.cloze import CLOZE
from training.data.generators.generator import Generator, Limits
from training.data.generators.rtl_completion import RTL_COMPLETION
from training.data.generators.rtl_structure import RTL_STRUCTURE
from training.data.generators.table_choice import TABLE_CHOICE
from training.data.generators.tables import TABLES
from training.data.generators.text import TEXT
from training.data.rows import Draft, Provenance, Reject, Tally, to_row
from training.data.splits import TRAIN, Splits
from workspace.shards import Row

GENERATORS: Final[tuple[Generator[Any], ...]] = (
    TABLES, TABLE_CHOICE, CLOZE, RTL_STRUCTURE, RTL_COMPLETION, TEXT,
)  # fmt: skip


def rows_of_document(document: Document, limits: Limits, seed: int, tally: Tally) -> Iterator[Row]:
    """All rows that the document gives."""
    for generator in GENERATORS:
        origin = Provenance(
            (document.doc_id,),
            document.licence,
            document.split,
            document.group_id,
            generator.name,
            generator.version,
            seed,
        )
        taken: Counter[str] = Counter()
        asked: set[tuple[str, str]] = set()
        for source, context in generator.contexts(document, limits):
            if taken[source.unit_id] >= limits.max_rows_per_unit:
                continue
            draft = (
                context
                if isinstance(context, Reject)
                else generator.generate(context, generator.random(seed, source))
            )
            row = _accept(draft, origin, asked, tally)
            if row is not None:
                taken[source.unit_id] += 1
                yield row


def rows_of_fact(
    fact: Fact, splits: Splits, licences: dict[str, str], seed: int, forms: int, tally: Tally
) -> list[Row]:
    """A fact's training rows, test row and statement; none when one of them fails its check."""
    origin = Provenance(
        fact.doc_ids,
        licences.get(fact.doc_ids[0], ""),
        TRAIN,
        splits.group[fact.doc_ids[0]],
        closed_book.NAME,
        closed_book.VERSION,
        seed,
    )
    drafts = list(closed_book.generate(fact, seed, forms))
    reasons = [checks.refuse(draft) for draft in drafts]
    failed = next((reason for reason in reasons if reason), "")
    if failed:
        tally.dropped(failed)
        return []
    return [to_row(draft, origin) for draft in drafts]


def _accept(
    draft: Draft | Reject, origin: Provenance, asked: set[tuple[str, str]], tally: Tally
) -> Row | None:
    if isinstance(draft, Reject):
        tally.dropped(f"{origin.generator}:{draft.reason}")
        return None
    question = (draft.prompt, draft.answer)
    if question in asked:
        tally.dropped(f"{origin.generator}:repeated")
        return None
    asked.add(question)
    reason = checks.refuse(draft)
    if reason:
        tally.dropped(f"{origin.generator}:{reason}")
        return None
    return to_row(draft, origin)
