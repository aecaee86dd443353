"""The reward of reinforcement learning: one function for every kind of row.

    GRPOTrainer(..., reward_funcs=dsm_reward, train_dataset=<views/trl_grpo>)

The verdicts are those of `evaluation.verifiers`, the same that the benchmarks use, given in
processes of their own (`verdict_pool`). A completion without a verdict (a missing simulator, a
verifier that hangs) gets None, which TRL leaves out, and is never taken for a wrong answer.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from evaluation.verifiers import Verdict
from training.data.verdict_pool import TIMEOUT_S, Asked, VerdictPool, default_workers

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
    return [verdict.score for verdict in judge(shared_pool(), completions, verifier, ground_truth)]


def shared_pool(timeout_s: float = TIMEOUT_S) -> VerdictPool:
    """The processes of a caller that has no pool of its own."""
    # A fork has the pipes of its parent's, whose answers it must not take.
    return _pool_of(os.getpid(), timeout_s)


@functools.cache
def _pool_of(process: int, timeout_s: float) -> VerdictPool:
    pool = VerdictPool(default_workers(), timeout_s)
    atexit.register(pool.close)
    return pool


def judge(
    pool: VerdictPool,
    completions: Sequence[Completion],
    kinds: Sequence[str],
    truths: Sequence[str],
) -> list[Verdict]:
    """A verdict per completion, in their order."""
    return pool.verdicts(
        [
            Asked(kind, truth, completion_text(completion))
            for completion, kind, truth in zip(completions, kinds, truths, strict=True)
        ]
    )


class VerifiedReward:
    """`dsm_reward` for our trainer: it also says what the verdicts were.

    Metrics of a step: `no_verdict_rate`; `gate_reject_rate`, answers that were refused unread for
    trying to cheat; for each kind of verifier `reward/<kind>`, `no_verdict/<kind>`,
    `gate_reject/<kind>` and `zero_variance/<kind>`, the share of its groups whose answers were all
    rewarded alike, which teach nothing.
    """

    __name__ = "verified_reward"  # TRL's metrics are called by it

    def __init__(
        self,
        pool: VerdictPool,
        group: int,
        record: Callable[[int, Sequence[Any], Sequence[str], Sequence[Verdict]], None],
    ) -> None:
        """`group` answers in a row are of one prompt; `record` is told of each step's verdicts."""
        self._pool = pool
        self._group = group
        self._record = record

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        verifier: Sequence[str],
        ground_truth: Sequence[str],
        log_metric: Callable[[str, float], None],
        trainer_state: Any,
        **columns: object,
    ) -> list[float | None]:
        verdicts = judge(self._pool, completions, verifier, ground_truth)
        for name, value in verdict_metrics(verifier, verdicts, self._group).items():
            log_metric(name, value)
        texts = [completion_text(completion) for completion in completions]
        self._record(trainer_state.global_step + 1, prompts, texts, verdicts)
        return [verdict.score for verdict in verdicts]


def verdict_metrics(
    kinds: Sequence[str], verdicts: Sequence[Verdict], group: int
) -> dict[str, float]:
    """What `VerifiedReward` logs; groups are consecutive, each of one kind."""
    found = {
        "no_verdict_rate": _share([v.score is None for v in verdicts]),
        "gate_reject_rate": _share([_is_cheat(v) for v in verdicts]),
    }
    for kind in sorted(set(kinds)):
        own = [verdict for of, verdict in zip(kinds, verdicts, strict=True) if of == kind]
        scores = [verdict.score for verdict in own if verdict.score is not None]
        found[f"no_verdict/{kind}"] = _share([v.score is None for v in own])
        found[f"gate_reject/{kind}"] = _share([_is_cheat(v) for v in own])
        if scores:
            found[f"reward/{kind}"] = sum(scores) / len(scores)
        groups = [own[at : at + group] for at in range(0, len(own), group)]
        alike = [len({v.score for v in one if v.score is not None}) <= 1 for one in groups]
        found[f"zero_variance/{kind}"] = _share(alike)
    return found


def _is_cheat(verdict: Verdict) -> bool:
    return verdict.outcome.startswith("rejected:")


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def completion_text(completion: Completion) -> str:
    """The text of a completion, or of the last message of one."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1]["content"]) if completion else ""
