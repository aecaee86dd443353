"""Estimates against enumeration, scipy and simulation."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.statistics import (
    mcnemar,
    mean_interval,
    paired_difference,
    pass_at_k,
    sign_flip_p_value,
)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_draws(passed: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(passed)))
    draws = [any(draw) for draw in itertools.combinations(passed, k)]
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(statistics.mean(draws))


@given(st.integers(1, 200), st.data())
def test_pass_at_k_is_the_product_form_of_its_paper(samples: int, data: st.DataObject) -> None:
    """Chen et al. 2021 (arXiv 2107.03374), figure 3: 1 - prod(1 - k / i), i from n - c + 1 to n."""
    correct = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    product = 1.0
    if samples - correct >= k:
        product = 1 - np.prod(1 - k / np.arange(samples - correct + 1, samples + 1))
    assert pass_at_k(samples, correct, k) == pytest.approx(float(product), abs=1e-9)


def test_pass_at_k_refuses_more_draws_than_samples() -> None:
    with pytest.raises(ValueError, match="pass@5"):
        pass_at_k(4, 2, 5)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=30))
def test_an_interval_holds_the_mean_and_ignores_the_order(rows: list[tuple[float, int]]) -> None:
    values, clusters = [v for v, _ in rows], [str(c) for _, c in rows]
    found = mean_interval(values, clusters, seed=3)
    assert found.value == pytest.approx(statistics.mean(values))
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    backwards = mean_interval(values[::-1], clusters[::-1], seed=3)
    assert backwards == pytest.approx(found)


def test_repeats_of_a_problem_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(0)
    problems = rng.integers(0, 2, 60).astype(float)
    names = [str(i) for i in range(60)]
    once = mean_interval(list(problems), names)
    five_times = mean_interval(list(np.repeat(problems, 5)), [n for n in names for _ in range(5)])
    assert five_times.high - five_times.low == pytest.approx(once.high - once.low, rel=0.05)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        values = (rng.random(50) < 0.4).astype(float)
        found = mean_interval(list(values), [str(i) for i in range(50)], seed=trial)
        hits += found.low <= 0.4 <= found.high
    assert 0.89 <= hits / 200 <= 0.99


def test_nothing_right_is_not_certainty() -> None:
    """Clopper-Pearson for 0 of 50, from published tables: 7.1 %."""
    found = mean_interval([0.0] * 50, [str(i) for i in range(50)])
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.0711, abs=1e-4)
    all_right = mean_interval([1.0] * 50, [str(i) for i in range(50)])
    assert all_right.low == pytest.approx(1 - 0.0711, abs=1e-4)


def test_one_cluster_is_no_certainty() -> None:
    """Two phrasings of one fact, one right: nothing is known about other facts."""
    assert mean_interval([1.0, 0.0], ["f", "f"]) == (0.5, 0.0, 1.0)
    assert paired_difference([0.0, 0.0], [1.0, 0.0], ["f", "f"]) == (0.5, -1.0, 1.0)


def test_pairing_sees_what_separate_intervals_cannot() -> None:
    rng = np.random.default_rng(2)
    difficulty = rng.random(200)
    base = (difficulty < 0.5).astype(float)
    tuned = (difficulty < 0.6).astype(float)
    names = [str(i) for i in range(200)]
    gain = paired_difference(list(base), list(tuned), names)
    assert gain.low > 0
    assert mean_interval(list(base), names).high > mean_interval(list(tuned), names).low
    assert paired_difference(list(tuned), list(base), names).value == pytest.approx(-gain.value)


def test_two_equal_models_differ_by_nothing() -> None:
    found = paired_difference([0.0, 1.0] * 10, [0.0, 1.0] * 10, [str(i) for i in range(20)])
    assert found.value == 0
    assert found.low < 0 < found.high


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_two_sided_sign_test(pairs: list[tuple[bool, bool]]) -> None:
    import math

    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    b = sum(x and not y for x, y in pairs)
    c = sum(y and not x for x, y in pairs)
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (b, c)
    tail = sum(math.comb(b + c, i) for i in range(min(b, c) + 1)) / 2 ** (b + c)
    assert found.p_value == pytest.approx(min(1.0, 2 * tail))
    flips = sign_flip_p_value(
        [float(x) for x in first], [float(x) for x in second], [str(i) for i in range(len(pairs))]
    )
    assert flips == pytest.approx(found.p_value, abs=0.02)


def test_unpaired_values_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        paired_difference([1.0], [1.0, 0.0], ["a", "b"])
    with pytest.raises(ValueError, match="0 values"):
        mean_interval([], [])
