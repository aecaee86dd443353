"""Circles on a plane: linked ones near each other, none overlapping.

Deterministic: starts from a sunflower spiral in order of size (the seed turns it), then a fixed
number of steps of gravity, attraction along links and push against overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Points = NDArray[Any]

GAP: Final = 6.0
_STEPS: Final = 240
_GOLDEN: Final = math.pi * (3 - math.sqrt(5))


class Circle(NamedTuple):
    """Centre and radius, in the page's units, around the origin."""

    x: float
    y: float
    r: float


def place_circles(
    sizes: Sequence[float], links: Mapping[tuple[int, int], float], seed: int
) -> list[Circle]:
    """A place for each size; area grows with size. `links` weigh pairs of indices."""
    import numpy

    if not sizes:
        return []
    radii = 10.0 + 6.0 * numpy.sqrt(numpy.asarray(sizes, dtype=float))
    turn = (seed % 360) * math.pi / 180
    step = float(radii.mean()) * 1.6
    angles = turn + _GOLDEN * numpy.arange(len(sizes))
    reach = step * numpy.sqrt(numpy.arange(len(sizes)))
    points = numpy.stack([reach * numpy.cos(angles), reach * numpy.sin(angles)], axis=1)
    pull = numpy.zeros((len(sizes), len(sizes)))
    for (a, b), weight in sorted(links.items()):
        pull[a, b] = pull[b, a] = math.log1p(weight)
    if pull.max() > 0:
        pull /= pull.max()
    apart = radii[:, None] + radii[None, :] + GAP
    for number in range(_STEPS):
        cooling = 1.0 - number / _STEPS
        delta = points[:, None, :] - points[None, :, :]
        distance = numpy.sqrt((delta**2).sum(axis=2)) + 1e-9
        direction = delta / distance[:, :, None]
        attract = pull * numpy.maximum(distance - apart, 0) * 0.02 * cooling
        points -= (direction * attract[:, :, None]).sum(axis=1)
        points -= points * numpy.array([0.010, 0.016]) * cooling
        points += _push(points, apart)
    for _ in range(200):
        points += _push(points, apart)
    return [
        Circle(round(float(x), 1), round(float(y), 1), round(float(r), 1))
        for (x, y), r in zip(points, radii, strict=True)
    ]


def _push(points: Points, apart: Points) -> Points:
    """The step that moves overlapping circles off each other."""
    import numpy

    delta = points[:, None, :] - points[None, :, :]
    distance = numpy.sqrt((delta**2).sum(axis=2)) + 1e-9
    overlap = numpy.maximum(apart - distance, 0)
    numpy.fill_diagonal(overlap, 0)
    step: Points = (delta / distance[:, :, None] * overlap[:, :, None] * 0.35).sum(axis=1)
    return step
