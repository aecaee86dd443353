"""Multiple-choice questions over tables: one right option, of four of a kind, in a fixed order."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.problems import read_problem_sets
from evaluation.verifiers import verify
from training.data import build, checks
from training.data.documents import Column, Document, Table
from training.data.generators import table_choice
from training.data.generators.generator import Limits
from training.data.rows import Draft, Reject
from workspace import stage
from workspace.paths import Workspace
from workspace.shards import iterate_rows

ON = Limits(max_prompt_tokens=400, choice_rows=2)
PINS = ("VDD", "VDDA", "VREF", "VBAT", "VIO", "VPP")
NUMBERS = Column("Max", "number", "V", (1.3, 3.6, 2.1, 3.7, 3.61, 9.0))
WORDS = Column("Use", "text", "", ("core", "analog", "reference", "backup", "pads", "fuses"))


def document(*columns: Column) -> Document:
    table = Table("ab" * 16, "e", 3, "", (Column("Pin", "text", "", PINS), *columns))
    return Document("d" * 64, "d", "MIT", "train", "g", (table,), (), ())


def made(*columns: Column, tries: int = 60) -> list[Draft | Reject]:
    return [
        table_choice.generate(context, random.Random(seed))
        for _, context in table_choice.contexts(document(*columns), ON)
        if not isinstance(context, Reject)
        for seed in range(tries)
    ]


def drafts(*columns: Column) -> list[Draft]:
    return [draft for draft in made(*columns) if isinstance(draft, Draft)]


def options_of(draft: Draft) -> dict[str, str]:
    return dict(re.findall(r"^([A-D])\. (.+)$", draft.prompt, re.MULTILINE))


def cells_of(draft: Draft) -> tuple[list[str], list[list[str]]]:
    lines = [line for line in draft.prompt.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[0], cells[2:]


def test_the_right_option_is_the_cell_and_the_others_are_of_its_column() -> None:
    found = drafts(NUMBERS, WORDS)
    assert len(found) > 50
    for draft in found:
        head, body = cells_of(draft)
        question = next(line for line in draft.prompt.splitlines() if "Answer with" in line)
        [row] = [row for row in body if re.search(rf"\b{row[0]}\b", question)]
        [column] = [
            i for i, n in enumerate(head) if i and re.search(rf"\b{n.split()[0]}\b", question)
        ]
        unit = " V" if head[column] == "Max (V)" else ""
        options = options_of(draft)
        assert options[draft.answer] == row[column] + unit
        assert len(set(options.values())) == 4
        assert set(options.values()) <= {cells[column] + unit for cells in body}


def test_exactly_one_letter_and_one_text_pass() -> None:
    for draft in drafts(NUMBERS, WORDS):
        assert checks.refuse(draft) == ""
        options = options_of(draft)
        for said in (options, options.values()):
            right = [text for text in said if verify("choice", draft.truth, text).passed]
            assert right in ([draft.answer], [options[draft.answer]])
        assert json.loads(draft.truth)["choices"] == list(options.values())
        assert sorted([draft.answer, *draft.wrong]) == list("ABCD")


def test_the_order_follows_from_the_content_and_favours_no_letter() -> None:
    """The same question with the same options has the same letters, however they were drawn."""
    orders: dict[tuple[str, frozenset[str]], set[tuple[str, ...]]] = {}
    for draft in drafts(WORDS, NUMBERS):
        options = options_of(draft)
        asked = draft.prompt.partition("\n\nA. ")[0]
        key = (asked, frozenset(options.values()))
        orders.setdefault(key, set()).add(tuple(options.values()))
    assert all(len(found) == 1 for found in orders.values())
    letters = Counter(draft.answer for draft in drafts(WORDS, NUMBERS))
    assert min(letters.values()) > sum(letters.values()) / 8
    assert made(WORDS, NUMBERS) == made(WORDS, NUMBERS)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("on", "off", "on", "off", "on", "off"), "too_few_choices"),
        (("on", "ON", "off", "Off", "auto", "auto."), "too_few_choices"),
        # One in the other, so that both could be meant.
        (("bus", "bus a", "bus ab", "bus abc", "bus abcd", "bus abcde"), "too_few_choices"),
        (("1 kHz", "1000 Hz", "0.001 MHz", "1e3 Hz", "1.0 kHz", "1000.0 Hz"), "too_few_choices"),
        (("A", "B", "C", "D", "E", "F"), "option_is_a_letter"),
    ],
)
def test_options_that_leave_doubt_are_refused(values: tuple[str, ...], reason: str) -> None:
    found = made(Column("Use", "text", "", values))
    assert {draft.reason if isinstance(draft, Reject) else "made" for draft in found} == {reason}


def test_the_same_quantity_in_two_spellings_is_never_two_options() -> None:
    values = ("1 kHz", "1000 Hz", "2 kHz", "3 kHz", "4 kHz", "4000 Hz")
    found = drafts(Column("Clock", "text", "", values))
    assert found
    for draft in found:
        options = set(options_of(draft).values())
        assert not {"1 kHz", "1000 Hz"} <= options
        assert not {"4 kHz", "4000 Hz"} <= options


def test_none_are_proposed_unless_asked_for() -> None:
    assert not list(table_choice.contexts(document(NUMBERS), Limits()))
    assert not list(table_choice.contexts(document(), Limits()))
    assert build.DatasetConfig(workspace=Path("w")).limits(1).choice_rows == 0


def test_a_data_set_with_choices_can_be_asked_by_likelihood(
    tmp_path: Path, corpus_tables: Callable[[], Any], write_workspace: Callable[[Path, Any], Path]
) -> None:
    root = write_workspace(tmp_path, corpus_tables())
    config = build.DatasetConfig(
        workspace=root, workers=1, choice_rows=4, max_prompt_tokens=400, name="with_choices"
    )
    stage.run(config, build.plan, build.process, build.publish)
    rows = list(iterate_rows(Workspace(root).dataset("with_choices"), "rows"))
    choices = [row for row in rows if row["verifier"] == "choice"]
    assert {"train", "test"} <= {row["split"] for row in choices}
    assert all(verify("choice", row["ground_truth"], row["answer"]).passed for row in choices)
    found = read_problem_sets(
        Workspace(root), "with_choices", ("open_book",), limit=None, seed=0, choosing="likelihood"
    )
    names = {problems.benchmark.name: problems for problems in found.sets}
    apart = names["domain_qa_open_book_likelihood"]
    assert len(apart.rows) == sum(row["kind"] == "test" for row in choices) > 0
    assert apart.requests(1) == 4 * len(apart.rows)
