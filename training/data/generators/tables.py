"""Open-book questions over a table: look-up, comparison, extremes, counting, arithmetic, filter.

In: the typed columns of a corpus table. Out: rows whose prompt holds a part of the table as
Markdown and one question; the answer is computed by a query in Python and again by SQLite, whose
SQL is the rationale. Rejected: no key column, duplicate keys, ties, empty or full selections.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from training.data import truth
from training.data.documents import Document, Table
from training.data.forms import LIST_ONLY, NAME_ONLY, NUMBER_ONLY, VALUE_ONLY, Form, make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.generators.queries import Answer, Query, View, agree, evaluate, recompute, to_sql
from training.data.generators.table_views import Askable, ShownTable, askable, choose_view
from training.data.numbers import format_number, near_misses
from training.data.rows import OPEN_BOOK, Draft, Reject

QUESTION_TOKENS: Final = 60  # kept free for the question below the table

FORMS: Final[dict[str, tuple[Form, ...]]] = {
    "table_lookup": make_forms(
        "table_lookup", VALUE_ONLY,
        "What is the {column} of {key}?",
        "Which {column} does the table give for {key}?",
        "Look up {key} in the table: what is its {column}?",
        "In the row of {key}, what stands under {column}?",
    ),
    "table_compare": make_forms(
        "table_compare", NAME_ONLY,
        "Which has the higher {column}: {key} or {other}?",
        "Compare {key} with {other}. Which one has the larger {column}?",
        "Between {key} and {other}, which one has the greater {column}?",
        "Is {column} higher for {key} or for {other}?",
    ),
    "table_argmax": make_forms(
        "table_argmax", NAME_ONLY,
        "Which {name} has the highest {column}?",
        "For which {name} is {column} largest?",
        "Give the {name} with the greatest {column}.",
        "Where in the table is {column} at its maximum? Give the {name}.",
    ),
    "table_argmin": make_forms(
        "table_argmin", NAME_ONLY,
        "Which {name} has the lowest {column}?",
        "For which {name} is {column} smallest?",
        "Give the {name} with the least {column}.",
        "Where in the table is {column} at its minimum? Give the {name}.",
    ),
    "table_count": make_forms(
        "table_count", NUMBER_ONLY,
        "How many rows have {column} above {bound}?",
        "Count the rows whose {column} is greater than {bound}.",
        "In how many rows does {column} exceed {bound}?",
        "For how many entries is {column} more than {bound}?",
    ),
    "table_sum": make_forms(
        "table_sum", NUMBER_ONLY,
        "What is the sum of {column} for {key} and {other}?",
        "Add the {column} of {key} to that of {other}. What is the total?",
        "Together, how much {column} do {key} and {other} have?",
        "What do the {column} values of {key} and {other} add up to?",
    ),
    "table_difference": make_forms(
        "table_difference", NUMBER_ONLY,
        "By how much does the {column} of {key} exceed that of {other}?",
        "What is the {column} of {key} minus the {column} of {other}?",
        "Subtract the {column} of {other} from that of {key}. What is left?",
        "How much larger is {column} for {key} than for {other}?",
    ),
    "table_filter": make_forms(
        "table_filter", LIST_ONLY,
        "Which {name} entries have {column} above {bound}?",
        "List every {name} whose {column} is greater than {bound}.",
        "For which {name} entries does {column} exceed {bound}?",
        "Which {name} entries have a {column} of more than {bound}?",
    ),
}  # fmt: skip

DIFFICULTY: Final = {
    "table_lookup": 1, "table_compare": 2, "table_argmax": 2, "table_argmin": 2,
    "table_count": 3, "table_sum": 4, "table_difference": 4, "table_filter": 3,
}  # fmt: skip
LOOKUPS: Final = 3  # look-ups proposed for each other question: the skill that all others need


class TableContext(NamedTuple):
    table: Table
    columns: Askable
    task: str
    max_tokens: int


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, TableContext | Reject]]:
    """Every task on every table, look-ups several times; most numerous first for the quota."""
    for table in document.tables:
        columns = askable(table)
        if isinstance(columns, Reject):
            yield Source(table.table_id, table.table_id), columns
            continue
        tasks = ["table_lookup"] * LOOKUPS + [task for task in FORMS if task != "table_lookup"]
        # The quota takes the first rows that work, so each table starts with another task.
        turn = int(table.table_id[:8] or "0", 16) % len(tasks)
        for index, task in enumerate(tasks[turn:] + tasks[:turn]):
            source = Source(f"{table.table_id}/{task}/{index}", table.table_id)
            yield source, TableContext(table, columns, task, limits.max_prompt_tokens)


def generate(context: TableContext, rng: random.Random) -> Draft | Reject:
    """One question about one table."""
    shown = choose_view(context.columns, rng, context.max_tokens - QUESTION_TOKENS)
    if isinstance(shown, Reject):
        return shown
    query = _make_query(context.task.removeprefix("table_"), shown, rng)
    if isinstance(query, Reject):
        return query
    answer = evaluate(query, shown.view)
    if not agree(answer, recompute(query, shown.view)):
        return Reject("programs_disagree")
    return _draft(context, shown, query, answer, rng)


def _make_query(operation: str, shown: ShownTable, rng: random.Random) -> Query | Reject:
    view = shown.view
    keys = [str(key) for key in view.values(view.key)]
    if operation == "lookup":
        column = rng.choice([*shown.measured, *shown.others])
        if len(set(view.values(column))) < 2:
            return Reject("constant_column")
        return Query(operation, column, (rng.choice(keys),))
    if not shown.measured:
        return Reject("nothing_measured")
    column = rng.choice(shown.measured)
    numbers = view.numbers(column)
    if operation in ("argmax", "argmin"):
        extreme = max(numbers) if operation == "argmax" else min(numbers)
        return Query(operation, column) if numbers.count(extreme) == 1 else Reject("tie")
    if operation in ("count", "filter"):
        return _bounded(operation, column, numbers)
    return _paired(operation, column, view, keys, rng)


def _bounded(operation: str, column: str, numbers: list[float]) -> Query | Reject:
    """A bound between two values, so that "above" leaves no doubt, with some rows on each side."""
    distinct = sorted(set(numbers))
    if len(distinct) < 3:
        return Reject("too_few_values")
    middle = len(distinct) // 2
    bound = distinct[middle]
    above = sum(number > bound for number in numbers)
    if not 0 < above < len(numbers):
        return Reject("empty_selection")
    return Query(operation, column, bound=bound)


def _paired(
    operation: str, column: str, view: View, keys: list[str], rng: random.Random
) -> Query | Reject:
    cells = dict(zip(keys, view.numbers(column), strict=True))
    left, right = rng.sample(keys, 2)
    if cells[left] == cells[right]:
        return Reject("tie")
    if operation == "difference" and cells[left] < cells[right]:
        left, right = right, left
    return Query(operation, column, (left, right))


def _draft(
    context: TableContext, shown: ShownTable, query: Query, answer: Answer, rng: random.Random
) -> Draft | Reject:
    form = rng.choice(FORMS[context.task])
    question = form.fill(
        column=query.column,
        name=shown.view.key,
        key=query.keys[0] if query.keys else "",
        other=query.keys[1] if len(query.keys) > 1 else "",
        bound=format_number(query.bound),
    )
    expected = _expected(answer, query, shown, rng)
    if isinstance(expected, Reject):
        return expected
    return Draft(
        setting=OPEN_BOOK,
        task=context.task,
        prompt=f"{shown.markdown}\n\n{question}",
        answer=expected.text,
        verifier=expected.verifier,
        truth=expected.truth,
        wrong=expected.wrong,
        difficulty=DIFFICULTY[context.task],
        rationale=to_sql(query, shown.view),
        form=form.form_id,
        element_ids=(context.table.element_id,),
        table_id=context.table.table_id,
        page=context.table.page,
    )


class Expected(NamedTuple):
    text: str
    verifier: str
    truth: str
    wrong: tuple[str, ...]


def _expected(
    answer: Answer, query: Query, shown: ShownTable, rng: random.Random
) -> Expected | Reject:
    """How the answer is written and checked."""
    if isinstance(answer, float):
        # Twelve digits hide what binary fractions add to a sum such as 0.1 + 0.2.
        text = format_number(answer)
        unit = "" if query.operation == "count" else shown.units[query.column]
        return Expected(text, "numeric", truth.numeric(float(text), unit), near_misses(answer, rng))
    if isinstance(answer, tuple):
        if any("," in item or ";" in item or " and " in item for item in answer):
            return Reject("separator_in_key")
        rest = [key for key in map(str, shown.view.values(shown.view.key)) if key not in answer]
        return Expected(
            ", ".join(answer), "set", truth.items(answer), (", ".join([*answer, *rest]),)
        )
    column = query.column if query.operation == "lookup" else shown.view.key
    siblings = sorted({str(v) for v in shown.view.values(column)} - {answer})
    if not siblings:
        return Reject("constant_column")
    return Expected(answer, "exact", truth.exact(answer), tuple(siblings[:2]))


TABLES: Final = Generator("tables", "1", contexts, generate)
