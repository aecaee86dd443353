"""Links between nodes: who measures with whom, and which node is to blame."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from training.cluster.health.bandwidth import Pair, rounds, slow_nodes


@given(st.integers(2, 20))
def test_each_pair_of_nodes_meets_once_and_no_node_twice_a_round(nodes: int) -> None:
    met = list(rounds(nodes))
    for pairs in met:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy))
    assert sorted(pair for pairs in met for pair in pairs) == [
        Pair(*pair) for pair in combinations(range(nodes), 2)
    ]


@given(st.integers(3, 12), st.integers(0, 11))
def test_the_node_with_the_bad_link_is_named(nodes: int, bad: int) -> None:
    bad %= nodes
    speeds = {Pair(*pair): 10.0 if bad in pair else 45.0 for pair in combinations(range(nodes), 2)}
    assert slow_nodes(speeds, nodes) == [bad]
    assert slow_nodes(dict.fromkeys(speeds, 45.0), nodes) == []


def test_two_nodes_cannot_blame_each_other() -> None:
    assert slow_nodes({Pair(0, 1): 0.001}, 2) == []
