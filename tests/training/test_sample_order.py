from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from training.trainers.sample_order import plan_steps

sizes = st.sampled_from([(8, 8), (8, 4), (6, 3), (4, 1), (1, 1)])


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=80),
    size=sizes,
    passes=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_every_row_is_trained_in_every_pass(
    lengths: list[int], size: tuple[int, int], passes: int, seed: int
) -> None:
    step, forward = size
    plan = plan_steps(
        lengths, rows_per_step=step, rows_per_forward=forward, epochs=passes, token_budget=0,
        seed=seed,
    )  # fmt: skip
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
    plan = plan_steps(
        lengths, rows_per_step=4, rows_per_forward=2, epochs=3, token_budget=budget, seed=seed
    )
    tokens = sum(lengths[row] for row in plan.order)
    assert plan.steps >= 1
    assert tokens <= budget or plan.steps == 1


def test_the_order_is_the_same_again_and_another_with_another_seed() -> None:
    lengths = [(7 * n) % 50 + 1 for n in range(60)]

    def order(seed: int) -> list[int]:
        return plan_steps(
            lengths, rows_per_step=8, rows_per_forward=4, epochs=2, token_budget=0, seed=seed
        ).order

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_forward_passes_hold_rows_of_like_length() -> None:
    lengths = [(37 * n) % 400 + 1 for n in range(400)]
    plan = plan_steps(
        lengths, rows_per_step=16, rows_per_forward=8, epochs=1, token_budget=0, seed=0
    )

    def padded(order: list[int]) -> int:
        groups = [order[at : at + 8] for at in range(0, len(order), 8)]
        return sum(len(group) * max(lengths[row] for row in group) for group in groups)

    used = sum(lengths)
    assert padded(plan.order) < 1.1 * used
    assert padded(list(range(400))) > 1.5 * used, "rows in their given order waste much more"
