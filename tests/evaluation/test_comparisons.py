"""What a comparison finds when there is nothing to find, and when there is."""

from __future__ import annotations

import numpy as np

from evaluation.results import Comparison, compare


def compared(base: np.ndarray, tuned: np.ndarray, samples: int, seed: int) -> Comparison:
    """Compare shares of right answers by problem, one problem a cluster."""
    names = [f"p{i}" for i in range(len(base))]
    found = compare(
        dict(zip(names, map(float, base), strict=True)),
        dict(zip(names, map(float, tuned), strict=True)),
        {name: name for name in names},
        model="tuned", baseline="base", metric="pass@1", samples=samples, seed=seed,
    )  # fmt: skip
    assert found is not None
    return found


def drawn(rng: np.random.Generator, chances: np.ndarray, samples: int) -> np.ndarray:
    return np.asarray(rng.binomial(samples, chances) / samples)


def test_of_a_hundred_models_that_are_not_better_few_are_called_so() -> None:
    """A gain is said in at most 2.5 of 100 cases of none; a gate that let 5 pass would be wrong."""
    rng = np.random.default_rng(11)
    findings = []
    for samples in (1, 4):
        for trial in range(150):
            chances = rng.beta(0.6, 0.9, 60)
            base, tuned = drawn(rng, chances, samples), drawn(rng, chances, samples)
            findings.append(compared(base, tuned, samples, trial).finding)
    assert findings.count("gain") <= 300 * 0.05
    assert findings.count("loss") <= 300 * 0.05


def test_a_gain_on_each_problem_is_found_with_several_answers_and_not_with_one() -> None:
    rng = np.random.default_rng(12)
    chances = rng.beta(0.6, 0.9, 60) * 0.85
    found = {
        samples: compared(
            drawn(rng, chances, samples), drawn(rng, chances + 0.08, samples), samples, 0
        )
        for samples in (1, 40)
    }
    assert found[40].finding == "gain"
    assert found[1].power is not None
    assert found[40].power is not None
    assert found[1].power.difference is not None
    assert found[40].power.difference is not None
    assert found[40].power.difference < 0.08 < found[1].power.difference


def test_several_questions_on_one_fact_are_one_chance() -> None:
    """Six facts gained in eight phrasings each: 48 wins, but only six independent ones."""
    names = [f"q{i}" for i in range(160)]
    base = dict.fromkeys(names, 0.0)
    tuned = {name: float(index < 48) for index, name in enumerate(names)}
    settings = {"model": "t", "baseline": "b", "metric": "accuracy", "samples": 1, "seed": 0}
    alone = compare(base, tuned, {name: name for name in names}, **settings)
    facts = {name: f"f{index // 8}" for index, name in enumerate(names)}
    clustered = compare(base, tuned, facts, **settings)
    assert alone is not None
    assert clustered is not None
    assert alone.p_value < 1e-10
    # Two-sided sign test of 6 of 6: 2 / 2**6.
    assert abs(clustered.p_value - 2 / 64) < 1e-9
    assert clustered.high - clustered.low > 2 * (alone.high - alone.low)
