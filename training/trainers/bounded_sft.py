"""TRL's SFT trainer with a bound on the tokens of one forward pass.

A step's rows arrive as one padded batch. It is split into passes of rows of like length, each of
at most `tokens_per_forward` tokens with its padding: memory depends on that number and not on the
rows (eight rows of 600 tokens needed 11 GB of SmolLM2-135M), and little is spent on padding. The
gradients add up to those of the whole batch, because the loss is divided by the step's number of
learned tokens before it is split.
"""

from __future__ import annotations

import contextlib
from typing import Any

from training.trainers.sample_order import split_by_tokens
from training.trainers.trl_head import score_labelled_tokens_only
from training.trainers.trl_ledger import Fed, carrying_places


def make_bounded_trainer(tokens_per_forward: int, fed: Fed, **arguments: Any) -> Any:
    """An `SFTTrainer(**arguments)`; its batches are whole steps, padded on the right.

    `fed` learns which rows of the data set reach the model.
    """
    import torch
    import torch.distributed as dist
    from trl import SFTTrainer

    score_labelled_tokens_only()

    class BoundedSftTrainer(SFTTrainer):  # type: ignore[misc]
        def training_step(
            self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
        ) -> Any:
            fed.note(inputs)
            parts = self._split(inputs)
            total = torch.zeros((), device=self.args.device)
            for number, part in enumerate(parts, start=1):
                last = number == len(parts)
                with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                    total += super().training_step(model, part, num_items_in_batch)
            return total

        def _split(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
            lengths = inputs["attention_mask"].sum(dim=1).tolist()
            groups = split_by_tokens(lengths, tokens_per_forward)
            if self.args.world_size > 1:
                # Metrics are gathered in each pass, so every rank must make as many.
                count = torch.tensor(len(groups), device=self.args.device)
                dist.all_reduce(count, op=dist.ReduceOp.MAX)
                groups = split_by_tokens(lengths, tokens_per_forward, at_least=int(count))
            return [
                {
                    name: tensor[rows][:, : max(lengths[row] for row in rows)]
                    for name, tensor in inputs.items()
                }
                for rows in groups
            ]

    trainer = BoundedSftTrainer(**arguments)
    trainer.data_collator = carrying_places(trainer.data_collator)
    return trainer
