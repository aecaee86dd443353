"""This project's reward in the form that verl calls: `custom_reward_function.path` names this file.

verl takes a number for every answer. An answer that cannot be judged (a missing simulator) has no
honest one, so the run ends with an error, which a later attempt may outlive; an answer whose own
proof never ends is wrong.
"""

from __future__ import annotations

import json
from typing import Any

from evaluation.verifiers import verify
from workspace.errors import TransientError


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> float:
    """The verifier's score in [0, 1] of one answer; `ground_truth` is that of `views/verl_rl`."""
    truth = json.loads(ground_truth)
    verdict = verify(truth["verifier"], truth["ground_truth"], solution_str)
    if verdict.outcome == "undecided":
        return 0.0
    if verdict.score is None:
        raise TransientError(f"{data_source}: the verifier gave no verdict: {verdict.outcome}")
    return verdict.score
