"""Which rows each optimizer step trains on: decided before training, for the whole of it.

The order is a pure function of the rows' number and lengths, the settings and the seed. A resumed
run walks the same list from its step on, so no row is lost or trained twice, at any epoch border
and with any number of ranks (the trainers' own samplers draw from a generator whose state a
checkpoint does not hold).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple


class StepPlan(NamedTuple):
    """`order` holds `steps * rows_per_step` row indices, step after step."""

    order: list[int]
    steps: int
    epochs: float

    def at_most(self, steps: int) -> StepPlan:
        """The same plan, ended after `steps` (0: not)."""
        if not steps or steps >= self.steps:
            return self
        share = steps / self.steps
        order = self.order[: steps * len(self.order) // self.steps]
        return StepPlan(order, steps, self.epochs * share)


def plan_steps(
    lengths: Sequence[int], *, rows_per_step: int, epochs: float, token_budget: int, seed: int
) -> StepPlan:
    """Plan the training on rows of `lengths` tokens. `token_budget` 0 means no limit.

    The last step is filled with the first rows of the next pass, so without a budget every row is
    trained at least `floor(epochs)` times.
    """
    steps = math.ceil(max(1.0, epochs * len(lengths)) / rows_per_step)
    order = shuffled_passes(len(lengths), steps * rows_per_step, seed)
    if token_budget:
        steps = min(steps, _steps_within(order, lengths, rows_per_step, token_budget))
        order = order[: steps * rows_per_step]
    return StepPlan(order, steps, len(order) / len(lengths))


def shuffled_passes(count: int, wanted: int, seed: int) -> list[int]:
    """The first `wanted` indices of endless passes over `count` rows, each in its own order."""
    return list(islice(_passes(count, seed), wanted))


def forward_passes(rows: int, micro_batch: int) -> int:
    """The fewest equal passes over `rows` of at most `micro_batch` rows each (0: one pass)."""
    if not micro_batch:
        return 1
    return next(
        passes
        for passes in range(1, rows + 1)
        if rows % passes == 0 and rows // passes <= micro_batch
    )


def split_by_tokens(lengths: Sequence[int], limit: int, at_least: int = 1) -> list[list[int]]:
    """Row indices in groups of like length whose padded size (rows x longest) is at most `limit`.

    A row longer than `limit` is a group of its own. There are at least `at_least` groups (at most
    one per row).
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if groups and (len(groups[-1]) + 1) * lengths[row] <= limit:
            groups[-1].append(row)
        else:
            groups.append([row])
    while len(groups) < min(at_least, len(lengths)):
        largest = max(range(len(groups)), key=lambda at: len(groups[at]))
        rows = groups[largest]
        groups[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return groups


def _passes(count: int, seed: int) -> Iterator[int]:
    epoch = 0
    while True:
        rows = list(range(count))
        random.Random(f"pass:{seed}:{epoch}").shuffle(rows)
        yield from rows
        epoch += 1


def _steps_within(
    order: Sequence[int], lengths: Sequence[int], rows_per_step: int, budget: int
) -> int:
    tokens = 0
    for position, row in enumerate(order):
        tokens += lengths[row]
        if tokens > budget:
            return max(1, position // rows_per_step)
    return len(order) // rows_per_step
