"""How prompts are put together: what is beside a prompt costs time, and none may be lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evaluation.generation import batches_of_like_length
from evaluation.journal import AnswerKey


@given(
    lengths=st.lists(st.integers(1, 900), max_size=40),
    samples=st.integers(1, 4),
    batch_size=st.integers(1, 40),
)
def test_a_batch_holds_prompts_of_like_length(
    lengths: list[int], samples: int, batch_size: int
) -> None:
    keys = [
        AnswerKey(f"row{row}", sample) for sample in range(samples) for row in range(len(lengths))
    ]
    every = [*lengths] * samples
    batches = list(batches_of_like_length(keys, every, batch_size))
    assert sorted(index for batch in batches for index in batch) == list(range(len(every)))
    for batch in batches:
        found = [every[index] for index in batch]
        assert len(found) <= batch_size
        assert max(found) <= 2 * min(found)
    longest = [max(every[index] for index in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True), "the first shows whether memory is enough"


def test_two_long_prompts_do_not_make_the_others_long() -> None:
    """The demo's completions: two modules of 560 tokens, 21 of 60 to 130, four answers each."""
    lengths = [561, 558, *range(60, 123, 3)]
    keys = [AnswerKey(f"row{row}", sample) for sample in range(4) for row in range(len(lengths))]
    every = lengths * 4
    batches = batches_of_like_length(keys, every, 32)
    padded = sum(len(batch) * max(every[index] for index in batch) for batch in batches)
    assert padded < 1.3 * sum(every)
