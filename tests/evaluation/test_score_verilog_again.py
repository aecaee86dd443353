"""Verilog benchmarks scored again, after a kill or a change: what is done twice, what is not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from score_verilog_runs import (
    by_model,
    config_of,
    problem_number,
    results_of,
    samples_of,
)
from scoring_inputs import (
    STEP_RIGHT,
    STEP_SET,
    write_step_benchmark,
)

from evaluation.score import plan, run_score
from evaluation.shard import NoVerdictError
from evaluation.verifiers import sandbox, verilog
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, completion, serve

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import sys; from evaluation.score import run_score; "
    "from evaluation.score_config import ScoreConfig; "
    "run_score(ScoreConfig.model_validate_json(sys.argv[1]))"
)


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """Three problems in VerilogEval's layout, each the counter that steps by three."""
    return write_step_benchmark(tmp_path / "step", problems=3)


def test_the_id_follows_the_benchmarks_contents_not_their_place(tmp_path: Path, step: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    first = plan(config_of(tmp_path, step, url)).key
    moved = step.rename(tmp_path / "moved")
    assert plan(config_of(tmp_path, moved, url)).key == first
    bench = next(moved.glob("*001*_test.sv"))
    bench.write_text(bench.read_text().replace("repeat (40)", "repeat (41)"))
    assert plan(config_of(tmp_path, moved, url)).key != first


def test_a_machines_fault_stops_the_score_and_the_next_run_judges_only_the_rest(
    tmp_path: Path, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = STEP_RIGHT.replace("posedge clk", "posedge clk /* STUCK */")
    real = sandbox.run

    def overdue(folder: Path, command: Any, limits: Any, **options: Any) -> sandbox.Finished:
        if any("STUCK" in path.read_text() for path in folder.glob("code.sv")):
            return sandbox.Finished(137, "wall", "", "", 0.0)
        return real(folder, command, limits, **options)

    def half(body: dict[str, Any], number: int) -> Answer:
        return completion(stuck if problem_number(body) == 2 else STEP_RIGHT)

    with serve(half) as server:
        config = config_of(tmp_path, step, server.url, models=(f"m={server.url}#m",))
        monkeypatch.setattr(sandbox, "run", overdue)
        with pytest.raises(NoVerdictError, match=r"2 answers have no verdict \(2 infra:wall\)"):
            run_score(config)
        assert not (plan(config).directory / "results.json").exists()
        monkeypatch.setattr(sandbox, "run", real)
        result = run_score(config)
        assert len(server.requests) == 6, "nothing is asked twice"
    [found] = results_of(result.directory)["benchmarks"]
    assert found["scores"]["m"]["pass@1"]["value"] == 1


def test_another_model_benchmark_or_simulator_costs_only_what_is_new(
    tmp_path: Path, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"id": "q", "prompt": "Say 7 please", "answer": "7"}))

    def canned(body: dict[str, Any], number: int) -> Answer:
        if "Say" in body["messages"][-1]["content"]:
            return completion("7")
        return by_model(body, number)

    with serve(canned) as server:
        one, two = f"base={server.url}#base", f"tuned={server.url}#tuned"

        def asked(**settings: Any) -> int:
            before = len(server.requests)
            result = run_score(config_of(tmp_path, step, server.url, **settings))
            assert not result.skipped
            return len(server.requests) - before

        both = (f"{STEP_SET}={step}", f"own={own}")
        assert asked(models=(one,)) == 3 * 2
        assert asked(models=(one, two), benchmarks=both) == 3 * 2 + 2
        assert asked(models=(one,), samples_per_problem=3) == 3
        monkeypatch.setattr(verilog, "tool_version", lambda: "Icarus Verilog 12.9")
        assert asked(models=(one,)) == 0
        new = f"new={server.url}#base"
        assert asked(models=(new,)) == 3 * 2, "a label stands for weights"
        assert asked(models=(new,), max_answer_tokens=9) == 3 * 2, "another request"
        prompt = next(step.glob("*003*_prompt.txt"))
        prompt.write_text(prompt.read_text() + "// more\n")
        assert asked(models=(one,)) == 3 * 2


def test_after_kill_9_no_answer_is_asked_for_twice(tmp_path: Path, step: Path) -> None:
    enough, killed = threading.Event(), threading.Event()

    def stall_after_four(body: dict[str, Any], number: int) -> Answer:
        if number >= 4 and not killed.is_set():
            enough.set()
            killed.wait(60)
            raise ConnectionAbortedError
        return completion(STEP_RIGHT)

    with serve(stall_after_four) as server:
        config = config_of(
            tmp_path, step, server.url, models=(f"m={server.url}#m",), concurrency=1,
            samples_per_problem=3, ks=(1,),
        )  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, config.model_dump_json()], cwd=REPOSITORY
        )
        assert enough.wait(120)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        killed.set()
        [journal] = Workspace(config.workspace).answers.glob("*.jsonl")
        assert len(journal.read_text().splitlines()) == 4
        with journal.open("a") as stream:
            stream.write('["Prob0')  # as a kill in the middle of a write leaves it
        result = run_score(config)
        asked = Counter(body["seed"] for body in server.requests)
    assert len(asked) == 9
    assert sorted(asked.values()) == [1] * 8 + [2], "only what was under way is asked again"
    [found] = results_of(result.directory)["benchmarks"]
    assert found["samples_per_problem"] == 3
    assert found["scores"]["m"]["pass@1"]["value"] == 1


def test_a_model_folder_killed_with_9_gives_the_answers_of_a_whole_run(
    tmp_path: Path, step: Path, tiny_model: Path
) -> None:
    config = config_of(
        tmp_path, step, "", models=(f"m={tiny_model}",), samples_per_problem=4, ks=(1,),
        batch_size=2, max_answer_tokens=256, dtype="float32", workers=1,
    )  # fmt: skip
    whole = config.model_copy(update={"workspace": tmp_path / "whole"})
    first = run_score(whole)
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, config.model_dump_json()], cwd=REPOSITORY
    )
    answers = Workspace(config.workspace).answers
    while child.poll() is None and lines_in(answers) < 4:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert 4 <= lines_in(answers) < 12
    second = run_score(config)
    assert [row["answer"] for row in samples_of(second.directory)] == [
        row["answer"] for row in samples_of(first.directory)
    ]


def lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
