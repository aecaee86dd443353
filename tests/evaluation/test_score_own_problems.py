"""Your own problem files and lm-eval's tasks through the score stage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_inputs import COUNTER, make_row, publish_rows

from evaluation import generation
from evaluation.benchmarks.harness_tasks import ONLINE
from evaluation.benchmarks.local_set.reader import read_local_set
from evaluation.score import plan, process, run_score
from evaluation.score_config import ScoreConfig
from workspace.errors import MissingInputError, UserError
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, completion, serve

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "problems"
WRONG = COUNTER.replace("q + 4'd1", "q + 4'd2")
BENCH = """module check;
  reg clk = 0, rst = 1, en = 1; wire [3:0] q; integer wrong = 0;
  counter dut(.clk(clk), .rst(rst), .en(en), .q(q));
  always #5 clk = ~clk;
  initial begin
    #12 rst = 0; #100 if (q !== 4'd10) wrong = 1;
    if (wrong) $display("Failed: q is %d", q); else $display("Your Design Passed");
    $finish;
  end
endmodule
"""
QUESTIONS = [
    {"id": "volts", "prompt": "Core supply?", "answer": "1.8 V", "verifier": "numeric",
     "ground_truth": {"value": 1.8, "unit": "V"}},
    {"id": "bus", "prompt": "Which bus?", "answer": "AXI", "kind": "terms", "system": "Be brief."},
]  # fmt: skip


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def score(tmp_path: Path, source: Path, answers: dict[str, str]) -> dict[str, Any]:
    """The one result of a model that answers prompts which hold a key of `answers` with its text"""

    def canned(body: dict[str, Any], number: int) -> Answer:
        asked = body["messages"][-1]["content"]
        return completion(next(text for key, text in answers.items() if key in asked))

    with serve(canned) as server:
        result = run_score(
            ScoreConfig(
                workspace=tmp_path / "ws", models=(f"m={server.url}#m",),
                benchmarks=(f"own={source}",), samples_per_problem=2, ks=(1,),
            )
        )  # fmt: skip
    [found] = json.loads((result.directory / "results.json").read_text())["benchmarks"]
    assert found["name"] == "own"
    rows = pq.read_table(result.directory / "samples.parquet").to_pylist()
    return {**found, "samples": rows}


def test_questions_are_graded_by_their_verifiers(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "q.jsonl", QUESTIONS)
    found = score(tmp_path, source, {"supply": "1800 mV", "bus": "APB"})
    assert found["scores"]["m"]["accuracy"]["value"] == 0.5
    assert {row["row_id"]: row["outcome"] for row in found["samples"]} == {
        "volts": "pass", "bus": "mismatch",
    }  # fmt: skip
    assert {row["task"] for row in found["samples"]} == {"question", "terms"}


def test_modules_must_behave_like_their_reference(tmp_path: Path) -> None:
    lines = [{"id": n, "prompt": f"Counter {n}", "reference": COUNTER} for n in ("a", "b")]
    found = score(
        tmp_path, write_lines(tmp_path / "m.jsonl", lines), {"Counter a": COUNTER, "": WRONG}
    )
    assert found["scores"]["m"]["pass@1"]["value"] == 0.5
    assert found["outcomes"]["m"] == {"mismatch": 2, "pass": 2}


def test_a_test_bench_of_your_own_judges(tmp_path: Path) -> None:
    lines = [
        {"id": n, "prompt": f"Counter {n}", "reference": COUNTER, "testbench": BENCH}
        for n in ("a", "b", "c")
    ]
    forged = WRONG.replace("endmodule", 'initial $display("Your Design Passed");\nendmodule')
    answers = {"Counter a": COUNTER, "Counter b": WRONG, "Counter c": forged}
    found = score(tmp_path, write_lines(tmp_path / "b.jsonl", lines), answers)
    assert found["scores"]["m"]["pass@1"]["value"] == pytest.approx(1 / 3)
    assert found["outcomes"]["m"]["pass"] == 2
    assert "official_pass@1" not in found["scores"]["m"]


@pytest.mark.parametrize("kind", ["questions", "modules", "benches"])
def test_the_references_of_every_shipped_example_are_right(tmp_path: Path, kind: str) -> None:
    source = EXAMPLES / f"{kind}.jsonl"
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    answers = {line["prompt"]: line.get("reference") or line["answer"] for line in lines}
    found = score(tmp_path, source, answers)
    assert found["scores"]["m"][found["metric"]]["value"] == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no problems"),
        ([[1]], "line 1: a JSON object"),
        ([{"id": "a"}], "line 1: no text 'prompt'"),
        ([{"id": "a", "prompt": "p", "anwser": "x"}], "line 1: unknown key 'anwser'"),
        ([{"id": "a", "prompt": "p"}], "line 1: 'answer'"),
        ([*QUESTIONS, QUESTIONS[0]], "line 3: id 'volts' is there already"),
        ([QUESTIONS[0], {"id": "m", "prompt": "p", "reference": COUNTER}], "one kind a file"),
        ([{**QUESTIONS[0], "verifier": "oracle"}], "line 1: 'verifier' is one of"),
        ([{**QUESTIONS[0], "answer": "2 V"}], "does not pass its own verifier"),
        ([{"id": "m", "prompt": "p", "reference": COUNTER, "top": "x"}], "'top' must name"),
        ([{"id": "m", "prompt": "p", "testbench": BENCH}], "needs a 'reference'"),
        ([{"id": "m", "prompt": "p", "reference": COUNTER, "testbench": "//"}], "no module"),
        ([{"id": "\ud800", "prompt": "p", "answer": "x"}], "line 1: 'id' must be a text"),
        ([{"id": "m", "prompt": "p", "reference": WRONG, "testbench": BENCH}], "own reference"),
        ([{"id": "m", "prompt": "p", "reference": "module m(output q); endmodule"}], "makes no ta"),
    ],
)
def test_a_fault_in_the_file_is_named_before_anything_is_asked(
    tmp_path: Path, lines: list[Any], said: str
) -> None:
    source = write_lines(tmp_path / "own.jsonl", lines)
    with pytest.raises(UserError, match=said):
        score(tmp_path, source, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = ("id", "prompt", "system", "kind", "answer", "verifier", "ground_truth", "top", "reference",
        "testbench", "header", "other")  # fmt: skip


@settings(max_examples=60)
@given(st.lists(JSON | st.dictionaries(st.sampled_from(KEYS), st.text(max_size=5) | JSON)))
def test_any_lines_are_problems_or_a_named_fault(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("own")
    source = write_lines(folder / "own.jsonl", lines)
    try:
        found = read_local_set("own", source, limit=None, seed=0, cache=folder / "cache")
    except UserError as error:
        assert "own.jsonl" in str(error)
    else:
        assert len(found.rows) == len(lines)


def test_names_and_paths_that_cannot_be_meant(tmp_path: Path) -> None:
    for benchmark, said in (
        ("closed_book=x", "takes no path"),
        ("rtllm_v1.1", "rtllm_v1.1=DIR"),
        ("own=", "no path follows"),
        ("a/b", "letters, digits"),
    ):
        with pytest.raises(ValueError, match=said):
            ScoreConfig(workspace=tmp_path, benchmarks=(benchmark,))
    with pytest.raises(ValueError, match="closed_book is there twice"):
        ScoreConfig(workspace=tmp_path, benchmarks=("closed_book", "domain_qa_closed_book"))
    config = {"workspace": tmp_path, "models": ("http://h/v1#m",)}
    with pytest.raises(UserError, match="does not exist"):
        plan(ScoreConfig(**config, benchmarks=(f"own={tmp_path / 'none.jsonl'}",)))
    with pytest.raises(UserError, match=r"did you mean rtllm_v1\.1\?"):
        plan(ScoreConfig(**config, benchmarks=(f"rtllm_v1={tmp_path}",)))
    with pytest.raises(MissingInputError, match="build_datasets"):
        plan(ScoreConfig(**config, benchmarks=("closed_book",)))


def test_table_questions_are_a_benchmark_of_their_own(tmp_path: Path) -> None:
    rows = [make_row(f"t{i}", "?", "x", setting="open_book", table_id=f"{i}") for i in range(2)]
    publish_rows(Workspace(tmp_path), [*rows, make_row("p", "?", "x", setting="open_book")])
    names = ("open_book", "table_qa")
    config = ScoreConfig(workspace=tmp_path, models=("http://h/v1#m",), benchmarks=names)
    assert [shard.units for shard in plan(config).shards] == [3, 2]
    publish_rows(Workspace(tmp_path), [make_row("p", "?", "x", setting="open_book")], key="k2")
    with pytest.raises(MissingInputError, match="no test rows for table_qa"):
        plan(config)


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """A multiple-choice task of lm-eval with its data beside it."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    docs = [{"q": f"{a} plus 1 is", "choices": [str(a + 1), str(a + 2)], "gold": a % 2} for a in
            range(5)]  # fmt: skip
    write_lines(folder / "sums.jsonl", docs)
    task = {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "sums.jsonl")},
                           "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_target": "gold",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True}
                        for m in ("acc_norm", "acc")],
    }  # fmt: skip
    (folder / "sums.yaml").write_text(yaml.safe_dump(task))
    return folder


def test_a_task_of_lm_eval_keeps_its_metric_and_resumes(
    tmp_path: Path, task_folder: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ScoreConfig(
        workspace=tmp_path / "ws", models=(f"m={tiny_model}",), benchmarks=(f"sums={task_folder}",),
        dtype="float32", batch_size=4,
    )  # fmt: skip
    planned = plan(config)
    [shard] = planned.shards
    assert shard.units == 10, "two choices a document"
    process(config, shard)
    [journal] = Workspace(config.workspace).answers.glob("*.jsonl")
    whole = journal.read_text()
    assert len(whole.splitlines()) == 10
    graded = (planned.work / "000-sums" / "graded.json").read_text()

    lines = whole.splitlines(keepends=True)
    journal.write_text("".join(lines[:8]) + lines[8][:5])
    (planned.work / "000-sums" / "graded.json").unlink()
    seeds: list[int] = []
    monkeypatch.setattr(generation, "_seed_torch", seeds.append)
    process(config, shard)
    assert len(seeds) == 1, "two of three batches are in the journal"
    assert journal.read_text() == whole
    again = (planned.work / "000-sums" / "graded.json").read_text()
    assert json.loads(again)["answers"] == json.loads(graded)["answers"]

    (planned.work / "000-sums" / "graded.json").unlink()
    monkeypatch.setattr(generation, "load", None)
    result = run_score(config)
    [found] = json.loads((result.directory / "results.json").read_text())["benchmarks"]
    assert found["metric"] == "acc"
    rights = [one[0][1] for one in json.loads(graded)["answers"].values()]
    assert found["scores"]["m"]["acc"]["value"] == pytest.approx(sum(rights) / 5)


def test_a_group_is_one_benchmark_and_a_limit_chooses_documents(
    tmp_path: Path, task_folder: Path, tiny_model: Path
) -> None:
    other = yaml.safe_load((task_folder / "sums.yaml").read_text()) | {"task": "sums_again"}
    (task_folder / "again.yaml").write_text(yaml.safe_dump(other))
    group = {"group": "arithmetic", "task": ["sums", "sums_again"]}
    (task_folder / "group.yaml").write_text(yaml.safe_dump(group))

    def rights(limit: int | None) -> dict[str, tuple[str, float]]:
        result = run_score(
            ScoreConfig(
                workspace=tmp_path / "ws", models=(f"m={tiny_model}",), dtype="float32",
                benchmarks=(f"arithmetic={task_folder}",), limit=limit,
            )
        )  # fmt: skip
        rows = pq.read_table(result.directory / "samples.parquet").to_pylist()
        return {row["row_id"]: (row["prompt"], row["score"]) for row in rows}

    whole, chosen = rights(None), rights(4)
    assert len(whole) == 10
    assert len(chosen) == 4
    assert chosen.items() <= whole.items(), "the same verdict on the same document"


def test_a_task_of_lm_eval_that_generates_can_be_asked_of_an_endpoint(tmp_path: Path) -> None:
    """Its own stop, filter and metric: the last number of the text counts."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    write_lines(folder / "d.jsonl", [{"q": f"{a} plus 1", "a": str(a + 1)} for a in range(4)])
    task = {
        "task": "spoken",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "d.jsonl")},
                           "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{q}}",
        "doc_to_target": "{{a}}",
        "generation_kwargs": {"until": ["STOP"], "do_sample": False, "max_gen_toks": 9},
        "filter_list": [{"name": "last", "filter": [
            {"function": "regex", "regex_pattern": r"(\d+)", "group_select": -1},
            {"function": "take_first"},
        ]}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean",
                         "higher_is_better": True}],
    }  # fmt: skip
    (folder / "spoken.yaml").write_text(yaml.safe_dump(task))

    def canned(body: dict[str, Any], number: int) -> Answer:
        first = int(body["messages"][-1]["content"].split()[0])
        return completion(f"{first} and 1 make {first + (1 if first != 2 else 5)}.")

    with serve(canned) as server:
        result = run_score(
            ScoreConfig(
                workspace=tmp_path / "ws", models=(f"m={server.url}#m",),
                benchmarks=(f"spoken={folder}",),
            )
        )  # fmt: skip
        assert {tuple(body["stop"]) for body in server.requests} == {("STOP",)}
        assert {body["max_tokens"] for body in server.requests} == {9}
    [found] = json.loads((result.directory / "results.json").read_text())["benchmarks"]
    assert found["scores"]["m"]["exact_match"]["value"] == pytest.approx(3 / 4)
    rows = pq.read_table(result.directory / "samples.parquet").to_pylist()
    assert {row["row_id"]: row["answer"] for row in rows}["spoken/2"] == "7"


def test_an_endpoint_is_not_asked_for_log_likelihoods(tmp_path: Path, task_folder: Path) -> None:
    with serve(lambda body, number: completion("x")) as server:
        config = ScoreConfig(
            workspace=tmp_path / "ws", models=(f"m={server.url}#m",),
            benchmarks=(f"sums={task_folder}",),
        )  # fmt: skip
        with pytest.raises(UserError, match="sums needs log-likelihoods"):
            plan(config)
        assert not server.requests


def test_a_task_without_its_data_or_without_a_yaml_is_named(
    tmp_path: Path, task_folder: Path
) -> None:
    (task_folder / "sums.jsonl").unlink()
    config = {"workspace": tmp_path / "ws", "models": ("http://h/v1#m",)}
    with pytest.raises(UserError, match="sums: lm-eval cannot load its data"):
        plan(ScoreConfig(**config, benchmarks=(f"sums={task_folder}",)))
    with pytest.raises(UserError, match="'products': neither one of ours nor a task of"):
        plan(ScoreConfig(**config, benchmarks=(f"products={task_folder}",)))


PLANS_A_TASK_OF_THE_HUB = """
import sys
from evaluation.score import plan
from evaluation.score_config import ScoreConfig
from workspace.errors import UserError
try:
    plan(
        ScoreConfig(workspace=".", models=("http://h/v1#m",), benchmarks=(f"sums={sys.argv[1]}",))
    )
except UserError as error:
    print(error)
"""


def plan_in_a_new_process(tasks: Path, **settings: str) -> tuple[str, list[str]]:
    """What planning a score on a task of the hub says, and what it asked the hub for."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        """A hub that has nothing."""

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        ran = subprocess.run(
            [sys.executable, "-c", PLANS_A_TASK_OF_THE_HUB, str(tasks)],
            env={**kept, "HF_HOME": str(tasks / "hub"), **settings,
                 "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"},
            cwd=EXAMPLES.parents[1], capture_output=True, text=True, check=False,
        )  # fmt: skip
        hub.shutdown()
    assert ran.returncode == 0, ran.stderr
    assert "sums: lm-eval cannot load its data" in ran.stdout
    return ran.stdout, asked


def test_tasks_of_lm_eval_need_the_hub_which_is_off_by_default(task_folder: Path) -> None:
    """A task whose data is on the hub, as nearly all of lm-eval's own are."""
    task = yaml.safe_load((task_folder / "sums.yaml").read_text())
    del task["dataset_kwargs"]
    of_hub = {**task, "dataset_path": "someone/sums"}
    (task_folder / "sums.yaml").write_text(yaml.safe_dump(of_hub))
    said, asked = plan_in_a_new_process(task_folder)
    assert f"off here by default: set {ONLINE} and run again" in said
    assert not asked

    online = dict(pair.split("=") for pair in ONLINE.split())
    said, asked = plan_in_a_new_process(task_folder, **online)
    assert "it needs data in the hub's cache, or a connection to the Hugging Face hub" in said
    assert asked, "the settings that the message names let it ask the hub"
