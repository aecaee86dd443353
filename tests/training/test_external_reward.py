"""The verifiers as the reward of verl: scores, answers without a verdict, forks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from training.data.reward import shared_pool
from training.data.verdict_pool import TIMEOUT_S, VerdictPool
from training.external.verl_reward import compute_score
from workspace.errors import UserError


def test_the_reward_is_the_verifiers() -> None:
    truth = json.dumps({"verifier": "exact", "ground_truth": json.dumps({"value": "14"})})
    right = {"score": 1.0, "no_verdict": 0.0, "outcome": "pass"}
    assert compute_score("dsm/x", "14", truth) == right
    wrong = compute_score("dsm/x", "15", truth, extra_info={"index": 3}, more=1)
    assert wrong == {"score": 0.0, "no_verdict": 0.0, "outcome": "mismatch"}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("slow", "infra:timeout"), ("die", "infra:crash"), ("raise", "infra:crash"),
        ("tool", "infra:missing_tool"), ("undecided", "undecided"),
    ],
)  # fmt: skip
def test_an_answer_without_a_verdict_is_counted_and_costs_no_run(
    answer: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "data"))
    pool = VerdictPool(1, timeout_s=3, verify="odd_verifiers:odd")
    asked_with: list[float] = []

    def shared(timeout_s: float) -> VerdictPool:
        asked_with.append(timeout_s)
        return pool

    monkeypatch.setattr("training.external.verl_reward.shared_pool", shared)
    truth = json.dumps({"verifier": "exact", "ground_truth": json.dumps({"value": "14"})})
    found = compute_score("dsm/x", answer, truth, verifier_timeout_s=3)
    assert found == {"score": 0.0, "no_verdict": 1.0, "outcome": outcome}
    assert compute_score("dsm/x", "14", truth)["score"] == 1.0, "the next one is judged"
    assert asked_with == [3, TIMEOUT_S]
    pool.close()


def test_a_row_that_is_wrong_itself_ends_the_run() -> None:
    truth = json.dumps({"verifier": "exakt", "ground_truth": json.dumps({"value": "14"})})
    with pytest.raises(UserError, match="unknown verifier 'exakt'"):
        compute_score("dsm/x", "14", truth)


def test_a_fork_has_verdicts_of_its_own() -> None:
    """verl may judge in forked processes, which share the pipes of the pool that was there."""
    mine = shared_pool()
    assert shared_pool() is mine
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"other" if shared_pool() is not mine else b"same")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"other"
