"""Choice questions by likelihood, beside the sums that transformers alone gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scoring_inputs import make_row, publish_rows

from evaluation.score import plan, run_score
from evaluation.score_config import ScoreConfig
from workspace.errors import UserError
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import completion, serve

LISTED = "Which revision stretches the clock?\nA. A0\nB. A1\nC. none\nAnswer with the letter alone."
OPEN = "The reset of this block is"


def question(name: str, prompt: str, letter: str, choices: list[str]) -> dict[str, Any]:
    truth = {"letter": letter, "choices": choices}
    return {"id": name, "prompt": prompt, "answer": letter, "verifier": "choice",
            "ground_truth": truth}  # fmt: skip


QUESTIONS = [
    *(question(f"listed_{x}", f"{i} {LISTED}", x, ["A0", "A1", "none"]) for i, x in
      enumerate("ABC")),
    *(question(f"open_{x}", f"{i} {OPEN}", x, ["active low and asynchronous", "synchronous", "no"])
      for i, x in enumerate("ABC")),
    {**question("system", LISTED, "b", ["A0", "A1", "none"]), "system": "Be brief."},
]  # fmt: skip
VOLTS = {"id": "volts", "prompt": "Core supply?", "answer": "1.8 V", "verifier": "numeric",
         "ground_truth": {"value": 1.8, "unit": "V"}}  # fmt: skip


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def config_of(tmp_path: Path, model: str, **settings: Any) -> ScoreConfig:
    return ScoreConfig(
        workspace=tmp_path / "ws", models=(f"m={model}",), dtype="float32", batch_size=3,
        choice="likelihood", **settings,
    )  # fmt: skip


def likelihoods(folder: Path, line: dict[str, Any], said: list[str], *, chat: bool) -> list[float]:
    """Sum of log-probabilities of each text behind the prompt, by one forward pass each."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": line["prompt"]}]
    if "system" in line:
        messages.insert(0, {"role": "system", "content": line["system"]})
    if chat:
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    else:
        prompt = "\n\n".join(message["content"] for message in messages)
    found = []
    for text in said if chat else [f" {text}" for text in said]:
        asked = tokenizer(prompt, add_special_tokens=False).input_ids
        answer = tokenizer(text, add_special_tokens=False).input_ids
        with torch.no_grad():
            logits = model(torch.tensor([asked + answer])).logits[0]
        steps = torch.log_softmax(logits, dim=-1)[len(asked) - 1 : -1]
        found.append(float(steps[torch.arange(len(answer)), torch.tensor(answer)].sum()))
    return found


@pytest.mark.parametrize("chat", [True, False])
def test_the_likeliest_choice_is_the_one_that_transformers_finds(
    tmp_path: Path, tiny_model: Path, chat: bool
) -> None:
    model = tiny_model
    if not chat:
        model = tmp_path / "plain"
        model.mkdir()
        for path in tiny_model.iterdir():
            if path.name != "chat_template.jinja":
                (model / path.name).symlink_to(path)
    source = write(tmp_path / "q.jsonl", [*QUESTIONS, VOLTS])
    result = run_score(config_of(tmp_path, str(model), benchmarks=(f"own={source}",)))
    written = json.loads((result.directory / "results.json").read_text())["benchmarks"]
    own, found = written
    assert (own["name"], own["problems"], own["metric"]) == ("own", 1, "accuracy")
    assert (found["name"], found["problems"], found["metric"]) == ("own_likelihood", 7, "acc")
    rows = {
        row["row_id"]: row
        for row in pq.read_table(result.directory / "samples.parquet").to_pylist()
        if row["benchmark"] == "own_likelihood"
    }
    right: list[float] = []
    right_by_length: list[float] = []
    for line in QUESTIONS:
        choices = line["ground_truth"]["choices"]
        said = ["A", "B", "C"] if "A. A0" in line["prompt"] else choices
        sums = likelihoods(model, line, said, chat=chat)
        by_length = [value / len(text) for value, text in zip(sums, said, strict=True)]
        wanted = "abc".index(line["answer"].lower())
        row = rows[line["id"]]
        assert row["answer"] == said[sums.index(max(sums))]
        values = [float(part.split()[-1]) for part in row["detail"].split(":", 1)[1].split(",")]
        assert values == pytest.approx(sums, abs=2e-3)
        right.append(float(sums.index(max(sums)) == wanted))
        right_by_length.append(float(by_length.index(max(by_length)) == wanted))
        assert (row["score"], row["normalised"]) == (right[-1], right_by_length[-1])
    assert found["scores"]["m"]["acc"]["value"] == pytest.approx(sum(right) / 7)
    assert found["scores"]["m"]["acc_norm"]["value"] == pytest.approx(sum(right_by_length) / 7)
    assert 0 < sum(right) < 7, "one of three choices each: some are right, some are wrong"


def test_choice_rows_of_the_data_set_are_compared_as_well(tmp_path: Path, tiny_model: Path) -> None:
    truth = json.dumps({"letter": "B", "choices": ["A0", "A1", "none"]})
    publish_rows(
        Workspace(tmp_path / "ws"),
        [
            make_row("c", LISTED, "B", verifier="choice", ground_truth=truth),
            make_row("t", "Width of the bus?", "8"),
        ],
    )
    config = config_of(tmp_path, str(tiny_model), benchmarks=("closed_book",))
    written = json.loads((run_score(config).directory / "results.json").read_text())["benchmarks"]
    assert {b["name"]: (b["problems"], b["metric"]) for b in written} == {
        "domain_qa_closed_book": (1, "accuracy"),
        "domain_qa_closed_book_likelihood": (1, "acc"),
    }


def test_an_endpoint_cannot_be_compared_by_likelihood(tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", QUESTIONS)
    with serve(lambda body, number: completion("A")) as server:
        config = config_of(tmp_path, f"{server.url}#m", benchmarks=(f"own={source}",))
        with pytest.raises(UserError, match="own_likelihood needs log-likelihoods"):
            plan(config)
        assert not server.requests


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([VOLTS], "no benchmark here holds questions of verifier `choice`"),
        ([{**QUESTIONS[0], "ground_truth": {"letter": "A"}}], "listed_A of own.*'choices'"),
        (
            [{**QUESTIONS[0], "prompt": "x" * 5000}],
            "listed_A: a prompt of 50.. tokens",
        ),
    ],
)
def test_what_cannot_be_compared_is_named(
    tmp_path: Path, tiny_model: Path, lines: list[dict[str, Any]], said: str
) -> None:
    source = write(tmp_path / "q.jsonl", lines)
    with pytest.raises(UserError, match=said):
        run_score(config_of(tmp_path, str(tiny_model), benchmarks=(f"own={source}",)))


def test_two_benchmarks_of_one_name_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    source = write(tmp_path / "q.jsonl", QUESTIONS)
    other = write(tmp_path / "other.jsonl", [VOLTS])
    both = (f"own={source}", f"own_likelihood={other}")
    with pytest.raises(UserError, match="two benchmarks are called own_likelihood"):
        plan(config_of(tmp_path, str(tiny_model), benchmarks=both))
