"""Generators: what a row asks can be found again in its prompt, by another way of reading it."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest

from corpus.tokenizers import count_tokens
from evaluation.verifiers import verify
from training.data.documents import (
    Chunk,
    Column,
    Document,
    Instance,
    Module,
    Parameter,
    Port,
    Table,
)
from training.data.generators import cloze, rtl_completion, rtl_structure, tables
from training.data.generators.generator import Limits
from training.data.generators.rtl_spans import mutants, spans
from training.data.legible import legible
from training.data.rows import Draft, Reject

LIMITS = Limits()


def empty_document(**parts: object) -> Document:
    blank = Document("d" * 64, "d", "MIT", "train", "g", (), (), ())
    return replace(blank, **parts)  # type: ignore[arg-type]


def supply_table(**changes: object) -> Table:
    columns = (
        Column("Pin", "text", "", ("VDD", "VDDA", "VREF", "VBAT", "VIO", "VPP")),
        Column("Min", "number", "V", (1.1, 2.7, 1.9, 1.5, 1.62, 7.0)),
        Column("Max", "number", "V", (1.3, 3.6, 2.1, 3.7, 3.61, 9.0)),
        Column("Use", "text", "", ("core", "analog", "reference", "backup", "pads", "fuses")),
    )
    return Table("ab" * 16, "e", 3, str(changes.get("caption", "")), columns)


def drafts_of_tables(table: Table, tries: int = 40) -> list[Draft]:
    document = empty_document(tables=(table,))
    return [
        draft
        for _, context in tables.contexts(document, LIMITS)
        if isinstance(context, tables.TableContext)
        for seed in range(tries)
        if isinstance(draft := tables.generate(context, random.Random(seed)), Draft)
    ]


def read_markdown(prompt: str) -> tuple[list[str], list[list[str]]]:
    lines = [line for line in prompt.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[0], cells[2:]


def test_table_answers_follow_from_the_table_that_is_shown() -> None:
    drafts = drafts_of_tables(supply_table())
    assert {draft.task for draft in drafts} == set(tables.FORMS)
    for draft in drafts:
        head, body = read_markdown(draft.prompt)
        question = draft.prompt.splitlines()[-1]
        named = [row for row in body if re.search(rf"\b{row[0]}\b", question)]
        asked = [i for i, name in enumerate(head) if re.search(rf"\b{name.split()[0]}\b", question)]
        column = max(asked)  # the key's name may stand in the question too
        numbers = {row[0]: row[column] for row in body}
        match draft.task:
            case "table_lookup":
                assert draft.answer == named[0][column]
            case "table_argmax":
                assert draft.answer == max(numbers, key=lambda key: float(numbers[key]))
            case "table_argmin":
                assert draft.answer == min(numbers, key=lambda key: float(numbers[key]))
            case "table_compare":
                assert draft.answer == max(named, key=lambda row: float(row[column]))[0]
            case "table_sum":
                total = sum(float(row[column]) for row in named)
                assert float(draft.answer) == pytest.approx(total)
            case "table_difference":
                left, right = (float(row[column]) for row in named)
                assert float(draft.answer) == pytest.approx(abs(left - right))
            case "table_count" | "table_filter":
                bound = float(re.findall(r"[\d.]+\d|\d", question)[-1])
                above = {key for key, value in numbers.items() if float(value) > bound}
                if draft.task == "table_count":
                    assert int(draft.answer) == len(above)
                else:
                    assert set(draft.answer.split(", ")) == above


def test_table_prompts_fit_and_verify() -> None:
    for draft in drafts_of_tables(supply_table(), tries=5):
        assert count_tokens(draft.prompt) <= LIMITS.max_prompt_tokens
        assert verify(draft.verifier, draft.truth, draft.answer).passed
        assert draft.wrong
        assert not any(verify(draft.verifier, draft.truth, wrong).passed for wrong in draft.wrong)
        assert draft.rationale.startswith("SELECT")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([Column("A", "text", "", ("x", "x", "y")), Column("B", "number", "", (1.0, 2.0, 3.0))],
         "no_key_column"),
        ([Column("A", "text", "", ("x", "y", "z"))], "no_value_column"),
        ([Column("", "text", "", ("x", "y", "z")), Column("B", "number", "", (1.0, 2.0, 3.0))],
         "no_key_column"),
        ([Column("A", "text", "", ("x", "y", "z")), Column("Bee", "number", "", (1.0, None, None))],
         "no_value_column"),
        ([Column("A", "text", "", ("x", "y", "z")), Column("Bee", "number", "", (5.0, 5.0, 5.0))],
         "tie"),
    ],
)  # fmt: skip
def test_tables_that_leave_doubt_are_refused(columns: list[Column], reason: str) -> None:
    table = Table("cd" * 16, "e", 1, "", tuple(columns))
    found = [
        context if isinstance(context, Reject) else tables.generate(context, random.Random(1))
        for _, context in tables.contexts(empty_document(tables=(table,)), LIMITS)
    ]
    assert Reject(reason) in found
    assert len(found) == 1 or reason == "tie"


def test_rows_of_unlike_units_are_not_compared() -> None:
    columns = (
        Column("Rule", "text", "", ("w.1", "w.2", "w.3", "w.4", "a.1", "a.2")),
        Column("Limit", "number", "", (0.38, 0.4, 0.18, 0.6, 99.0, 77.0)),
        Column("Unit", "text", "", ("um", "um", "um", "um", "um2", "um2")),
    )
    drafts = drafts_of_tables(Table("ab" * 16, "e", 1, "", columns), tries=10)
    assert len(drafts) > 20
    assert not any("a.1" in draft.prompt or "a.2" in draft.prompt for draft in drafts)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("DFN-8", True), ("Direction", True), ("2,500 pieces", True), ("Class A amplifier", True),
        ("1 or 2", True), ("characterisation", True), ("S ifi ti", False), ("DFN 8 -", False),
        ("2500 ,", False), ("usequadraticinterpolation", False), ("sg13g2 dlhq 1 _ _", False),
    ],
)  # fmt: skip
def test_legible(text: str, reads: bool) -> None:
    assert legible(text) == reads


PASSAGE = (
    "The regulator needs 5 cycles before IRQ_N is released. Figure 7 shows the start-up. "
    "After that the PLL locks within 250 us and CLK_OUT toggles at 48 MHz without jitter. "
    "The UART then waits for 16 bits on RX_DATA and stores each word in the FIFO at once. "
    "See section 2.4 and revision 1.2.3 for details of the older silicon."
)


def cloze_drafts(text: str, task: str) -> list[Draft]:
    chunk = Chunk("c" * 32, "text", text, 1, ("e",), ())
    context = cloze.ClozeContext(chunk, task, 200)
    made = [cloze.generate(context, random.Random(seed)) for seed in range(60)]
    return [draft for draft in made if isinstance(draft, Draft)]


def test_cloze_asks_for_what_stands_once() -> None:
    answers = set()
    for task in cloze.FORMS:
        for draft in cloze_drafts(PASSAGE, task):
            passage, question = draft.prompt.split("\n\n")
            assert len(re.findall(rf"(?<!\w){draft.answer}(?!\w)", passage)) == 1
            assert "____" in question
            assert not re.search(rf"(?<!\w){draft.answer}(?!\w)", question)
            assert verify(draft.verifier, draft.truth, draft.answer).passed
            answers.add(draft.answer)
    assert {"5", "250", "48", "16", "IRQ_N", "CLK_OUT", "RX_DATA"} <= answers
    # Numbers of figures, sections and versions are no facts.
    assert not {"7", "2.4", "1.2", "1.2.3", "2"} & answers


def test_cloze_reads_thousands_as_one_number() -> None:
    text = "Orders above 1,200 pieces have a lead time of 8 weeks at most in the warehouse."
    drafts = cloze_drafts(text, "cloze_number")
    assert {draft.answer for draft in drafts} == {"1,200", "8"}
    assert all(verify("numeric", d.truth, d.answer.replace(",", "")).passed for d in drafts)


@pytest.mark.parametrize(
    "text",
    [
        "v1or 1 0 {1 || 0} v1and 2 0 {1 && 0} v1not 3 0 {! 1} .end of the list of 44 things.",
        "RLOAD 2 10 10K RMOD 3 7 RMODEL L 10 W 1 R1 4 5 6 7 8 and so on.",
        "Introduction to the 16 registers and their 32 bits in the 48 pin package",
    ],
)
def test_cloze_asks_nothing_of_listings_and_headings(text: str) -> None:
    assert not cloze_drafts(text, "cloze_number")
    assert not cloze_drafts(text, "cloze_name")


def test_cloze_does_not_ask_for_the_number_of_a_list_item() -> None:
    text = "- 7. The nominal supply is measured over 12 hours at a rate of 99 samples."
    assert {draft.answer for draft in cloze_drafts(text, "cloze_number")} == {"12", "99"}


def test_cloze_refuses_repeated_answers_and_only_candidates() -> None:
    repeated = "The bus has 32 wires for data in it. The bus has 32 wires for addresses in it too."
    alone = "The bus of this small core has exactly 32 wires for data and addresses."
    assert not cloze_drafts(repeated, "cloze_number")
    assert not cloze_drafts(alone, "cloze_number")


COUNTER = """// a counter
module counter #(parameter STEP = 3) (
  input clk,
  input rst, // active high
  input [3:0] load,
  output reg [7:0] count,
  output wrap
);
  assign wrap = (count > 8'h7f) & ~rst;
  always @(posedge clk)
    if (rst) count <= 0;
    else count <= count + STEP + load;
endmodule
"""


def counter_module() -> Module:
    ports = (
        Port("clk", "input", 1, ""), Port("rst", "input", 1, ""), Port("load", "input", 4, "[3:0]"),
        Port("count", "output", 8, "reg [7:0]"), Port("wrap", "output", 1, ""),
    )  # fmt: skip
    parameters = (Parameter("STEP", "3", False),)
    return Module(
        "ef" * 16, "e", "d" * 64, "counter", ports, parameters,
        (Instance("sub", "u0"),), COUNTER, 1,
    )  # fmt: skip


def test_structure_questions_on_a_counter() -> None:
    document = empty_document(modules=(counter_module(),))
    answers: dict[str, set[str]] = {}
    for _, context in rtl_structure.contexts(document, LIMITS):
        for seed in range(10):
            draft = rtl_structure.generate(context, random.Random(seed))
            if isinstance(draft, Draft):
                answers.setdefault(draft.task, set()).add(draft.answer)
                assert "active high" not in draft.prompt
                assert verify(draft.verifier, draft.truth, draft.answer).passed
    assert answers == {
        "rtl_port_width": {"4", "8"},
        "rtl_parameter": {"3"},
        "rtl_inputs": {"clk, rst, load"},
        "rtl_outputs": {"count, wrap"},
    }  # the instance is not in the source that is shown, so it is not asked for


def test_spans_are_the_expressions_of_the_body() -> None:
    found = {COUNTER[span.start : span.end] for span in spans(COUNTER, COUNTER.index(");") + 2)}
    assert found == {"(count > 8'h7f) & ~rst", "count + STEP + load"}


def test_mutants_differ_by_one_slip() -> None:
    assert "(count < 8'h7f) & ~rst" in mutants("(count > 8'h7f) & ~rst")
    assert "(count > 8'h7f) | ~rst" in mutants("(count > 8'h7f) & ~rst")
    assert "s ? b : a".replace(" ", "") in {m.replace(" ", "") for m in mutants("s ? a : b")}
    for piece in ("a && b", "x <<< 2", "{2'b01, q[3:1]}", "a"):
        assert piece not in mutants(piece)
        assert all(text.strip() for text in mutants(piece))


def test_completion_is_judged_by_simulation() -> None:
    document = empty_document(modules=(counter_module(),))
    made = [
        rtl_completion.generate(context, random.Random(1))
        for _, context in rtl_completion.contexts(document, LIMITS)
        if isinstance(context, rtl_completion.CompletionContext)
    ]
    drafts = {draft.answer: draft for draft in made if isinstance(draft, Draft)}
    assert set(drafts) == {"(count > 8'h7f) & ~rst", "count + STEP + load"}
    draft = drafts["count + STEP + load"]
    assert "count <= ____;" in draft.prompt
    right = ["count + STEP + load", "load + (count + STEP)", "count + load + 8'd3"]
    wrong = ["count + STEP", "count - STEP + load", "0", "", "count + STEP + load; assign x = "]
    assert all(verify(draft.verifier, draft.truth, answer).passed for answer in right)
    assert not any(verify(draft.verifier, draft.truth, answer).passed for answer in wrong)


def test_training_modules_are_sampled_and_held_out_ones_are_not() -> None:
    modules = tuple(replace(counter_module(), module_id=f"{index:032x}") for index in range(400))
    limits = LIMITS._replace(rtl_share=0.25)
    kept = {}
    for split in ("train", "test"):
        document = empty_document(modules=modules, split=split)
        found = [context for _, context in rtl_completion.contexts(document, limits)]
        kept[split] = 400 - found.count(Reject("not_sampled"))
    assert 60 < kept["train"] < 140
    assert kept["test"] == 400


def test_completion_refuses_what_simulation_cannot_tell() -> None:
    source = "module counter(input a, output y);\n  assign y = a & ~a;\nendmodule\n"
    document = empty_document(modules=(replace(counter_module(), source=source),))
    ((_, context),) = rtl_completion.contexts(document, LIMITS)
    assert isinstance(context, rtl_completion.CompletionContext)
    assert rtl_completion.generate(context, random.Random(1)) == Reject("outputs_constant")


def test_modules_that_cannot_be_asked_are_refused_once() -> None:
    long = replace(counter_module(), source=COUNTER.replace("endmodule", "\n  //\n;" * 99))
    bare = replace(counter_module(), source="module counter(input a, output y);\nendmodule\n")
    document = empty_document(modules=(long, bare))
    found = [context for _, context in rtl_completion.contexts(document, LIMITS)]
    assert found == [Reject("module_too_long"), Reject("no_span")]


def test_ground_truths_are_json_objects() -> None:
    for draft in drafts_of_tables(supply_table(), tries=2):
        assert isinstance(json.loads(draft.truth), dict)
