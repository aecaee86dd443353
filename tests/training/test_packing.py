from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.trainers.packing import LEARNED, START, best_fit, pack
from training.trainers.sample_order import SampleOrder, split_among_ranks


@given(
    lengths=st.lists(st.integers(1, 60), max_size=60),
    room=st.integers(60, 100),
)
def test_every_item_is_in_one_bin_that_holds_it(lengths: list[int], room: int) -> None:
    bins = best_fit(lengths, room)
    assert sorted(item for items in bins for item in items) == list(range(len(lengths)))
    assert all(sum(lengths[item] for item in items) <= room for items in bins)
    # Best fit never opens a bin while another has room: of two, the sum is more than one holds.
    loads = sorted(sum(lengths[item] for item in items) for items in bins)
    assert len(loads) < 2 or loads[0] + loads[1] > room


def test_the_tightest_bin_is_taken() -> None:
    # 7 and 6 open two bins; 4 fits into 6's alone, 3 into 7's exactly.
    assert best_fit([6, 7, 3, 4], 10) == [[1, 2], [0, 3]]


@given(
    documents=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=50), max_size=30),
    length=st.integers(2, 20),
)
def test_packing_keeps_every_token_and_cuts_long_documents_alone(
    documents: list[list[int]], length: int
) -> None:
    samples = list(pack(documents, length))
    tokens = Counter(token for pieces in samples for piece in pieces for token in piece.ids)
    assert tokens == Counter(token for document in documents for token in document)
    assert all(sum(len(piece.ids) for piece in pieces) <= length for pieces in samples)
    whole = Counter(tuple(piece.ids) for pieces in samples for piece in pieces)
    for document in documents:
        if len(document) <= length:
            assert whole[tuple(document)] >= 1, "it fits, and is in one piece"
    for pieces in samples:
        for piece in pieces:
            flags = np.frombuffer(piece.flags, np.uint8)
            assert flags[0] == START, "nothing predicts the first token of a document"
            assert (flags[1:] == LEARNED).all()


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=40),
    limit=st.integers(1, 400),
    ranks=st.integers(1, 9),
)
def test_a_step_is_divided_without_loss_and_in_step(
    lengths: list[int], limit: int, ranks: int
) -> None:
    passes = split_among_ranks(lengths, limit, ranks)
    assert all(len(groups) == ranks for groups in passes), "every rank is in every pass"
    rows = [row for groups in passes for group in groups for row in group]
    assert sorted(rows) == list(range(len(lengths)))
    for groups in passes:
        for group in groups:
            assert len(group) <= 1 or len(group) * max(lengths[row] for row in group) <= limit


@given(count=st.integers(1, 30), seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 90)))
def test_the_order_is_the_same_however_it_is_read(count: int, seed: int, cuts: list[int]) -> None:
    whole = SampleOrder(count, seed).between(0, 90)
    places = sorted({0, 90, *cuts})
    order = SampleOrder(count, seed)
    parts = [order.between(*pair) for pair in pairwise(places)]
    assert [sample for part in parts for sample in part] == whole
    for epoch in range(90 // count):
        assert sorted(whole[epoch * count : (epoch + 1) * count]) == list(range(count))
