"""What a row generator is, and how one runs over a document."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from training.data.documents import Document
from training.data.rows import Draft, Reject
from workspace.ids import derive_id


class Limits(NamedTuple):
    """Sizes that generators respect."""

    max_prompt_tokens: int = 200
    max_rows_per_unit: int = 4  # per table, chunk or module and generator
    max_rtl_tokens: int = 600
    max_rtl_lines: int = 60
    rtl_cycles: int = 128
    rtl_share: float = 1.0  # of the training modules that are simulated
    choice_rows: int = 0  # multiple-choice questions proposed per table


class Source(NamedTuple):
    """One context: its id (also the seed of its randomness) and the unit it belongs to."""

    context_id: str
    unit_id: str


ContextT = TypeVar("ContextT")


@dataclass(frozen=True)
class Generator(Generic[ContextT]):
    """`contexts` yields (source, context) pairs; `generate` makes a row of one or says why not.

    A unit of which nothing can be asked is yielded once, with a `Reject` in the context's place.
    """

    name: str
    version: str
    contexts: Callable[[Document, Limits], Iterator[tuple[Source, ContextT | Reject]]]
    generate: Callable[[ContextT, random.Random], Draft | Reject]

    def random(self, seed: int, source: Source) -> random.Random:
        """The random source of one context."""
        return random.Random(derive_id(self.name, self.version, seed, source.context_id))
