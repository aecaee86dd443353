"""Communities and ranks: planted groups are found, large ones split, twice the same."""

from __future__ import annotations

import os
import subprocess
import sys

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_graph.communities import find_communities, pagerank

Edges = dict[tuple[str, str], float]


def cliques(n_groups: int, size: int, *, prefix: str = "g") -> Edges:
    """Groups with all edges inside, joined in a ring by one edge each."""
    edges: Edges = {}
    for group in range(n_groups):
        names = [f"{prefix}{group:02d}.{member:02d}" for member in range(size)]
        edges.update({(a, b): 1.0 for a in names for b in names if a < b})
        following = f"{prefix}{(group + 1) % n_groups:02d}.00"
        pair = sorted((names[1], following))
        edges[(pair[0], pair[1])] = 0.5
    return edges


def test_planted_groups_are_found() -> None:
    found = find_communities(cliques(6, 8), max_size=20, resolution=1.0, seed=7)
    assert {item.level for item in found} == {0}
    assert sorted(item.members for item in found) == [
        tuple(f"g{group:02d}.{member:02d}" for member in range(8)) for group in range(6)
    ]


def test_large_communities_are_split_below_their_parent() -> None:
    edges = {**cliques(8, 6, prefix="p"), **cliques(8, 6, prefix="q")}
    found = find_communities(edges, max_size=10, resolution=0.05, seed=7)
    by_id = {item.community_id: item for item in found}
    children = [item for item in found if item.parent_id]
    assert children
    for child in children:
        parent = by_id[child.parent_id]
        assert child.level == parent.level + 1
        assert set(child.members) < set(parent.members)
    leaves = [item for item in found if item.community_id not in {c.parent_id for c in children}]
    assert max(len(leaf.members) for leaf in leaves) <= 10


def test_pagerank_agrees_with_networkx() -> None:
    edges = {**cliques(3, 4), ("g00.00", "hub"): 5.0, ("g01.00", "hub"): 3.0}
    graph = networkx.Graph()
    graph.add_weighted_edges_from((a, b, weight) for (a, b), weight in edges.items())
    expected = networkx.pagerank(graph, alpha=0.85, tol=1e-12)
    assert pagerank(edges) == pytest.approx(expected, abs=1e-6)


def test_nothing_in_nothing_out() -> None:
    assert find_communities({}, max_size=10, resolution=1.0, seed=7) == []
    assert pagerank({}) == {}


def test_two_processes_with_other_hash_seeds_agree() -> None:
    program = (
        "import random\n"
        "from knowledge_graph.communities import find_communities, pagerank\n"
        "random.seed(3)\n"
        "names = {f'n{i}' for i in range(300)}\n"  # a set: its order follows the hash seed
        "every = sorted(names)\n"
        "pairs = [(a, b) for a in every for b in random.sample(every, 3) if a < b]\n"
        "edges = {pair: 1.0 for pair in set(pairs)}\n"
        "print(find_communities(edges, max_size=30, resolution=1.0, seed=7))\n"
        "print(pagerank(edges))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


weighted_edges = st.dictionaries(
    st.tuples(st.integers(0, 30), st.integers(0, 30))
    .filter(lambda pair: pair[0] < pair[1])
    .map(lambda pair: (f"n{pair[0]:02d}", f"n{pair[1]:02d}")),
    st.floats(1e-6, 1e6),
    max_size=80,
)


@given(edges=weighted_edges, max_size=st.integers(2, 40), resolution=st.floats(0.05, 8))
def test_any_graph_is_covered_and_nested(edges: Edges, max_size: int, resolution: float) -> None:
    found = find_communities(edges, max_size=max_size, resolution=resolution, seed=7)
    assert found == find_communities(edges, max_size=max_size, resolution=resolution, seed=7)
    top = [member for item in found if item.level == 0 for member in item.members]
    assert len(top) == len(set(top))
    assert set(top) <= {name for pair in edges for name in pair}
    members = {item.community_id: set(item.members) for item in found}
    assert all(set(i.members) <= members[i.parent_id] for i in found if i.parent_id)


@pytest.mark.parametrize("resolution", [0.5, 1.0, 2.0, 4.0])
def test_a_star_comes_to_an_end(resolution: float) -> None:
    star: Edges = {("hub", f"leaf{n:02d}"): 0.31 + 0.001 * n for n in range(60)}
    find_communities(star, max_size=10, resolution=resolution, seed=7)
