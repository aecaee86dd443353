"""Communities of the graph: Leiden on one thread, split until small enough.

Edges in (pairs of node names with a weight), a tree of communities out. The same edges give the
same communities: nodes and edges are numbered in sorted order, the seed is fixed, and one thread
runs (two are not reproducible). Level 0 is the coarsest; a community above `max_size` is split by
a second Leiden on its own edges, one level down, at a finer resolution when it resists.

Nodes that share no edge with any other are in no community.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from workspace.ids import derive_id

Edges = Mapping[tuple[str, str], float]
MAX_LEVEL: Final = 6
_RESISTANCE: Final = 4  # how often the resolution is doubled before a group is left whole


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
    graph, names = build_graph(edges)
    if not names:
        return []
    networkit = load_networkit()
    networkit.setSeed(seed, False)
    leiden = networkit.community.ParallelLeiden(
        graph, randomize=False, iterations=5, gamma=resolution
    )
    leiden.run()
    groups: dict[int, list[str]] = defaultdict(list)
    for node, group in enumerate(leiden.getPartition().getVector()):
        groups[group].append(names[node])
    return sorted(groups.values())


def pagerank(edges: Edges) -> dict[str, float]:
    """Weighted PageRank of every node that has an edge."""
    graph, names = build_graph(edges)
    if not names:
        return {}
    networkit = load_networkit()
    ranking = networkit.centrality.PageRank(graph, damp=0.85, tol=1e-10)
    ranking.run()
    return dict(zip(names, ranking.scores(), strict=True))


def build_graph(edges: Edges) -> tuple[Any, list[str]]:
    """An undirected weighted networkit graph, and the name of each of its nodes."""
    networkit = load_networkit()
    names = sorted({name for pair in edges for name in pair})
    index = {name: node for node, name in enumerate(names)}
    graph = networkit.Graph(len(names), weighted=True, directed=False)
    for (a, b), weight in sorted(edges.items()):
        graph.addEdge(index[a], index[b], weight)
    return graph, names


@functools.cache
def load_networkit() -> Any:
    """networkit, on one thread."""
    import networkit

    networkit.setNumberOfThreads(1)
    return networkit
