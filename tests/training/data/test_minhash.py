"""MinHash against the Jaccard index that it estimates."""

from __future__ import annotations

import random

import pytest

from training.data.minhash import band_keys, shingles, signature, similarity, words


def text_of(rng: random.Random, n: int) -> list[str]:
    return [f"w{rng.randrange(5000)}" for _ in range(n)]


@pytest.mark.parametrize("changed", [0, 5, 20, 60, 200])
def test_similarity_estimates_jaccard(changed: int) -> None:
    rng = random.Random(changed)
    left = text_of(rng, 300)
    right = list(left)
    for index in rng.sample(range(300), changed):
        right[index] = f"x{index}"
    a, b = shingles(words(" ".join(left))), shingles(words(" ".join(right)))
    true = len(a & b) / len(a | b)
    estimate = similarity(signature(" ".join(left)), signature(" ".join(right)))
    # 128 permutations: standard error at most 0.045, four of them allowed.
    assert estimate == pytest.approx(true, abs=0.18)


def test_near_texts_share_a_bucket_and_far_ones_do_not() -> None:
    rng = random.Random(7)
    shared_near = shared_far = 0
    for _ in range(60):
        left = text_of(rng, 200)
        near = [*left[:-4], "a", "b", "c", "d"]
        far = text_of(rng, 200)
        keys = set(band_keys(signature(" ".join(left))))
        shared_near += bool(keys & set(band_keys(signature(" ".join(near)))))
        shared_far += bool(keys & set(band_keys(signature(" ".join(far)))))
    assert shared_near >= 58
    assert shared_far == 0


def test_numbers_count() -> None:
    left = "the supply of block a is 3 volts and its delay is 12 ns at most in all modes"
    right = left.replace("12", "13")
    assert similarity(signature(left), signature(right)) < 1
    assert similarity(signature(left), signature(left.upper())) == 1


def test_empty_text_has_a_signature() -> None:
    assert similarity(signature(""), signature(" \n")) == 1
    assert similarity(signature(""), signature("one two three")) == 0
