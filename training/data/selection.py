"""From all rows that were made to the rows that are published: duplicates out, budgets kept.

In: candidate rows of every split; out: the chosen rows, sorted by id, with their final `kind`.
Sampling is balanced: tasks take turns, and within a task documents take turns, so that neither a
prolific generator nor a long manual fills the set. The order comes from a seeded hash of ids.

Budgets are spent in this order: facts (all rows of a chosen fact together), then open-book and
skill rows. A fixed share of the latter is set apart for reinforcement learning, so that its
prompts are new to a model that was fine-tuned on the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training.data.duplicates import drop_near_duplicates
from training.data.rows import CLOSED_BOOK, CPT, OPEN_BOOK, SKILL, Tally, question_of
from training.data.splits import TEST, TRAIN, VALIDATION
from workspace.ids import derive_id
from workspace.shards import Row


@dataclass(frozen=True)
class Budget:
    """Limits of the published set; 0 tokens means no limit."""

    seed: int = 0
    max_train_tokens: int = 0
    row_overhead_tokens: int = 0  # of the chat template
    max_cpt_tokens: int = 0
    max_rows_per_task: int = 2000
    closed_book_facts: int = 150
    max_answer_share: float = 0.25
    open_book_test_rows: int = 150
    skill_test_rows: int = 30
    validation_rows: int = 60
    rlvr_fraction: float = 0.25
    max_rlvr_rows: int = 500


def select(candidates: Iterable[Row], budget: Budget, tally: Tally) -> list[Row]:
    """The published rows, sorted by row_id; what is left out goes to `tally`."""
    rows = drop_near_duplicates(candidates, tally)
    of_facts = [row for row in rows if row["fact_id"]]
    texts = [row for row in rows if row["setting"] == CPT and not row["fact_id"]]
    asked = [row for row in rows if row["setting"] in (OPEN_BOOK, SKILL)]
    facts = _select_facts(of_facts, budget, tally)
    spent = sum(_cost(row, budget) for row in facts if row["kind"] == "sft")
    chosen = [
        *facts,
        *_select_texts(texts, budget, tally),
        *_select_held_out(asked, budget, tally),
        *_select_training(asked, budget, spent, tally),
    ]
    return sorted(chosen, key=lambda row: str(row["row_id"]))


def _select_facts(rows: list[Row], budget: Budget, tally: Tally) -> list[Row]:
    """All rows of up to `closed_book_facts` facts; no answer may dominate its task."""
    by_fact: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_fact[row["fact_id"]].append(row)
    tests = [row for row in rows if row["setting"] == CLOSED_BOOK and row["split"] == TEST]
    plain = _without_namesakes(tests, tally)
    ordered = list(_in_turns(_vary_answers(plain, budget, tally), budget.seed))
    limit = budget.closed_book_facts
    tally.dropped("select:facts_full", max(0, len(ordered) - limit))
    return [row for test in ordered[:limit] for row in by_fact[test["fact_id"]]]


def _without_namesakes(tests: list[Row], tally: Tally) -> list[Row]:
    """Facts whose question no other fact shares (`Mode` and `mode` of two documents)."""
    asked = Counter(question_of(row).casefold() for row in tests)
    kept = [row for row in tests if asked[question_of(row).casefold()] == 1]
    tally.dropped("select:shared_question", len(tests) - len(kept))
    return kept


def _vary_answers(rows: list[Row], budget: Budget, tally: Tally) -> list[Row]:
    """Rows of which no answer makes more than its share of a task, so that guessing is futile."""
    kept: list[Row] = []
    for task in sorted({row["task"] for row in rows}):
        of_task = [row for row in rows if row["task"] == task]
        counts = Counter(row["answer"].casefold() for row in of_task)
        cap = answer_cap(list(counts.values()), budget.max_answer_share)
        taken: Counter[str] = Counter()
        for row in _evenly(of_task, budget.seed):
            answer = row["answer"].casefold()
            if taken[answer] < cap:
                taken[answer] += 1
                kept.append(row)
            else:
                tally.dropped("select:answer_too_common")
    return kept


def answer_cap(counts: list[int], share: float) -> int:
    """The most rows that one answer may keep so that it is at most `share` of what is kept.

    1 when no cap does it: each answer once is as even as it gets.
    """
    for cap in range(max(counts, default=1), 1, -1):
        if cap <= share * sum(min(count, cap) for count in counts):
            return cap
    return 1


def _select_texts(rows: list[Row], budget: Budget, tally: Tally) -> Iterator[Row]:
    """Text of every split; validation and test get a fifth of the budget each."""
    for split in (TRAIN, VALIDATION, TEST):
        limit = budget.max_cpt_tokens if split == TRAIN else budget.max_cpt_tokens // 5
        used = 0
        for row in _in_turns([row for row in rows if row["split"] == split], budget.seed):
            if budget.max_cpt_tokens and used + row["tokens"] > limit:
                tally.dropped("select:cpt_budget")
            else:
                used += row["tokens"]
                yield row


def _select_held_out(rows: list[Row], budget: Budget, tally: Tally) -> Iterator[Row]:
    """Test rows by setting, validation rows of both settings together."""
    limits = (
        (TEST, (OPEN_BOOK,), budget.open_book_test_rows),
        (TEST, (SKILL,), budget.skill_test_rows),
        (VALIDATION, (OPEN_BOOK, SKILL), budget.validation_rows),
    )
    for split, settings, limit in limits:
        fit = [row for row in rows if row["split"] == split and row["setting"] in settings]
        ordered = list(_in_turns(_vary_answers(fit, budget, tally), budget.seed))
        tally.dropped(f"select:{split}_full", max(0, len(ordered) - limit))
        yield from ordered[:limit]


def _select_training(rows: list[Row], budget: Budget, spent: int, tally: Tally) -> Iterator[Row]:
    """Rows for fine-tuning within the token budget, and those set apart for rewards."""
    per_task: Counter[tuple[str, str]] = Counter()
    rewarded = 0
    training = [row for row in rows if row["split"] == TRAIN]
    for row in _in_turns(_vary_answers(training, budget, tally), budget.seed):
        kind = "rlvr" if _for_rewards(row, budget) else "sft"
        if kind == "rlvr" and rewarded >= budget.max_rlvr_rows:
            kind = "sft"
        if per_task[kind, row["task"]] >= budget.max_rows_per_task:
            tally.dropped("select:task_full")
        elif kind == "rlvr":
            rewarded += 1
            per_task[kind, row["task"]] += 1
            yield {**row, "kind": kind}
        elif budget.max_train_tokens and spent + _cost(row, budget) > budget.max_train_tokens:
            tally.dropped("select:token_budget")
        else:
            spent += _cost(row, budget)
            per_task[kind, row["task"]] += 1
            yield {**row, "kind": kind}


def _cost(row: Row, budget: Budget) -> int:
    return int(row["tokens"]) + budget.row_overhead_tokens


def _for_rewards(row: Row, budget: Budget) -> bool:
    place = int(derive_id("rlvr", budget.seed, row["row_id"])[:8], 16) / 0x1_0000_0000
    return place < budget.rlvr_fraction


def _in_turns(rows: list[Row], seed: int) -> Iterator[Row]:
    """Tasks take turns; within a task answers do, and documents among equal turns of answers."""
    queues = {
        task: _evenly([row for row in rows if row["task"] == task], seed)
        for task in sorted({row["task"] for row in rows})
    }
    for turn in range(max(map(len, queues.values()), default=0)):
        for queue in queues.values():
            if turn < len(queue):
                yield queue[turn]


def _evenly(rows: list[Row], seed: int) -> list[Row]:
    """An order of which every beginning has answers and documents as evenly as they come."""
    shuffled = sorted(rows, key=lambda row: derive_id("order", seed, row["row_id"]))
    answers: Counter[str] = Counter()
    documents: Counter[tuple[int, str]] = Counter()
    places: list[tuple[int, int, int]] = []
    for index, row in enumerate(shuffled):
        answer = row["answer"].casefold()
        document = (answers[answer], row["doc_ids"][0])
        places.append((answers[answer], documents[document], index))
        answers[answer] += 1
        documents[document] += 1
    return [shuffled[index] for _, _, index in sorted(places)]
