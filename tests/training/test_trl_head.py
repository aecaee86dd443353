"""The head is computed where there is something to learn, and the loss is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from benchmarks.training.tiny_model import write_tiny_model
from training.trainers.rows import IGNORED
from training.trainers.trl_head import score_labelled_tokens_only

pytestmark = pytest.mark.model


def test_unlabelled_positions_cost_no_head(tmp_path: Path) -> None:
    score_labelled_tokens_only()
    model = AutoModelForCausalLM.from_pretrained(write_tiny_model(tmp_path / "tiny"))
    ids = torch.randint(0, 250, (2, 64), generator=torch.Generator().manual_seed(0))
    labels = torch.full_like(ids, IGNORED)
    labels[0, 60:] = ids[0, 60:]
    labels[1, 50:52] = ids[1, 50:52]
    logits = model(ids).logits[:, :-1].flatten(0, 1)
    wanted = cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=IGNORED)
    wanted.backward()
    gradient = model.lm_head.weight.grad.clone()
    model.zero_grad()

    add_fused_lm_head(model)
    with FlopCounterMode(display=False) as few:
        loss = model(ids, labels=labels, fused_lm_head=True).loss
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    torch.testing.assert_close(model.lm_head.weight.grad, gradient)

    with FlopCounterMode(display=False) as every:
        model(ids, labels=ids, fused_lm_head=True)
    # The head's products: two operations for each weight and position that is scored.
    of_a_position = 2 * model.lm_head.weight.numel()
    skipped = (2 * 63 - 6) * of_a_position
    assert every.get_total_flops() - few.get_total_flops() == skipped
