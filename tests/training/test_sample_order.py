from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from training.trainers.sample_order import PASS_SHARE, plan_steps, split_by_tokens


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=80),
    step=st.sampled_from([1, 3, 8, 16]),
    passes=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_every_row_is_trained_in_every_pass(
    lengths: list[int], step: int, passes: int, seed: int
) -> None:
    plan = plan_steps(lengths, rows_per_step=step, epochs=passes, token_budget=0, seed=seed)
    counts = Counter(plan.order)
    assert len(plan.order) == plan.steps * step
    assert len(plan.order) - passes * len(lengths) < step, "at most the last step is filled up"
    assert set(counts) == set(range(len(lengths)))
    # Filling the last step may start further passes when the rows are fewer than a step holds.
    most = -(-len(plan.order) // len(lengths))
    assert all(passes <= count <= most for count in counts.values())


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=80),
    budget=st.integers(1, 20_000),
    seed=st.integers(0, 99),
)
def test_the_budget_bounds_the_tokens(lengths: list[int], budget: int, seed: int) -> None:
    plan = plan_steps(lengths, rows_per_step=4, epochs=3, token_budget=budget, seed=seed)
    tokens = sum(lengths[row] for row in plan.order)
    assert plan.steps >= 1
    assert tokens <= budget or plan.steps == 1


def test_the_order_is_the_same_again_and_another_with_another_seed() -> None:
    lengths = [(7 * n) % 50 + 1 for n in range(60)]

    def order(seed: int) -> list[int]:
        return plan_steps(lengths, rows_per_step=8, epochs=2, token_budget=0, seed=seed).order

    assert order(1) == order(1)
    assert order(1) != order(2)


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    limit=st.integers(1, 2000),
    at_least=st.integers(1, 60),
)
def test_a_split_keeps_every_row_and_the_bound(
    lengths: list[int], limit: int, at_least: int
) -> None:
    groups = split_by_tokens(lengths, limit, at_least)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    assert len(groups) >= min(at_least, len(lengths))
    for group in groups:
        padded = len(group) * max(lengths[row] for row in group)
        assert padded <= limit or len(group) == 1


def test_a_split_wastes_little_on_padding() -> None:
    lengths = [(37 * n) % 400 + 1 for n in range(64)]
    groups = split_by_tokens(lengths, 2048)
    padded = sum(len(group) * max(lengths[row] for row in group) for group in groups)
    assert padded < 1.2 * sum(lengths)
    assert len(lengths) * max(lengths) > 1.9 * sum(lengths), "one batch would nearly double it"


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=9),
    limit=st.integers(1, 300),
)
def test_no_other_split_costs_less(lengths: list[int], limit: int) -> None:
    """Against every way to cut the sorted rows: padded tokens, and a part of the limit a pass."""

    def cost(groups: list[list[int]]) -> int:
        return sum(len(g) * max(g) for g in groups) + len(groups) * (limit // PASS_SHARE)

    ordered = sorted(lengths)
    allowed = []
    for cuts in product((False, True), repeat=len(ordered) - 1):
        groups = [[ordered[0]]]
        for cut, length in zip(cuts, ordered[1:], strict=True):
            if cut:
                groups.append([length])
            else:
                groups[-1].append(length)
        if all(len(g) == 1 or len(g) * max(g) <= limit for g in groups):
            allowed.append(groups)
    found = [[lengths[row] for row in group] for group in split_by_tokens(lengths, limit)]
    assert cost(found) == min(map(cost, allowed))
