"""The ledger of samples (`training.ledger`) for TRL's trainers.

Each row of the data set carries its place in the planned order, up to the model: a row to be
learned in the batch of its tokens, a prompt until answers to it are sampled. There it is noted, and
after the optimizer's step a callback writes it down: what counts is what reached the model, not
what was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from training.checkpoints import writer_folder
from training.ledger import Ledger, Origin
from training.trainers.spec import TrainSpec

PLACE = "place"  # column of the data set, and key of a batch


class Fed:
    """What this rank feeds to the model, for its ledger."""

    def __init__(self) -> None:
        self.places: list[int] = []  # of the order, in the current step
        self.resumed_from: Origin | None = None  # known when training begins

    def note(self, inputs: dict[str, Any]) -> None:
        """Take the places out of a batch."""
        self.places += inputs.pop(PLACE).tolist()

    def note_prompts(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take the places out of rows, each of which is there once for every answer to it."""
        self.places += dict.fromkeys(row[PLACE] for row in inputs)
        return [{name: row[name] for name in row if name != PLACE} for row in inputs]


def with_places(rows: Any) -> Any:
    """A data set in the planned order with a column of its rows' places."""
    return rows.add_column(PLACE, list(range(len(rows))))


def carrying_places(collate: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Any:
    """`collate`, which knows nothing of the column, with the places added to its batch."""

    def carry(examples: list[dict[str, Any]]) -> dict[str, Any]:
        import torch

        batch = collate(examples)
        if PLACE in examples[0]:
            batch[PLACE] = torch.tensor([example[PLACE] for example in examples])
        return batch

    return carry


def ledger_callback(
    spec: TrainSpec,
    fed: Fed,
    order: Sequence[int],
    *,
    rows_per_step: int,
    samples: int,
) -> Any:
    """Writes the ledger. It must come before the callback that completes checkpoints.

    `order`: the sample at each place.
    """
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class KeepLedger(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._ledger = Ledger(
                spec.attempt_dir,
                writer_folder(spec.checkpoints, spec.attempt).name,
                rank=args.process_index,
                world_size=args.world_size,
                resumed_from=fed.resumed_from,
                samples=samples,
                rows_per_step=rows_per_step,
            )

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            first = (state.global_step - 1) * rows_per_step
            self._ledger.trained(
                state.global_step,
                [place - first for place in fed.places],
                [order[place] for place in fed.places],
            )
            fed.places.clear()

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._ledger.flush()

        def on_train_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._ledger.flush()
            self._ledger.close()

    return KeepLedger()
