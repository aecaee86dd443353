"""Public Verilog benchmarks through the score stage, with canned answers from a real endpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from score_verilog_runs import (
    V2,
    by_model,
    config_of,
    problem_number,
    results_of,
    steps,
)
from scoring_inputs import (
    STEP_RIGHT,
    STEP_SET,
    Declare,
    make_row,
    publish_rows,
    write_step_benchmark,
    write_tiny_model,
)

from evaluation import grade
from evaluation.benchmarks.verilog import grader, self_test
from evaluation.problems import read_problem_sets
from evaluation.score import run_score
from evaluation.verifiers import verilog
from evaluation.verifiers.verilog import BrokenToolchainError
from workspace.errors import MissingToolError, UserError
from workspace.manifest import read_manifest
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, completion, serve

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """Three problems in VerilogEval's layout, each the counter that steps by three."""
    return write_step_benchmark(tmp_path / "step", problems=3)


def test_canned_answers_get_exact_scores_paired_and_by_both_rules(
    tmp_path: Path, step: Path, declare: Declare
) -> None:
    name = declare(V2, steps(3))
    with serve(by_model) as server:
        result = run_score(config_of(tmp_path, step, server.url, name))
        lucky = sum(
            body["model"] == "base" and problem_number(body) == 1 and body["seed"] % 2 == 0
            for body in server.requests
        )
        assert len({body["seed"] for body in server.requests if body["model"] == "base"}) == 6
        assert {body["temperature"] for body in server.requests} == {0.6}
        # The same problem and sample has the same seed for every model.
        assert {b["seed"] for b in server.requests} == {
            b["seed"] for b in server.requests if b["model"] == "tuned"
        }
    [found] = results_of(result.directory)["benchmarks"]
    assert found["scores"]["tuned"]["pass@1"]["value"] == 1
    assert found["scores"]["tuned"]["official_pass@2"]["value"] == 1
    assert found["scores"]["base"]["pass@1"]["value"] == pytest.approx(lucky / 6)
    assert found["comparisons"][0]["difference"] == pytest.approx(1 - lucky / 6)
    assert found["data_hash"]
    assert found["grader_version"].startswith(f"{grader.VERSION}, errata ")
    assert found["tool_versions"]["simulator"].startswith("Icarus Verilog")
    manifest = read_manifest(result.directory)
    assert manifest is not None
    assert manifest.inputs[f"benchmark {name}"] == found["data_hash"]
    samples = pq.read_table(result.directory / "samples.parquet").to_pylist()
    assert len(samples) == 2 * 3 * 2
    wrong = next(s for s in samples if s["outcome"] == "mismatch")
    assert (wrong["score"], wrong["official"]) == (0.0, "mismatch (R)")
    assert "dsm_mark_" in wrong["output"], "the end of what the simulator printed"
    assert name.replace("_", " ") not in (result.directory / "report.html").read_text()
    assert "VerilogEval v2 code completion" in (result.directory / "report.html").read_text()


def test_a_problem_that_upstream_breaks_counts_by_its_rules_alone(
    tmp_path: Path, step: Path, declare: Declare
) -> None:
    """The bench's guard prints TIMEOUT, at which upstream's reader stops."""
    bench = next(step.glob("*002*_test.sv"))
    bench.write_text(
        self_test._BENCH.replace(
            "  assign tb_match",
            '  initial begin #200 $display("TIMEOUT"); $finish(); end\n  assign tb_match',
        )
    )
    name = declare(V2, steps(3))
    with serve(lambda body, _: completion(STEP_RIGHT)) as server:
        models = (f"m={server.url}#m",)
        result = run_score(config_of(tmp_path, step, server.url, name, models=models))
    [found] = results_of(result.directory)["benchmarks"]
    assert found["scores"]["m"]["pass@1"]["value"] == 1
    assert found["scores"]["m"]["official_pass@1"]["value"] == pytest.approx(2 / 3)


def test_excluded_problems_leave_the_audited_score_only(tmp_path: Path, declare: Declare) -> None:
    """One reference of eleven cannot run: no answer to it can be judged."""
    source = write_step_benchmark(tmp_path / "eleven", problems=11)
    next(source.glob("*007*_ref.sv")).write_text("module RefModule(input nothing); endmodule\n")
    with serve(lambda body, _: completion(STEP_RIGHT)) as server:
        result = run_score(
            config_of(
                tmp_path, source, server.url, declare(V2, steps(11)),
                models=(f"m={server.url}#m",), samples_per_problem=1,
            )
        )  # fmt: skip
    [found] = results_of(result.directory)["benchmarks"]
    [(name, why)] = found["excluded"].items()
    assert "007" in name
    assert "cannot run here" in why
    assert found["scores"]["m"]["pass@1"] | {"low": 0} == {
        "value": 1, "low": 0, "high": 1, "problems": 10,
    }  # fmt: skip
    assert found["scores"]["m"]["official_pass@1"]["value"] == pytest.approx(10 / 11)


def test_the_command_of_the_manual_scores_folders_on_public_and_own_problems(
    tmp_path: Path, tiny_model: Path, step: Path
) -> None:
    workspace = Workspace(tmp_path / "ws")
    publish_rows(workspace, [make_row(f"r{i}", f"How wide is bus {i}?", str(i)) for i in range(3)])
    tuned = write_tiny_model(tmp_path / "tuned", seed=1)
    ran = subprocess.run(
        [
            sys.executable, "-m", "flows.score", "--workspace", str(workspace.root),
            "--models", f"base={tiny_model},tuned={tuned}",
            "--benchmarks", f"{STEP_SET}={step},closed_book",
            "--samples-per-problem", "2", "--ks", "1,2", "--max-answer-tokens", "8",
            "--dtype", "float32",
        ],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f"{STEP_SET} (pass@1, 3 problems)" in ran.stdout
    assert "official" not in ran.stdout, "a set of one's own has no upstream"
    assert "tuned minus base" in ran.stdout
    [folder] = [path for path in workspace.evaluations.iterdir() if path.is_dir()]
    names = [found["name"] for found in results_of(folder)["benchmarks"]]
    assert names == [STEP_SET, "domain_qa_closed_book"]
    page = (folder / "report.html").read_text()
    assert "official_pass@1" not in page


BREAKS: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], type[Exception], str]] = {
    "a missing file": (
        lambda folder, _: next(folder.glob("*002*_test.sv")).unlink(),
        UserError, "Prob002_step_test.sv is missing",
    ),
    "no simulator": (
        lambda _, patch: patch.setattr(verilog, "tool_version", lambda: ""),
        MissingToolError, "iverilog",
    ),
    "another simulator": (
        lambda _, patch: patch.setattr(verilog, "tool_version", lambda: "Icarus Verilog 13.0"),
        UserError, "13.0.*11 and Icarus Verilog 12",
    ),
    "references that do not run": (
        lambda folder, _: [
            path.write_text("module RefModule(input nothing); endmodule\n")
            for path in folder.glob("*_ref.sv")
        ] and None,
        BrokenToolchainError, "3 of 3 references",
    ),
    "an empty folder": (
        lambda folder, _: [path.unlink() for path in folder.iterdir()] and None,
        UserError, "upstream's dataset folder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_what_cannot_be_scored_is_said_before_anything_is_asked(
    tmp_path: Path, step: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    spoil, error, said = BREAKS[name]
    spoil(step, monkeypatch)
    with serve(by_model) as server:
        with pytest.raises(error, match=said):
            run_score(config_of(tmp_path, step, server.url))
        assert not server.requests


def test_a_later_benchmark_that_cannot_be_graded_stops_the_first_as_well(
    tmp_path: Path, step: Path
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(
        json.dumps({"id": "m", "prompt": "p", "reference": "module m(output q);endmodule"})
    )
    with serve(by_model) as server:
        config = config_of(
            tmp_path, step, server.url, benchmarks=(f"{STEP_SET}={step}", f"own={own}")
        )
        with pytest.raises(UserError, match="its reference makes no task"):
            run_score(config)
        assert not server.requests


def test_score_and_grade_give_the_same_verdicts(shared_data: Path, tmp_path: Path) -> None:
    """References and mutants of upstream's problems, by the stage and by the grading command."""
    source = shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"
    url = "http://127.0.0.1:9/v1"
    limited = config_of(tmp_path, source, url, V2, limit=12, models=(f"m={url}#m",))
    [chosen] = read_problem_sets(
        Workspace(limited.workspace), "dsm", limited.benchmarks, limit=12, seed=0
    ).sets
    codes = {}
    for row in chosen.rows:
        right = row["answer"].replace("RefModule", "TopModule")
        codes[json.loads(row["prompt_json"])[-1]["content"]] = (right, right.replace("&", "|"))

    def canned(body: dict[str, Any], number: int) -> Answer:
        return completion(codes[body["messages"][-1]["content"]][body["seed"] % 2])

    with serve(canned) as server:
        result = run_score(limited.model_copy(update={"models": (f"m={server.url}#m",)}))
    samples = pq.read_table(result.directory / "samples.parquet").to_pylist()
    assert len(samples) == 24
    answers = tmp_path / "answers.jsonl"
    answers.write_text(
        "".join(
            json.dumps({"task_id": s["row_id"], "sample": s["sample"], "answer": s["answer"]})
            + "\n"
            for s in samples
        )
    )
    out = tmp_path / "verdicts.jsonl"
    assert grade.main([
        "--benchmark", f"{V2}={source}", "--answers", str(answers), "--out", str(out),
        "--cache", str(tmp_path / "other cache"), "--json", str(tmp_path / "summary.json"),
        "--only-answered",
    ]) == 0  # fmt: skip
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(v["task_id"], v["sample"]): (v["verdict"], v["official"]) for v in lines} == {
        (s["row_id"], s["sample"]): (s["outcome"], s["official"]) for s in samples
    }
    scores = results_of(result.directory)["benchmarks"][0]["scores"]["m"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    for rules, prefix in (("audited", ""), ("official", "official_")):
        assert scores[f"{prefix}pass@1"]["problems"] == summary[rules]["problems"]
        for field in ("value", "low", "high"):
            assert scores[f"{prefix}pass@1"][field] == pytest.approx(
                summary[rules]["pass_at"][0][field]
            )
    assert 0 < scores["pass@1"]["value"] < 1 or len({s["outcome"] for s in samples}) > 1
