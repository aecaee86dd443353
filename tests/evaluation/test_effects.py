"""Ratios of two models against scipy, closed forms and simulation; what may be claimed of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, contingency

from evaluation.claims import Claim, claims, no_room_for_twice
from evaluation.effects import effects
from evaluation.power import Power, smallest_visible
from evaluation.statistics import (
    clustered_error,
    mcnemar,
    mean_interval,
    paired_difference,
    resampled_means,
    unseen,
)


def names(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def of(count: int, right: int) -> list[float]:
    return [1.0] * right + [0.0] * (count - right)


def claimed(base: list[float], tuned: list[float], *, ceiling: float) -> list[Claim]:
    clusters = names(len(base))
    return claims(effects(base, tuned, clusters), mean_interval(base, clusters), ceiling=ceiling)


def shuffled(values: list[float], seed: int) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).permutation(values)]


@given(st.integers(1, 39), st.integers(1, 39))
def test_the_ratios_are_those_of_scipy(before: int, after: int) -> None:
    found = effects(of(40, before), of(40, after), names(40))
    table = [[after, 40 - after], [before, 40 - before]]
    odds = contingency.odds_ratio(table, kind="sample").statistic
    risk = contingency.relative_risk(after, 40, before, 40).relative_risk
    assert found.odds_ratio is not None
    assert found.ratio is not None
    assert found.odds_ratio.value == pytest.approx(odds)
    assert found.ratio.value == pytest.approx(risk)


def test_intervals_of_unrelated_answers_are_those_of_independent_samples() -> None:
    """Where two models' answers have nothing to do with each other, pairing changes nothing."""
    count = 4000
    base, tuned = shuffled(of(count, 1400), 1), shuffled(of(count, 2100), 2)
    found = effects(base, tuned, names(count))
    katz = contingency.relative_risk(2100, count, 1400, count).confidence_interval()
    woolf = contingency.odds_ratio(
        [[2100, count - 2100], [1400, count - 1400]], kind="sample"
    ).confidence_interval()
    assert found.ratio is not None
    assert found.odds_ratio is not None
    assert (found.ratio.low, found.ratio.high) == pytest.approx((katz.low, katz.high), rel=0.02)
    assert (found.odds_ratio.low, found.odds_ratio.high) == pytest.approx(
        (woolf.low, woolf.high), rel=0.03
    )


def test_pairing_narrows_the_ratio() -> None:
    base = of(200, 80)
    found = effects(base, of(200, 100), names(200)).ratio
    unrelated = effects(base, shuffled(of(200, 100), 3), names(200)).ratio
    assert found is not None
    assert unrelated is not None
    assert None not in (found.low, found.high, unrelated.low, unrelated.high)
    assert found.high - found.low < unrelated.high - unrelated.low  # type: ignore[operator]


def test_published_figures_halve_and_double() -> None:
    """63 % to 77.3 % doubles the odds, 63 % to 81.5 % halves the errors (arithmetic)."""
    doubled = effects(of(1000, 630), of(1000, 773), names(1000)).odds_ratio
    halved = effects(of(1000, 630), of(1000, 815), names(1000)).error_reduction
    assert doubled is not None
    assert halved is not None
    assert doubled.value == pytest.approx(2.0, abs=0.001)
    assert halved.value == pytest.approx(0.5)


def test_the_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """30 % and 60 % right, the second model solving what the first does and half of the rest."""
    rng = np.random.default_rng(7)
    hits = {"ratio": 0, "odds_ratio": 0, "error_reduction": 0}
    truth = {"ratio": 2.0, "odds_ratio": 3.5, "error_reduction": 3 / 7}
    for trial in range(150):
        draw = rng.random(120)
        base, tuned = list((draw < 0.3).astype(float)), list((draw < 0.6).astype(float))
        found = effects(base, tuned, names(120), seed=trial)
        for name, true in truth.items():
            effect = getattr(found, name)
            hits[name] += effect.low <= true <= effect.high
    assert all(0.89 <= hit / 150 <= 0.99 for hit in hits.values()), hits


def test_what_does_not_exist_is_not_made_up() -> None:
    nothing = effects(of(20, 0), of(20, 9), names(20))
    assert nothing.ratio is None
    assert nothing.odds_ratio is None
    assert nothing.error_reduction is not None
    assert nothing.error_reduction.value == pytest.approx(0.45)
    everything = effects(of(20, 9), of(20, 20), names(20))
    assert everything.odds_ratio is None
    assert everything.error_reduction is not None
    assert everything.error_reduction.low is not None
    assert everything.error_reduction.low < 1.0, "20 of 20 is no proof of no errors"


def test_one_cluster_bounds_no_ratio() -> None:
    found = effects([1.0, 0.0], [1.0, 1.0], ["f", "f"]).ratio
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0, 0.0, None)


def test_no_difference_seen_is_not_a_ratio_of_exactly_one() -> None:
    found = effects(of(50, 25), of(50, 25), names(50)).ratio
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1 - unseen(50)
    assert found.high > 1 + unseen(50)


def test_few_right_answers_leave_the_ratio_without_an_upper_bound() -> None:
    found = effects(of(100, 2), of(100, 30), names(100)).ratio
    assert found is not None
    assert found.high is None
    assert found.low is not None
    assert found.low > 2


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 9)), min_size=1),
)
def test_bounds_surround_the_value(rows: list[tuple[float, float, int]]) -> None:
    clusters = [str(c) for _, _, c in rows]
    found = effects([a for a, _, _ in rows], [b for _, b, _ in rows], clusters)
    for effect in (found.ratio, found.odds_ratio, found.error_reduction):
        if effect is not None:
            assert math.isfinite(effect.value)
            assert effect.low is None or math.isfinite(effect.low)
            assert effect.high is None or math.isfinite(effect.high)


def test_twice_what_cannot_double_is_refused_with_the_arithmetic() -> None:
    base, tuned = of(156, 98), of(156, 140)
    twice, odds, errors = claimed(base, tuned, ceiling=0.981)
    assert twice.state == "refused"
    assert twice.reason == (
        "twice 62.8% is 125.6%, above the ceiling of 98.1%: at most 1.56 times is possible"
    )
    assert odds.state == "shown"
    assert errors.state == "shown"


@pytest.mark.parametrize(
    ("count", "before", "after", "ceiling", "state", "words"),
    [
        (100, 20, 80, 1.0, "shown", "ratio 4.00"),
        (100, 40, 44, 1.0, "refuted", "ratio 1.10"),
        (100, 20, 42, 1.0, "not shown", "ratio 2.10"),
        (100, 0, 60, 1.0, "refused", "solves nothing"),
        (100, 48, 88, 0.9, "refused", "above the ceiling"),
        (200, 98, 190, 1.0, "refused", "luck of the baseline's draw"),
    ],
)
def test_twice_the_accuracy(
    count: int, before: int, after: int, ceiling: float, state: str, words: str
) -> None:
    claim = claimed(of(count, before), of(count, after), ceiling=ceiling)[0]
    assert claim.state == state
    assert words in claim.reason


def test_room_for_twice_ends_at_half_of_the_ceiling() -> None:
    assert no_room_for_twice(0.48, 0.97) == ""
    assert "126.0%" in no_room_for_twice(0.63, 0.981)


def test_the_clustered_error_is_that_of_the_bootstrap_and_of_the_plain_formula() -> None:
    rng = np.random.default_rng(4)
    values = list(rng.random(120))
    plain = float(np.std(values, ddof=1) / np.sqrt(120))
    assert clustered_error(values, names(120)) == pytest.approx(plain)
    clusters = [str(i // 4) for i in range(120)]
    shared = [v for v in rng.random(30) for _ in range(4)]
    spread = float(np.std(resampled_means(shared, clusters)))
    assert clustered_error(shared, clusters) == pytest.approx(spread, rel=0.05)
    assert clustered_error(shared, clusters) > 1.5 * clustered_error(shared, names(120))


def gain_of(rng: np.random.Generator, count: int, q: float) -> tuple[list[float], list[float]]:
    """Each problem is gained with chance 2q, lost with chance q: a mean gain of q."""
    draw = rng.random(count)
    base = [1.0 if d > 1 - q or d < 0.3 else 0.0 for d in draw]
    tuned = [1.0 if d < 0.3 + 2 * q else 0.0 for d in draw]
    return base, tuned


def test_a_difference_of_the_smallest_visible_size_is_found_in_about_80_of_100() -> None:
    rng = np.random.default_rng(5)
    big = gain_of(rng, 40_000, 0.08)
    needed = smallest_visible(*big, names(40_000), samples=1).difference
    assert needed is not None
    # The spread of 200 problems with these chances; its visible difference is about the true gain.
    count = round(40_000 * (needed / 0.08) ** 2)
    found = 0
    for trial in range(200):
        base, tuned = gain_of(rng, count, 0.08)
        interval = paired_difference(base, tuned, names(count), seed=trial)
        test = mcnemar([b == 1 for b in base], [t == 1 for t in tuned])
        found += interval.low > 0 and test.p_value < 0.05
    assert 0.70 <= found / 200 <= 0.90


def test_few_problems_see_little_and_five_see_nothing() -> None:
    assert smallest_visible(of(5, 0), of(5, 5), names(5), samples=1) == Power(None, None)
    flat = smallest_visible(of(50, 0), of(50, 0), names(50), samples=1).difference
    assert flat is not None
    assert binom.sf(5, 50, flat) == pytest.approx(0.8), "at least 6 problems differ in 80 of 100"
    more = smallest_visible(of(50, 0), of(50, 0), names(50), samples=4).difference
    assert more is not None
    assert more < flat


def test_more_samples_help_down_to_what_the_problems_differ_by() -> None:
    rng = np.random.default_rng(6)
    base_chance, gain = rng.random(156) * 0.6, rng.normal(0.1, 0.05, 156)

    def sampled(samples: int) -> tuple[list[float], list[float]]:
        base = rng.binomial(samples, base_chance) / samples
        tuned = rng.binomial(samples, np.clip(base_chance + gain, 0, 1)) / samples
        return list(base), list(tuned)

    few = smallest_visible(*sampled(4), names(156), samples=4)
    many = smallest_visible(*sampled(400), names(156), samples=400)
    assert few.difference is not None
    assert few.at_best is not None
    assert many.difference is not None
    assert many.difference < few.difference
    assert few.at_best < few.difference
    assert few.at_best == pytest.approx(many.difference, abs=0.03)
