"""Selection: budgets hold, tasks and documents take turns, answers vary in any order of rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from training.data.rows import Draft, Provenance, Tally, to_row
from training.data.selection import Budget, answer_cap, select

Row = dict[str, Any]


def make(index: int, split: str, task: str = "cloze_name", doc: str = "d", **changes: Any) -> Row:
    rng = random.Random(f"{index}{split}{task}{doc}")
    text = " ".join(f"w{rng.randrange(9999)}" for _ in range(30))
    draft = Draft(
        setting=changes.pop("setting", "open_book"),
        task=task,
        prompt=changes.pop("prompt", text),
        answer=changes.pop("answer", f"answer{index}"),
        verifier="exact",
        chunk_ids=(f"{doc}-{index}",),
        **changes,
    )
    return to_row(draft, Provenance((doc,), "", split, "g", "test", "1", 0))


def chosen(rows: list[Row], tally: Tally | None = None, **budget: Any) -> list[Row]:
    return select(rows, Budget(**budget), tally or Tally())


def test_tasks_and_documents_take_turns() -> None:
    rows = [make(i, "train", "common", f"d{i % 2}") for i in range(200)]
    rows += [make(i, "train", "rare", "d9") for i in range(5)]
    rows += [make(i, "train", "common", "small") for i in range(900, 903)]
    tokens = rows[0]["tokens"]
    picked = chosen(rows, max_train_tokens=30 * tokens, rlvr_fraction=0.0)
    assert sum(row["tokens"] for row in picked) <= 30 * tokens
    assert Counter(row["task"] for row in picked)["rare"] == 5
    assert sum(row["doc_ids"] == ["small"] for row in picked) == 3


def test_rewards_get_their_share_and_no_row_twice() -> None:
    rows = [make(i, "train", doc=f"d{i}") for i in range(400)]
    picked = chosen(rows, rlvr_fraction=0.25, max_rlvr_rows=60)
    kinds = Counter(row["kind"] for row in picked)
    assert kinds["rlvr"] == 60
    assert kinds["sft"] == 340
    assert len({row["row_id"] for row in picked}) == 400


def test_held_out_limits_are_per_setting() -> None:
    rows = [make(i, "test", doc=f"d{i}") for i in range(50)]
    rows += [make(i, "test", "rtl_completion", f"m{i}", setting="skill") for i in range(50)]
    rows += [make(i, "validation", doc=f"v{i}") for i in range(50)]
    picked = chosen(rows, open_book_test_rows=20, skill_test_rows=7, validation_rows=9)
    assert Counter((row["split"], row["setting"]) for row in picked) == {
        ("test", "open_book"): 20,
        ("test", "skill"): 7,
        ("validation", "open_book"): 9,
    }
    assert {row["kind"] for row in picked if row["split"] == "test"} == {"test"}


def test_every_row_is_kept_or_counted() -> None:
    rows = [make(i % 90, "train" if i % 3 else "test", doc=f"d{i % 90}") for i in range(180)]
    tally = Tally()
    picked = chosen(rows, tally, max_train_tokens=700, open_book_test_rows=5, max_rlvr_rows=3)
    assert len(picked) + sum(tally.rejects.values()) == len(rows)


def test_near_questions_go_but_numbers_count() -> None:
    words = "the core runs at {} MHz when the supply of the pads is stable and clock gating is off"
    long = " ".join(f"word{i}" for i in range(80))
    rows = [
        make(0, "train", prompt=f"{long} {words.format(48)} please", answer="x"),
        make(1, "train", prompt=f"{long} {words.format(48)} thanks", answer="x"),
        make(2, "train", prompt=f"{long} {words.format(52)} please", answer="x"),
    ]
    tally = Tally()
    picked = chosen([*rows, rows[0]], tally, rlvr_fraction=0.0, max_answer_share=1.0)
    assert len(picked) == 2
    assert tally.rejects == {"select:duplicate": 1, "select:near_duplicate": 1}


def test_what_nearly_equals_a_held_out_question_is_no_training_row() -> None:
    header = " ".join(f"input port{i}," for i in range(40))
    rows = [
        make(0, "train", doc="a", prompt=f"module top ({header}); How many? ", answer="40"),
        make(1, "test", doc="b", prompt=f"module top ({header}); How many?", answer="41"),
        make(2, "validation", doc="c", prompt=f"module top ({header}); How many", answer="42"),
        make(3, "train", doc="d"),
    ]
    tally = Tally()
    picked = chosen(rows, tally)
    assert Counter(row["split"] for row in picked) == {"test": 1, "train": 1}
    assert tally.rejects == {"select:held_out_question": 2}


def test_facts_come_whole_and_answers_vary() -> None:
    rows = []
    for fact in range(40):
        answer = "32" if fact < 30 else str(fact)
        for form in range(3):
            for_test = form == 2
            rows.append(
                make(fact * 3 + form, "train", "fact_port_width", f"d{fact}", answer=answer,
                     setting="closed_book", fact_id=f"f{fact}", form=str(form), for_test=for_test)
            )  # fmt: skip
    picked = chosen(rows, closed_book_facts=12)
    tests = [row for row in picked if row["split"] == "test"]
    assert len(tests) == 12
    assert len(picked) == 36
    assert Counter(row["answer"] for row in tests)["32"] <= 3


def test_facts_that_share_a_question_are_left_out() -> None:
    rows = [
        make(i, "train", "fact_table", f"d{i}", answer=str(i), setting="closed_book",
             fact_id=f"f{i}", for_test=True, prompt=prompt)
        for i, prompt in enumerate(["What is the Mode?", "What is the mode?", "What is the Rate?"])
    ]  # fmt: skip
    tally = Tally()
    assert [row["answer"] for row in chosen(rows, tally)] == ["2"]
    assert tally.rejects == {"select:shared_question": 2}


def test_answers_take_turns_within_the_limit() -> None:
    rows = [
        make(i, "test", doc=f"d{i % 3}", answer="32" if i < 80 else str(i % 10)) for i in range(120)
    ]
    picked = chosen(rows, open_book_test_rows=20)
    assert max(Counter(row["answer"] for row in picked).values()) <= 2


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.sampled_from([0.1, 0.25, 0.5]))
def test_answer_cap_keeps_the_share_where_it_can(counts: list[int], share: float) -> None:
    cap = answer_cap(counts, share)
    kept = [min(count, cap) for count in counts]
    assert cap == 1 or max(kept) <= share * sum(kept)
    wider = [min(count, cap + 1) for count in counts]
    if max(counts) > cap:
        assert max(wider) > share * sum(wider)


@given(st.randoms())
def test_selection_does_not_depend_on_order(rng: random.Random) -> None:
    rows = [make(i, "train" if i % 3 else "test", f"task{i % 4}", f"d{i % 7}") for i in range(60)]
    budget = {"max_train_tokens": 900, "open_book_test_rows": 8}
    expected = chosen(rows, **budget)
    rng.shuffle(rows)
    assert chosen(rows, **budget) == expected
