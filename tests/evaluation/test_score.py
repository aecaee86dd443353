"""The whole stage with tiny models: results, resume after a kill, registry, reproducibility."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scoring_inputs import COUNTER, make_row, publish_rows, write_tiny_model

from evaluation import generation, leaderboard
from evaluation.benchmarks.problem_set import ProblemSet
from evaluation.score import plan, process, publish, run_score
from evaluation.score_config import ScoreConfig
from evaluation.verifiers import verilog
from evaluation.verifiers.verilog import BrokenToolchainError, Golden, record_golden
from workspace import registry
from workspace.errors import MissingInputError, MissingToolError, UserError
from workspace.manifest import read_manifest
from workspace.paths import Workspace

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


def rows() -> list[dict[str, Any]]:
    """Five questions of each kind, two RTL problems, one row that no benchmark takes."""
    golden = record_golden(COUNTER, "counter", cycles=32)
    assert isinstance(golden, Golden)
    before, after = COUNTER.split("    if (rst)")[0], "endmodule\n"
    found = [
        make_row(f"closed{i}", f"What is the width of bus {i}?", str(i), fact_id=f"f{i // 2}")
        for i in range(5)
    ]
    found += [
        make_row(
            f"open{i}",
            f"The clock runs at {i} MHz. How fast is the clock?",
            f"{i} MHz",
            setting="open_book",
            verifier="numeric",
            ground_truth=json.dumps({"value": i, "unit": "MHz"}),
        )
        for i in range(5)
    ]
    found += [
        make_row(
            f"rtl{i}",
            f"Complete number {i}:\n{before}",
            "if (rst) q <= 0; else if (en) q <= q + 1;",
            setting="skill",
            verifier="verilog_sim",
            ground_truth=golden.ground_truth(before, after),
        )
        for i in range(2)
    ]
    return [*found, make_row("other", "?", "x", setting="skill")]


@pytest.fixture(scope="module")
def published_rows() -> list[dict[str, Any]]:
    return rows()


@pytest.fixture
def workspace(tmp_path: Path, tiny_model: Path, published_rows: list[dict[str, Any]]) -> Workspace:
    """A data set, and a registered model whose base is the tiny one."""
    workspace = Workspace(tmp_path / "ws")
    publish_rows(workspace, published_rows)
    trained = write_tiny_model(workspace.run("r") / "final", seed=1)
    registry.register(
        workspace,
        "dsm",
        run="r",
        path=str(trained.relative_to(workspace.root)),
        base_model=str(tiny_model),
        lineage={"dataset": "k1"},
    )
    return workspace


def config_of(workspace: Workspace, **settings: Any) -> ScoreConfig:
    return ScoreConfig(
        workspace=workspace.root, dtype="float32", samples_per_problem=2, ks=(1, 2), **settings
    )


def test_base_and_tuned_are_scored_side_by_side(workspace: Workspace) -> None:
    result = run_score(config_of(workspace))
    assert not result.skipped
    summary = json.loads((result.directory / "results.json").read_text())
    assert [m["label"] for m in summary["models"]] == ["dsm:1 base", "dsm:1"]
    assert [(b["name"], b["problems"]) for b in summary["benchmarks"]] == [
        ("domain_qa_open_book", 5),
        ("domain_qa_closed_book", 5),
        ("rtl_completion", 2),
    ]
    rtl = summary["benchmarks"][2]
    assert set(rtl["scores"]["dsm:1"]) == {"pass@1", "pass@2", "compiles"}
    assert sum(rtl["outcomes"]["dsm:1"].values()) == 2 * 2
    for benchmark in summary["benchmarks"]:
        [comparison] = benchmark["comparisons"]
        assert comparison["baseline"] == "dsm:1 base"
        assert comparison["low"] <= comparison["difference"] <= comparison["high"]
        assert benchmark["without_verdict"] == 0

    samples = pq.read_table(result.directory / "samples.parquet").to_pylist()
    assert len(samples) == 2 * (5 + 5 + 2 * 2)
    assert len({(s["row_id"], s["model"], s["sample"]) for s in samples}) == len(samples)

    manifest = read_manifest(result.directory)
    assert manifest is not None
    assert manifest.rejects == {"no_benchmark": 1}
    assert manifest.inputs["simulator"].startswith("Icarus Verilog")
    assert {f.path for f in manifest.files} == {"results.json", "samples.parquet", "report.html"}
    assert not (result.directory / ".work").exists() or not any(
        (result.directory / ".work").iterdir()
    )
    assert {"torch", "transformers", "simulator"} <= rtl["tool_versions"].keys()
    for group in leaderboard.build(workspace).groups:
        assert {row.model for row in group.rows} == {"dsm:1 base", "dsm:1"}, "one table"
        assert {("dtype", "float32"), ("engine", "transformers")} <= {*group.measured.answering}
    recorded = registry.versions(workspace, "dsm")[0].scores
    score = recorded["domain_qa_closed_book/accuracy"]
    assert score.value == pytest.approx(
        summary["benchmarks"][1]["scores"]["dsm:1"]["accuracy"]["value"], abs=1e-6
    )
    assert (score.evaluation, score.date) == (result.directory.name, manifest.created)
    # No run of this workspace published the folder: it is left as it was.
    assert not (workspace.run("r") / "final" / "README.md").exists()

    assert run_score(config_of(workspace)).skipped
    assert run_score(config_of(workspace, workers=1)).skipped


def test_a_killed_run_goes_on_to_the_same_answers(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(workspace, batch_size=2, benchmarks=("rtl_completion",))
    whole = plan(config)
    for shard in whole.shards:
        process(config, shard)
    journals = sorted(workspace.answers.glob("*.jsonl"))
    assert len(journals) == 2
    answers = [j.read_text() for j in journals]

    # As a kill leaves it: one batch whole, the next answer torn, nothing graded.
    for journal, text in zip(journals, answers, strict=True):
        lines = text.splitlines(keepends=True)
        journal.write_text("".join(lines[:2]) + lines[2][:7])
    for graded in whole.work.glob("*/graded.json"):
        graded.unlink()
    generated: list[int] = []
    seed = generation._seed_torch
    monkeypatch.setattr(
        generation,
        "_seed_torch",
        lambda number: (generated.append(number), seed(number)),
    )
    for shard in whole.shards:
        process(config, shard)
    assert len(generated) == 2, "only the missing batch of each model is generated again"
    assert [j.read_text() for j in journals] == answers
    done = sorted(whole.work.glob("*/graded.json"))
    aggregates = [json.loads(path.read_text())["lm_eval"] for path in done]
    manifest = publish(config, whole)
    assert manifest.counts_out == {"answers": 8}
    [result] = json.loads((whole.directory / "results.json").read_text())["benchmarks"]
    for shard, aggregate in zip(whole.shards, aggregates, strict=True):
        for metric, score in result["scores"][shard.items[0]].items():
            assert score["value"] == pytest.approx(aggregate[metric]), "lm-eval's own mean"


def test_grading_again_needs_no_weights(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(workspace)
    first = run_score(config)

    def loaded(*_: object) -> None:
        raise AssertionError("the model is opened")

    monkeypatch.setattr(generation, "load", loaded)
    monkeypatch.setattr("evaluation.verifiers.verilog.tool_version", lambda: "Icarus Verilog 12.9")
    second = run_score(config)
    assert second.directory != first.directory
    samples = [
        pq.read_table(result.directory / "samples.parquet").to_pylist()
        for result in (first, second)
    ]
    assert samples[0] == samples[1]


def test_samples_of_one_problem_differ(workspace: Workspace) -> None:
    """Each repeat has a seed of its own; one seed for all would make pass@k equal pass@1."""
    config = config_of(workspace, benchmarks=("rtl_completion",), temperature=1.0)
    result = run_score(config)
    samples = pq.read_table(result.directory / "samples.parquet").to_pylist()
    by_problem: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        by_problem.setdefault((sample["model"], sample["row_id"]), set()).add(sample["answer"])
    assert all(len(answers) == 2 for answers in by_problem.values())


def test_the_key_follows_weights_and_rows_but_not_names(
    workspace: Workspace, tiny_model: Path, published_rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    config = config_of(workspace)
    first = plan(config).key
    other = write_tiny_model(tmp_path / "other", seed=2)
    assert plan(config_of(workspace, models=("base:dsm", str(other)))).key != first
    assert plan(config_of(workspace, seed=1)).key != first
    publish_rows(workspace, published_rows, key="k2")
    assert plan(config).key != first


def test_limit_takes_the_same_choice_each_time(workspace: Workspace) -> None:
    config = config_of(workspace, limit=2, benchmarks=("domain_qa_closed_book",))
    units = [shard.units for shard in plan(config).shards]
    assert units == [2, 2]
    samples = pq.read_table(run_score(config).directory / "samples.parquet")
    assert len(set(samples["row_id"].to_pylist())) == 2


def test_what_is_missing_is_named_with_its_cure(tmp_path: Path, workspace: Workspace) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.build_datasets"):
        plan(ScoreConfig(workspace=tmp_path / "none"))
    with pytest.raises(MissingInputError, match=r"flows\.train"):
        plan(config_of(workspace, name="unknown"))
    with pytest.raises(MissingInputError, match="dsm:7"):
        plan(config_of(workspace, models=("dsm:7",)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config\.json"):
        plan(config_of(workspace, models=(str(tmp_path / "empty"),)))
    with pytest.raises(UserError, match="weights"):
        (tmp_path / "empty" / "config.json").write_text("{}")
        plan(config_of(workspace, models=(str(tmp_path / "empty"),)))


def test_a_prompt_beyond_the_context_is_refused_not_cut(workspace: Workspace) -> None:
    publish_rows(workspace, [make_row("long", "x " * 5000, "y")], key="k3")
    with pytest.raises(UserError, match=r"row long.*max_prompt_tokens"):
        run_score(config_of(workspace))


def without(folder: Path, *programs: str) -> str:
    """A PATH with what the sandbox and the graders start, but for `programs`."""
    folder.mkdir()
    for name in ("iverilog", "vvp", "yosys", "sh", "bwrap", "prlimit", "true", "git"):
        found = shutil.which(name)
        if found and name not in programs:
            (folder / name).symlink_to(found)
    return str(folder)


def own_modules(tmp_path: Path) -> tuple[str, ...]:
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"id": "m", "prompt": "p", "reference": COUNTER}) + "\n")
    return (f"own={own}",)


@pytest.mark.parametrize("what", ["rows", "own modules", "one row of many"])
@pytest.mark.parametrize("fault", ["iverilog", "vvp", "version", "self-test"])
def test_nothing_is_generated_for_verilog_rows_that_cannot_be_judged(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, fault: str
) -> None:
    benchmarks = own_modules(tmp_path) if what == "own modules" else ("rtl_completion",)
    if what == "one row of many":
        golden = record_golden(COUNTER, "counter", cycles=32)
        assert isinstance(golden, Golden)
        proved = {"verifier": "verilog_equiv", "ground_truth": golden.ground_truth()}
        publish_rows(workspace, [*rows(), make_row("proved", "A counter?", "x", **proved)], "k9")
        benchmarks = ("domain_qa_open_book", "domain_qa_closed_book")
    error, said = BreaksSimulator(monkeypatch, tmp_path / "bin").by(fault)
    with pytest.raises(error, match=said):
        run_score(config_of(workspace, benchmarks=benchmarks))
    assert not workspace.answers.exists(), "an answer was generated"
    assert not list(workspace.evaluations.glob("*/results.json"))


class BreaksSimulator:
    """Takes the simulator away, or makes it one that nothing may be judged with."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch, self.folder = patch, folder

    def by(self, fault: str) -> tuple[type[Exception], str]:
        """The error that must follow, and a part of what it says."""
        if fault in ("iverilog", "vvp"):
            self.patch.setenv("PATH", without(self.folder, fault))
            return MissingToolError, "apt install iverilog"
        if fault == "version":
            self.patch.setattr(verilog, "tool_version", lambda: "Icarus Verilog 13.0")
            return UserError, "Icarus Verilog 13.0: answers are judged with"
        verilog.self_test.cache_clear()
        self.patch.setattr(verilog, "_BAD", verilog._GOOD)  # the wrong counter passes
        return BrokenToolchainError, "misjudges a counter"


def test_a_row_that_is_proved_needs_yosys_before_anything_is_generated(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proved = {"verifier": "verilog_equiv", "ground_truth": "{}"}
    publish_rows(workspace, [*rows(), make_row("proved", "A counter?", "x", **proved)], "k9")
    monkeypatch.setenv("PATH", without(tmp_path / "bin", "yosys"))
    with pytest.raises(MissingToolError, match="apt install yosys"):
        run_score(config_of(workspace, benchmarks=("domain_qa_closed_book",)))
    assert not workspace.answers.exists()


def test_a_machines_fault_while_grading_leaves_answers_out_instead_of_failing_them(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before anything is generated, a missing simulator stops the run; this one goes later."""
    prepare = ProblemSet.prepare

    def then_it_goes(problems: ProblemSet) -> Any:
        monkeypatch.undo()
        found = prepare(problems)
        monkeypatch.setattr(ProblemSet, "prepare", then_it_goes)
        monkeypatch.setattr(verilog, "_installed", lambda: False)
        return found

    monkeypatch.setattr(ProblemSet, "prepare", then_it_goes)
    result = run_score(config_of(workspace, benchmarks=("rtl_completion",)))
    summary = json.loads((result.directory / "results.json").read_text())
    assert summary["benchmarks"][0]["without_verdict"] == 8
    assert summary["benchmarks"][0]["scores"]["dsm:1"] == {}
    assert result.manifest.rejects["infra:iverilog"] == 8
    assert "no verdict" in (result.directory / "report.html").read_text()
