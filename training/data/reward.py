"""The reward of reinforcement learning: one function for every kind of row.

    GRPOTrainer(..., reward_funcs=dsm_reward, train_dataset=<views/trl_grpo>)

The verdicts are those of `evaluation.verifiers`, the same that the benchmarks use. A completion
without a verdict (a missing simulator, a broken sandbox) gets None, which TRL leaves out, and is
never taken for a wrong answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from evaluation.verifiers import verify

Completion: TypeAlias = str | Sequence[dict[str, Any]]


def dsm_reward(
    completions: Sequence[Completion],
    verifier: Sequence[str],
    ground_truth: Sequence[str],
    **columns: object,
) -> list[float | None]:
    """One score in [0, 1] per completion, None without a verdict.

    `completions` are texts or message lists; the other columns of the view are not needed.
    """
    return [
        verify(kind, truth, completion_text(completion)).score
        for completion, kind, truth in zip(completions, verifier, ground_truth, strict=True)
    ]


def completion_text(completion: Completion) -> str:
    """The text of a completion, or of the last message of one."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1]["content"]) if completion else ""
