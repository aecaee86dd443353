"""Which samples each optimizer step trains on, and how a step is divided among ranks.

The order is a pure function of (seed, epoch, cursor): endless passes over all samples, each
shuffled on its own, of which step `n` takes the next `rows_per_step`. A resumed run walks on from
its cursor, so no sample is lost or trained twice, at any epoch border and with any number of ranks
(the trainers' own samplers draw from a generator whose state a checkpoint does not hold).
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence
from typing import NamedTuple


class SampleOrder:
    """Endless passes over `count` samples. Keeps one pass in memory."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self._epoch = -1
        self._pass: array[int] = array("q")

    def between(self, first: int, last: int) -> list[int]:
        """The samples at cursors `first` up to, not including, `last`."""
        found: list[int] = []
        while first < last:
            epoch, at = divmod(first, self.count)
            part = self._shuffled(epoch)[at : at + last - first]
            found.extend(part)
            first += len(part)
        return found

    def _shuffled(self, epoch: int) -> array[int]:
        if epoch != self._epoch:
            samples = array("q", range(self.count))
            random.Random(f"pass:{self.seed}:{epoch}").shuffle(samples)
            self._epoch, self._pass = epoch, samples
        return self._pass


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
    steps = count_steps(
        lengths, rows_per_step=rows_per_step, epochs=epochs, token_budget=token_budget, seed=seed
    )
    order = shuffled_passes(len(lengths), steps * rows_per_step, seed)
    return StepPlan(order, steps, len(order) / len(lengths))


def count_steps(
    lengths: Sequence[int], *, rows_per_step: int, epochs: float, token_budget: int, seed: int
) -> int:
    """How many steps `plan_steps` plans, without listing the order."""
    steps = math.ceil(max(1.0, epochs * len(lengths)) / rows_per_step)
    if not token_budget:
        return steps
    order = SampleOrder(len(lengths), seed)
    tokens = 0
    for step in range(steps):
        rows = order.between(step * rows_per_step, (step + 1) * rows_per_step)
        tokens += sum(int(lengths[row]) for row in rows)
        if tokens > token_budget:
            return max(1, step)
    return steps


def shuffled_passes(count: int, wanted: int, seed: int) -> list[int]:
    """The first `wanted` indices of endless passes over `count` rows, each in its own order."""
    return SampleOrder(count, seed).between(0, wanted)


def forward_passes(rows: int, micro_batch: int) -> int:
    """The fewest equal passes over `rows` of at most `micro_batch` rows each (0: one pass)."""
    if not micro_batch:
        return 1
    return next(
        passes
        for passes in range(1, rows + 1)
        if rows % passes == 0 and rows // passes <= micro_batch
    )


# A forward pass costs as much as this share of its limit in tokens, however few it holds: its
# gradients are added to those before. On two cores that took as long as 1,024 / 16 tokens.
PASS_SHARE = 16


def split_by_tokens(lengths: Sequence[int], limit: int, at_least: int = 1) -> list[list[int]]:
    """Row indices in groups of like length whose padded size (rows x longest) is at most `limit`.

    Of all such splits of the rows in order of length, the one of least cost: padded tokens and
    what each pass costs. A row longer than `limit` is a group of its own. There are at least
    `at_least` groups (at most one per row).
    """
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    # Of the first n rows: the least cost, and where their last group begins.
    costs, starts = [0], [0]
    for end, row in enumerate(order, start=1):
        longest = lengths[row]
        cost, start = min(
            (costs[first] + (end - first) * longest, first)
            for first in range(max(0, end - max(1, limit // longest)), end)
        )
        costs.append(cost + limit // PASS_SHARE)
        starts.append(start)
    groups: list[list[int]] = []
    end = len(order)
    while end:
        groups.insert(0, order[starts[end] : end])
        end = starts[end]
    while len(groups) < min(at_least, len(lengths)):
        largest = max(range(len(groups)), key=lambda at: len(groups[at]))
        rows = groups[largest]
        groups[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return groups


def split_among_ranks(lengths: Sequence[int], limit: int, ranks: int) -> list[list[list[int]]]:
    """A step's rows as passes: `[pass][rank]` holds the row indices of one forward pass.

    Every rank takes part in every pass, because each of them is a collective operation; a rank
    without rows of its own has an empty list there. Rows of one pass are of like length.
    """
    groups = split_by_tokens(lengths, limit, at_least=ranks)
    if len(groups) % ranks:
        groups = split_by_tokens(lengths, limit, at_least=math.ceil(len(groups) / ranks) * ranks)
    groups += [[] for _ in range(-len(groups) % ranks)]
    return [groups[at : at + ranks] for at in range(0, len(groups), ranks)]
