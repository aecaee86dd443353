from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from odd_verifiers import HANGS_WITH

from evaluation.verifiers import Verdict
from training.data.reward import VerifiedReward, dsm_reward, verdict_metrics
from training.data.verdict_pool import Asked, VerdictPool
from training.rollouts import Rollout, RolloutLog, read_rollouts
from workspace.errors import DsmError, UserError

TRUTH = '{"value": "7"}'


@pytest.fixture(scope="module")
def pool() -> Iterator[VerdictPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        made = VerdictPool(2, timeout_s=10, verify="odd_verifiers:odd")
        yield made
        made.close()


def asked(*answers: str) -> list[Asked]:
    return [Asked("exact", TRUTH, answer) for answer in answers]


def test_a_bad_end_costs_one_verdict(pool: VerdictPool) -> None:
    """A hang, a death, an error and a missing tool among right and wrong answers."""
    answers = ("7", "hang", "8", "die", "7", "raise", "tool", "chatty", "7")
    verdicts = pool.verdicts(asked(*answers))
    assert [verdict.score for verdict in verdicts] == [1, None, 0, None, 1, None, None, 0, 1]
    outcomes = [verdict.outcome for verdict in verdicts if verdict.score is None]
    assert outcomes == ["infra:timeout", "infra:crash", "infra:crash", "infra:missing_tool"]
    assert "exit code 3" in verdicts[3].detail
    assert "RecursionError: too deep" in verdicts[5].detail
    assert not running(HANGS_WITH), "what a killed verifier started is gone with it"


def running(command: list[str]) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_text().split("\0")[:-1] == command:
                found.append(int(path.parent.name))
    return found


def test_a_wrong_row_is_the_users_to_mend(pool: VerdictPool) -> None:
    with pytest.raises(UserError, match="unknown verifier 'exakt'"):
        pool.verdicts([Asked("exakt", TRUTH, "7")])
    assert pool.verdicts(asked("7"))[0].passed, "the pool goes on"


def test_a_verifier_that_cannot_be_loaded_is_no_wrong_answer() -> None:
    broken = VerdictPool(1, verify="no_such_module:verify")
    with pytest.raises(DsmError, match="does not start"):
        broken.verdicts(asked("7"))
    broken.close()


def test_metrics_by_kind_of_verifier() -> None:
    kinds = ["exact"] * 4 + ["verilog_sim"] * 2
    verdicts = [
        Verdict(1.0, "pass"),
        Verdict(0.0, "mismatch"),
        Verdict(0.0, "mismatch"),
        Verdict(0.0, "mismatch"),
        Verdict(None, "infra:timeout"),
        Verdict(0.0, "rejected:force"),
    ]
    found = verdict_metrics(kinds, verdicts, group=2)
    assert found == {
        "no_verdict_rate": 1 / 6,
        "gate_reject_rate": 1 / 6,
        "reward/exact": 0.25,
        "no_verdict/exact": 0.0,
        "gate_reject/exact": 0.0,
        "zero_variance/exact": 0.5,
        "reward/verilog_sim": 0.0,
        "no_verdict/verilog_sim": 0.5,
        "gate_reject/verilog_sim": 0.5,
        "zero_variance/verilog_sim": 1.0,
    }


class State:
    global_step = 0


def test_rollouts_are_kept_with_their_rewards(pool: VerdictPool, tmp_path: Path) -> None:
    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    reward = VerifiedReward(pool, 2, RolloutLog(attempt, group=2, total_steps=400).record)
    logged: dict[str, float] = {}
    state = State()
    prompt = [{"role": "user", "content": "3+4?"}]
    for step in range(400):
        state.global_step = step
        answers = [[{"role": "assistant", "content": text}] for text in ("7", "<b>8</b>")]
        rewards = reward(
            prompts=[prompt, prompt],
            completions=answers,
            verifier=["exact", "exact"],
            ground_truth=[TRUTH, TRUTH],
            log_metric=logged.__setitem__,
            trainer_state=state,
        )
        assert rewards == [1.0, 0.0]
    assert logged["reward/exact"] == 0.5
    kept = read_rollouts(tmp_path)
    assert kept[:2] == [
        Rollout(1, "3+4?", "7", 1.0, "pass"),
        Rollout(1, "3+4?", "<b>8</b>", 0.0, "mismatch"),
    ]
    assert kept[-1].step == 400 and len(kept) == 2 * 51

    second = tmp_path / "attempts" / "2"
    second.mkdir()
    again = RolloutLog(second, group=2, total_steps=400)
    again.record(200, [prompt, prompt], ["9", "9"], [Verdict(0.0, "mismatch")] * 2)
    kept = read_rollouts(tmp_path)
    assert kept[-1] == Rollout(200, "3+4?", "9", 0.0, "mismatch")
    assert [rollout.step for rollout in kept].count(200) == 2


def test_the_plain_function_judges_in_processes_too() -> None:
    right, wrong = "Answer: 7", [{"role": "assistant", "content": "8"}]
    assert dsm_reward([right, wrong], ["exact"] * 2, [TRUTH] * 2) == [1.0, 0.0]
