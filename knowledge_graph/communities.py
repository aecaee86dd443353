"""Communities of the graph: Leiden, split until small enough.

Edges in (pairs of node names with a weight), a tree of communities out. The same edges give the
same communities: nodes and edges are numbered in sorted order and the seed is fixed. Level 0 is the
coarsest; a community above `max_size` is split by a second Leiden on its own edges, one level down,
at a finer resolution when it resists. Nodes that share no edge with any other are in no community.

The engine is graspologic-native. networkit's ParallelLeiden never ends on some small graphs (a star
of 60 nodes at resolution 2), and its result differs with two threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from workspace.ids import derive_id

Edges = Mapping[tuple[str, str], float]
MAX_LEVEL: Final = 6
_RESISTANCE: Final = 4  # how often the resolution is doubled before a group is left whole
_ITERATIONS: Final = 5  # full cycles, each starting from the result before
_MAX_SWEEPS: Final = 1000  # local moving ends whatever the weights are


class Community(NamedTuple):
    """`members` are sorted names."""

    community_id: str
    level: int
    parent_id: str
    members: tuple[str, ...]


def find_communities(
    edges: Edges, *, max_size: int, resolution: float, seed: int
) -> list[Community]:
    """All communities of two members or more, coarsest level first, by id within a level."""
    found: list[Community] = []
    pending = [(edges, "", 0, resolution)]
    while pending:
        part, parent, level, gamma = pending.pop()
        groups = partition(part, resolution=gamma, seed=seed)
        for members in groups:
            if len(members) < 2:
                continue
            identity = derive_id("community", level, *members)
            found.append(Community(identity, level, parent, tuple(members)))
        if level + 1 < MAX_LEVEL and any(len(members) > max_size for members in groups):
            pending += _splits(part, groups, max_size, level, gamma, seed)
    return sorted(found, key=lambda item: (item.level, item.community_id))


def _splits(
    edges: Edges,
    groups: Sequence[Sequence[str]],
    max_size: int,
    level: int,
    gamma: float,
    seed: int,
) -> list[tuple[Edges, str, int, float]]:
    """The next round's work: the inner edges of each large group, at a gamma that divides it."""
    home = {
        member: index
        for index, group in enumerate(groups)
        if len(group) > max_size
        for member in group
    }
    inner: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for (a, b), weight in edges.items():
        if a in home and home.get(b) == home[a]:
            inner[home[a]][(a, b)] = weight
    work: list[tuple[Edges, str, int, float]] = []
    for index, part in sorted(inner.items()):
        parent = derive_id("community", level, *groups[index])
        for attempt in range(_RESISTANCE):
            finer = gamma * 2**attempt
            if len(partition(part, resolution=finer, seed=seed)) > 1:
                work.append((part, parent, level + 1, finer))
                break
    return work


def partition(edges: Edges, *, resolution: float, seed: int) -> list[list[str]]:
    """One Leiden partition: groups of sorted names, in order of their first."""
    if not edges:
        return []
    import graspologic_native

    names, matrix = adjacency(edges)
    _, membership = graspologic_native.leiden_csr(
        matrix.indptr.astype("int64"),
        matrix.indices.astype("int32"),
        matrix.data,
        len(names),
        resolution=resolution,
        iterations=_ITERATIONS,
        seed=seed,
        max_local_moving_iterations=_MAX_SWEEPS,
    )
    groups: dict[int, list[str]] = defaultdict(list)
    for node, name in enumerate(names):
        groups[membership[node]].append(name)
    return sorted(groups.values())


def adjacency(edges: Edges) -> tuple[list[str], Any]:
    """Node names in order, and their symmetric weights as a `scipy.sparse.csr_array`."""
    from scipy.sparse import csr_array

    names = sorted({name for pair in edges for name in pair})
    index = {name: node for node, name in enumerate(names)}
    ordered = sorted(edges.items())
    heads = [index[a] for (a, _), _ in ordered]
    tails = [index[b] for (_, b), _ in ordered]
    weights = [weight for _, weight in ordered]
    shape = (len(names), len(names))
    matrix = csr_array((weights * 2, (heads + tails, tails + heads)), shape=shape, dtype="float64")
    return names, matrix


def pagerank(edges: Edges) -> dict[str, float]:
    """Weighted PageRank of every node that has an edge."""
    if not edges:
        return {}
    import networkx

    names, matrix = adjacency(edges)
    graph = networkx.from_scipy_sparse_array(matrix)
    ranks = networkx.pagerank(graph, alpha=0.85, tol=1e-10, max_iter=1000)
    return {name: float(ranks[node]) for node, name in enumerate(names)}
