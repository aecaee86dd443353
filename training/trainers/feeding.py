"""The samples of a step, divided among ranks and forward passes.

Which samples a step has depends on the order and the step alone; how they are divided depends on
the number of ranks as well, and changes no sum but its rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from training.trainers.rows import IGNORED
from training.trainers.sample_order import split_among_ranks
from training.trainers.samples import Samples


class Pass(NamedTuple):
    """One forward pass of one rank. `places`: where its samples stand in the step."""

    places: list[int]
    samples: list[int]


class Share(NamedTuple):
    """What one rank does in a step. `learned`: tokens that all ranks learn in it."""

    passes: list[Pass]
    learned: int

    @property
    def places(self) -> list[int]:
        return [place for part in self.passes for place in part.places]

    @property
    def samples(self) -> list[int]:
        return [sample for part in self.passes for sample in part.samples]


class Batch(NamedTuple):
    """Tensors of a forward pass, int64, (rows, longest row)."""

    ids: Any
    labels: Any
    positions: Any


def share_of(
    rows: list[int], samples: Samples, *, tokens_per_forward: int, rank: int, ranks: int
) -> Share:
    """The passes of `rank` over `rows`, which all ranks go through together."""
    lengths = [samples.length(row) for row in rows]
    passes = [
        Pass(groups[rank], [rows[place] for place in groups[rank]])
        for groups in split_among_ranks(lengths, tokens_per_forward, ranks)
    ]
    return Share(passes, sum(int(samples.learned[row]) for row in rows))


def make_batch(samples: Samples, numbers: list[int], pad_id: int, device: Any) -> Batch:
    """Samples padded on the right, where nothing that is learned can see the padding.

    Without samples it is two padding tokens: the other ranks cannot compute without this one.
    """
    import torch

    rows = [samples[number] for number in numbers]
    shape = (max(1, len(rows)), max([2, *(len(row.ids) for row in rows)]))
    ids, labels = np.full(shape, pad_id), np.full(shape, IGNORED)
    positions = np.tile(np.arange(shape[1]), (shape[0], 1))
    for at, row in enumerate(rows):
        length = len(row.ids)
        ids[at, :length], labels[at, :length] = row.ids, row.labels
        # Padding goes on counting, as if it belonged to the last piece.
        positions[at] += row.positions[-1] - (length - 1)
        positions[at, :length] = row.positions
    return Batch(*(torch.from_numpy(array).to(device) for array in (ids, labels, positions)))
