"""Which rows each optimizer step trains on: decided before training, for the whole of it.

The order is a pure function of the rows' lengths, the settings and the seed. A resumed run walks
the same list from its step on, so no row is lost or trained twice, at any epoch border and with
any number of ranks (the trainers' own samplers draw from a generator whose state a checkpoint
does not hold).

Rows of similar length are put into the same forward pass, which saves most of the padding; forward
passes are shuffled among the steps nearby, so that a step mixes short and long rows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

WINDOW_STEPS = 8  # rows are sorted by length within this many steps


class StepPlan(NamedTuple):
    """`order` holds `steps * rows_per_step` row indices, forward pass after forward pass."""

    order: list[int]
    steps: int
    epochs: float


def plan_steps(
    lengths: Sequence[int],
    *,
    rows_per_step: int,
    rows_per_forward: int,
    epochs: float,
    token_budget: int,
    seed: int,
) -> StepPlan:
    """Plan the training on rows of `lengths` tokens. `token_budget` 0 means no limit.

    `rows_per_forward` must divide `rows_per_step`. The last step is filled with the first rows of
    the next pass, so every row is trained at least `floor(epochs)` times without a budget.
    """
    assert rows_per_step % rows_per_forward == 0
    wanted = max(1, math.ceil(epochs * len(lengths)))
    steps = math.ceil(wanted / rows_per_step)
    rows = shuffled_passes(len(lengths), steps * rows_per_step, seed)
    if token_budget:
        steps = min(steps, _steps_within(rows, lengths, rows_per_step, token_budget))
        rows = rows[: steps * rows_per_step]
    order = _group_by_length(rows, lengths, rows_per_step * WINDOW_STEPS, rows_per_forward, seed)
    return StepPlan(order, steps, len(rows) / len(lengths))


def shuffled_passes(count: int, wanted: int, seed: int) -> list[int]:
    """The first `wanted` indices of endless passes over `count` rows, each in its own order."""
    return list(islice(_passes(count, seed), wanted))


def _passes(count: int, seed: int) -> Iterator[int]:
    epoch = 0
    while True:
        rows = list(range(count))
        random.Random(f"pass:{seed}:{epoch}").shuffle(rows)
        yield from rows
        epoch += 1


def _steps_within(
    rows: Sequence[int], lengths: Sequence[int], rows_per_step: int, budget: int
) -> int:
    tokens = 0
    for position, row in enumerate(rows):
        tokens += lengths[row]
        if tokens > budget:
            return max(1, position // rows_per_step)
    return len(rows) // rows_per_step


def _group_by_length(
    rows: Sequence[int], lengths: Sequence[int], window: int, group: int, seed: int
) -> list[int]:
    order: list[int] = []
    for start in range(0, len(rows), window):
        near = sorted(rows[start : start + window], key=lambda row: (lengths[row], row))
        groups = [near[at : at + group] for at in range(0, len(near), group)]
        random.Random(f"window:{seed}:{start}").shuffle(groups)
        order += [row for rows_of_group in groups for row in rows_of_group]
    return order
