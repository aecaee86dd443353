"""This project's reward in the form that verl calls: `custom_reward_function.path` names this file.

The verdicts come from the same processes, with the same limit of time, as those of our own GRPO
(`training.data.reward`). verl has no answer without a reward: TRL leaves one without a verdict out
(None), here it gets 0.0, which its group takes for a wrong one. So it is counted: `no_verdict` is 1
beside the score, and `outcome` says why (`undecided`, `infra:timeout`, …); verl keeps both with the
answers that it writes (`trainer.rollout_data_dir`). A run in which they are many teaches the wrong
thing: look at their share before its rewards.
"""

from __future__ import annotations

import json
from typing import Any

from training.data.reward import judge, shared_pool
from training.data.verdict_pool import TIMEOUT_S

NO_VERDICT_SCORE = 0.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,
    verifier_timeout_s: float = TIMEOUT_S,
    **_: Any,
) -> dict[str, float | str]:
    """`score` in [0, 1] of one answer, `no_verdict` (0 or 1) and `outcome`.

    `ground_truth` is that of `views/verl_rl`. Raises `UserError` for a row that is wrong itself.
    """
    truth = json.loads(ground_truth)
    [verdict] = judge(
        shared_pool(verifier_timeout_s), [solution_str], [truth["verifier"]],
        [truth["ground_truth"]],
    )  # fmt: skip
    return {
        "score": NO_VERDICT_SCORE if verdict.score is None else verdict.score,
        "no_verdict": float(verdict.score is None),
        "outcome": verdict.outcome,
    }
