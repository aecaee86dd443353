"""Answers are judged longest first, equal ones once, and never again at the same sandbox level."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from scoring_inputs import COUNTER, STEP_RIGHT, STEP_SET, STEP_WRONG, write_step_benchmark

from evaluation.benchmarks import grading
from evaluation.benchmarks.verilog import self_test
from evaluation.benchmarks.verilog.answers import Answer, Verdicts
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.grader import Judgement, ProblemGrader
from evaluation.benchmarks.verilog.problems import read_benchmark
from evaluation.benchmarks.verilog.run import grade_answers
from evaluation.verifiers import Verdict, sandbox, verify
from evaluation.verifiers.verilog import Golden, record_golden

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

WRONG = COUNTER.replace("q + 4'd1", "q + 4'd2")


def doc(cycles: int, cache: Path | None = None) -> dict[str, Any]:
    golden = record_golden(COUNTER, "counter", cycles=cycles)
    assert isinstance(golden, Golden)
    return {
        "verifier": "verilog_sim",
        "ground_truth": golden.ground_truth(),
        "cache": str(cache) if cache else "",
    }


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What is really judged, in its order: one worker takes one after the other."""
    found: list[tuple[str, str, str]] = []

    def listed(verifier: str, ground_truth: str, answer: str) -> Verdict:
        found.append((verifier, ground_truth, answer))
        return verify(verifier, ground_truth, answer)

    monkeypatch.setattr(grading, "verify", listed)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    return found


def outcomes(graded: list[list[str]]) -> list[list[str]]:
    return [[grading.unpack(text).outcome for text in texts] for texts in graded]


def test_rows_with_the_longest_simulation_are_judged_first_and_equal_answers_once(
    judged: list[tuple[str, str, str]],
) -> None:
    short, long, middle = doc(32), doc(512), doc(128)
    question = {"verifier": "exact", "ground_truth": json.dumps({"value": "4"}), "cache": ""}
    graded = grading.grade(
        [[COUNTER, WRONG, COUNTER], ["4"], [COUNTER], [WRONG, "4"]], [short, question, long, middle]
    )
    assert outcomes(graded) == [
        ["pass", "mismatch", "pass"], ["pass"], ["pass"], ["mismatch", "no_top"],
    ]  # fmt: skip
    assert [ground_truth for _, ground_truth, _ in judged] == [
        long["ground_truth"], *[middle["ground_truth"]] * 2, *[short["ground_truth"]] * 2,
        question["ground_truth"],
    ]  # fmt: skip


def test_a_verdict_is_kept_for_its_sandbox_level_alone(
    judged: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = doc(32, tmp_path / "cache")
    first = grading.grade([[COUNTER, WRONG]], [one])
    assert len(judged) == 2
    assert grading.grade([[WRONG, COUNTER]], [one]) == [first[0][::-1]]
    assert len(judged) == 2, "nothing is simulated again"
    other: sandbox.Level = "none" if sandbox.level() != "none" else "rlimit"
    assert grading.unpack(first[0][0]).detail.endswith(f"[{sandbox.level()}]")
    monkeypatch.setattr(sandbox, "level", lambda: other)
    again = grading.grade([[COUNTER]], [one])
    assert len(judged) == 3
    assert grading.unpack(again[0][0]).detail.endswith(f"[{other}]")


def test_a_fault_of_the_machine_is_not_kept(
    judged: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = doc(32, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr("evaluation.verifiers.verilog._installed", lambda: False)
        assert outcomes(grading.grade([[COUNTER]], [one])) == [["infra:iverilog"]]
    assert outcomes(grading.grade([[COUNTER]], [one])) == [["pass"]]


def test_answers_to_the_public_benches_with_the_longest_simulation_are_judged_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_step_benchmark(tmp_path / "step", problems=3)
    for number, turns in ((1, 40), (2, 200_000), (3, 20_000)):
        [bench] = folder.glob(f"Prob00{number}_*_test.sv")
        bench.write_text(self_test._BENCH.replace("repeat (40)", f"repeat ({turns})"))
    order: list[str] = []
    real = ProblemGrader.judge

    def listed(grader: ProblemGrader, code: str) -> Judgement:
        order.append(grader.problem.task_id)
        return real(grader, code)

    monkeypatch.setattr(ProblemGrader, "judge", listed)
    problems = read_benchmark(STEP_SET, folder)
    answers = [
        Answer(task_id, sample, text)
        for task_id in problems
        for sample, text in enumerate((STEP_RIGHT, STEP_WRONG))
    ]
    found = grade_answers(
        problems, answers, Verdicts(), Cache(tmp_path / "cache"), errata={}, use_errata=True,
        workers=1,
    )  # fmt: skip
    assert order == [f"Prob00{number}_step" for number in (2, 2, 3, 3, 1, 1)]
    assert {line.sandbox for line in found.lines} == {sandbox.level()}
    assert [line.verdict for line in found.lines] == ["pass", "mismatch"] * 3
