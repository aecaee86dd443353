"""Closed-book questions: each fact in several phrasings, one of which only the test has.

In: `Fact`s of training documents. Out, per fact: `forms_per_fact` training rows, one test row in
the held-out form, and one plain statement as text. The prompt is the bare question.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Final

from training.data import truth
from training.data.facts import Fact
from training.data.forms import NAME_ONLY, NUMBER_ONLY, VALUE_ONLY, Form, held_out, make_forms
from training.data.numbers import near_misses
from training.data.rows import CLOSED_BOOK, CPT, Draft
from workspace.ids import derive_id

NAME: Final = "closed_book"
VERSION: Final = "1"

FORMS: Final[dict[str, tuple[Form, ...]]] = {
    "fact_parameter": make_forms(
        "fact_parameter", VALUE_ONLY,
        "What is the default value of parameter {subject} in module {owner}?",
        "In {owner}, which value does {subject} have by default?",
        "Module {owner}: parameter {subject} defaults to what?",
        "If {subject} is not overridden, what is it in {owner}?",
        "Give the default of {owner}'s parameter {subject}.",
    ),
    "fact_port_width": make_forms(
        "fact_port_width", NUMBER_ONLY,
        "How many bits wide is port {subject} of module {owner}?",
        "In {owner}, what is the width of {subject} in bits?",
        "Module {owner}: port {subject} has how many bits?",
        "What number of bits does {owner} use for {subject}?",
        "Give the bit width of {owner}'s port {subject}.",
    ),
    "fact_instance": make_forms(
        "fact_instance", NAME_ONLY,
        "Which module does {subject} instantiate?",
        "{subject} contains an instance of which module?",
        "Module {subject}: what is the one module inside it?",
        "Name the submodule of {subject}.",
        "What does {subject} wrap as its only submodule?",
    ),
    "fact_table": make_forms(
        "fact_table", VALUE_ONLY,
        "What is the {predicate} of {subject}?",
        "For {subject}, what is given as {predicate}?",
        "{subject}: which {predicate} does it have?",
        "Which {predicate} belongs to {subject}?",
        "State the {predicate} that {subject} has.",
    ),
}  # fmt: skip

STATEMENTS: Final = {
    "fact_parameter": "In module {owner}, the parameter {subject} has the default value {answer}.",
    "fact_port_width": "In module {owner}, the port {subject} is {answer} bits wide.",
    "fact_instance": "Module {subject} instantiates the module {answer}.",
    "fact_table": "The {predicate} of {subject} is {answer}.",
}

_PLAIN_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,3})?")


def generate(fact: Fact, seed: int, forms_per_fact: int) -> Iterator[Draft]:
    """Training rows, the test row and the statement of one fact."""
    rng = random.Random(derive_id(NAME, VERSION, seed, fact.fact_id))
    kept_out = held_out(FORMS[fact.task], seed)
    pool = [form for form in FORMS[fact.task] if form is not kept_out]
    for form in rng.sample(pool, min(forms_per_fact, len(pool))):
        yield _question(fact, form, rng, for_test=False)
    yield _question(fact, kept_out, rng, for_test=True)
    yield _statement(fact)


def _question(fact: Fact, form: Form, rng: random.Random, *, for_test: bool) -> Draft:
    answer, verifier, ground_truth, wrong = _expected(fact, rng)
    return Draft(
        setting=CLOSED_BOOK,
        task=fact.task,
        prompt=form.fill(owner=fact.owner, subject=fact.subject, predicate=fact.predicate),
        answer=answer,
        verifier=verifier,
        truth=ground_truth,
        wrong=wrong,
        difficulty=2,
        fact_id=fact.fact_id,
        form=form.form_id,
        for_test=for_test,
        element_ids=fact.element_ids,
        entity_ids=fact.entity_ids,
        table_id=fact.table_id,
        page=fact.page,
    )


def _expected(fact: Fact, rng: random.Random) -> tuple[str, str, str, tuple[str, ...]]:
    """Answer text, verifier, its ground truth, near misses."""
    if _PLAIN_NUMBER.fullmatch(fact.answer):
        value = float(fact.answer)
        unit = "bit" if fact.task == "fact_port_width" else fact.unit
        # A unit such as 1/V would read as a second number.
        spelled = unit and unit != "bit" and not any(char.isdigit() for char in unit)
        text = f"{fact.answer} {unit}" if spelled else fact.answer
        return text, "numeric", truth.numeric(value, unit), near_misses(value, rng)
    text = f"{fact.answer} {fact.unit}" if fact.unit else fact.answer
    wrong = (text[:-1] + ("x" if text[-1] not in "xX" else "y"), fact.subject)
    return text, "exact", truth.exact(text), wrong


def _statement(fact: Fact) -> Draft:
    answer = f"{fact.answer} {fact.unit}" if fact.unit and fact.unit != "bits" else fact.answer
    text = STATEMENTS[fact.task].format(
        owner=fact.owner, subject=fact.subject, predicate=fact.predicate, answer=answer
    )
    return Draft(
        setting=CPT,
        task="fact_statement",
        prompt="",
        answer=text,
        fact_id=fact.fact_id,
        element_ids=fact.element_ids,
        entity_ids=fact.entity_ids,
        table_id=fact.table_id,
        page=fact.page,
    )
