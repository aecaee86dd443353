"""Multiple-choice questions over a table: which of four values stands in a cell.

In: the typed columns of a corpus table. Out: rows of verifier `choice` whose prompt holds a part
of the table as Markdown, a look-up, and four options, one a line (`B. 3.6 V`). The wrong ones are
other cells of the same column in the part that is shown, so all are of one kind and unit. The order
of the options follows from a hash of what is asked and of their texts.

Off unless `choice_rows` says how many are proposed for each table. Rejected: columns with fewer
than four values that differ as texts and as quantities (`1 kHz` is `1000 Hz`), none of which stands
in another; values that read as an option's letter. Not covered: choices among facts of the graph.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from evaluation.verifiers import verify
from evaluation.verifiers.extraction import normalise
from evaluation.verifiers.numeric import read_quantities
from training.data import truth
from training.data.documents import Document, Table
from training.data.forms import LETTER_ONLY, Form, make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.generators.queries import Query, agree, evaluate, recompute, to_sql
from training.data.generators.table_views import Askable, ShownTable, askable, choose_view
from training.data.numbers import format_number
from training.data.rows import OPEN_BOOK, Draft, Reject
from workspace.ids import derive_id

LETTERS: Final = "ABCD"
QUESTION_TOKENS: Final = 100  # kept free for the question and its options below the table

FORMS: Final[tuple[Form, ...]] = make_forms(
    "table_choice", LETTER_ONLY,
    "Which of these is the {column} of {key}?",
    "Which option does the table give as {column} for {key}?",
    "Look up {key} in the table: which of the following is its {column}?",
    "Which of the four stands under {column} in the row of {key}?",
)  # fmt: skip


class ChoiceContext(NamedTuple):
    table: Table
    columns: Askable
    max_tokens: int


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, ChoiceContext | Reject]]:
    """Every table, as often as a row is wanted of it; nothing when none is."""
    for table in document.tables if limits.choice_rows else ():
        columns = askable(table)
        if isinstance(columns, Reject):
            yield Source(table.table_id, table.table_id), columns
            continue
        for index in range(limits.choice_rows):
            source = Source(f"{table.table_id}/{index}", table.table_id)
            yield source, ChoiceContext(table, columns, limits.max_prompt_tokens)


def generate(context: ChoiceContext, rng: random.Random) -> Draft | Reject:
    """One question about one cell."""
    shown = choose_view(context.columns, rng, context.max_tokens - QUESTION_TOKENS)
    if isinstance(shown, Reject):
        return shown
    view = shown.view
    column = rng.choice([*shown.measured, *shown.others])
    query = Query("lookup", column, (str(rng.choice(view.values(view.key))),))
    answer = evaluate(query, view)
    if not agree(answer, recompute(query, view)):
        return Reject("programs_disagree")
    assert not isinstance(answer, tuple), "a look-up gives one cell"
    right = _text(answer, shown.units[column])
    cells = [_text(value, shown.units[column]) for value in view.values(column)]
    options = _options(right, rng.sample(cells, len(cells)))
    if isinstance(options, Reject):
        return options
    return _draft(context, shown, query, right, options, rng)


def _text(value: float | str, unit: str) -> str:
    text = value if isinstance(value, str) else format_number(value)
    return f"{text} {unit}" if unit else text


def _options(right: str, cells: Sequence[str]) -> list[str] | Reject:
    """The right one and three others of `cells`, of which no two can be taken for each other."""
    found = [right]
    for cell in cells:
        if len(found) < len(LETTERS) and not any(_alike(cell, known) for known in found):
            found.append(cell)
    if len(found) < len(LETTERS):
        return Reject("too_few_choices")
    if any(len(normalise(option)) < 2 and option.isalpha() for option in found):
        return Reject("option_is_a_letter")
    return found


def _alike(one: str, other: str) -> bool:
    """Whether both could be right: one text in the other, or the same quantity."""
    first, second = normalise(one), normalise(other)
    # Quantities are read as written: folded, a unit is another one or none.
    quantities = read_quantities(one), read_quantities(other)
    if first == second or [len(found) for found in quantities] != [1, 1]:
        return first in second or second in first
    [quantity] = quantities[0]
    return verify("numeric", truth.numeric(quantity.value, quantity.unit), other).passed


def _draft(
    context: ChoiceContext,
    shown: ShownTable,
    query: Query,
    right: str,
    options: Sequence[str],
    rng: random.Random,
) -> Draft:
    form = rng.choice(FORMS)
    question = form.fill(column=query.column, key=query.keys[0])
    asked = f"{shown.markdown}\n\n{question}"
    ordered = sorted(options, key=lambda option: derive_id("option", asked, option))
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, ordered, strict=True))
    letter = LETTERS[ordered.index(right)]
    return Draft(
        setting=OPEN_BOOK,
        task="table_choice",
        prompt=f"{asked}\n\n{listed}",
        answer=letter,
        verifier="choice",
        truth=truth.choice(letter, ordered),
        wrong=tuple(other for other in LETTERS if other != letter),
        difficulty=1,
        rationale=to_sql(query, shown.view),
        form=form.form_id,
        element_ids=(context.table.element_id,),
        table_id=context.table.table_id,
        page=context.table.page,
    )


TABLE_CHOICE: Final = Generator("table_choice", "1", contexts, generate)
