"""Models behind endpoints: failures are never scores, keys are nowhere, runs go on."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lm_eval.api.instance import Instance
from lm_eval.models.api_models import JsonChatStr
from safetensors.torch import load_file, save_file
from scoring_inputs import make_row, publish_rows

from evaluation import models
from evaluation.endpoint import Calling, EndpointLostError, journaled
from evaluation.journal import Journal
from evaluation.models import Endpoint
from evaluation.score import plan, run_score
from evaluation.score_config import ScoreConfig
from workspace.errors import UserError
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, ChatServer, completion, serve

SECRET = "sk-not-to-be-found-anywhere"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "ws")
    publish_rows(workspace, [make_row(f"r{i}", f"Say {i}", str(i)) for i in range(6)])
    return workspace


def config_of(workspace: Workspace, url: str, **settings: Any) -> ScoreConfig:
    chosen = {"models": (f"m={url}#tiny",), "benchmarks": ("closed_book",), "request_tries": 2}
    return ScoreConfig(workspace=workspace.root, **{**chosen, **settings})


def echo(body: dict[str, Any], number: int) -> Answer:
    return completion(body["messages"][-1]["content"].removeprefix("Say "))


def accuracy(folder: Path) -> float:
    [found] = json.loads((folder / "results.json").read_text())["benchmarks"]
    value: float = found["scores"]["m"]["accuracy"]["value"]
    return value


def test_the_key_is_sent_and_in_no_file(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "another one")
    with serve(echo) as server:
        result = run_score(config_of(workspace, server.url, api_key_env=("LAB_KEY",)))
        assert set(server.keys) == {f"Bearer {SECRET}"}
        assert all("stop" not in body for body in server.requests), "OpenAI refuses an empty list"
    assert accuracy(result.directory) == 1
    files = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    with serve(echo) as server:
        run_score(config_of(workspace, server.url, seed=1))
        assert set(server.keys) == {"Bearer none"}, "no key unless one is named"
    with serve(echo) as server:
        run_score(config_of(workspace, server.url, seed=2, api_key_env=("m=OPENAI_API_KEY", "X")))
        assert set(server.keys) == {"Bearer another one"}, "a model's own comes before the common"
    monkeypatch.delenv("LAB_KEY")
    with pytest.raises(UserError, match="LAB_KEY"):
        plan(config_of(workspace, server.url, api_key_env=("LAB_KEY",), seed=3))


def test_a_server_that_repeats_the_key_does_not_get_it_into_our_text(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)
    reply = Answer(400, f"bad request by Bearer {SECRET}".encode())
    with (
        serve(lambda body, number: reply) as server,
        pytest.raises(UserError, match="bad request") as refused,
    ):
        run_score(config_of(workspace, server.url, api_key_env=("LAB_KEY",)))
    assert SECRET not in str(refused.value)


def test_an_endpoint_that_dies_midway_leaves_an_unfinished_run_that_goes_on(
    workspace: Workspace,
) -> None:
    def dying(body: dict[str, Any], number: int) -> Answer:
        if number >= 4:
            raise ConnectionAbortedError
        return echo(body, number)

    with serve(dying) as server:
        config = config_of(workspace, server.url, concurrency=1)
        with pytest.raises(EndpointLostError, match="answers so far are kept"):
            run_score(config)
        assert not (plan(config).directory / "results.json").exists()
        server.answer = echo
        before = len(server.requests)
        result = run_score(config)
        assert len(server.requests) - before == 2, "four answers are in the journal"
    assert accuracy(result.directory) == 1


def test_a_busy_endpoint_is_tried_again(workspace: Workspace) -> None:
    def busy(body: dict[str, Any], number: int) -> Answer:
        return Answer(429, b"{}") if number % 2 == 0 else echo(body, number)

    with serve(busy) as server:
        result = run_score(config_of(workspace, server.url, concurrency=1))
    assert accuracy(result.directory) == 1


def body_of(message: dict[str, Any], reason: str) -> Answer:
    choice = {"index": 0, "finish_reason": reason, "message": message}
    return Answer(200, json.dumps({"choices": [choice]}).encode())


def test_models_that_fix_their_sampling_are_asked_without_it(workspace: Workspace) -> None:
    with serve(echo) as server:
        result = run_score(config_of(workspace, server.url, endpoint_api="chat_fixed"))
        names = {name for body in server.requests for name in body}
    assert accuracy(result.directory) == 1
    assert names == {"messages", "model", "max_completion_tokens", "seed"}


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (Answer(401, b"{}"), UserError, "refuses the key"),
        (Answer(404, b"{}"), UserError, "the model's name"),
        (Answer(400, b'{"error": "context"}'), UserError, r"refuses row r\d \(400\).*context"),
        (Answer(503, b""), EndpointLostError, "still answers 503"),
        (Answer(200, b"<html>"), EndpointLostError, "run again"),
        (Answer(200, b"[]"), EndpointLostError, "gave no answer"),
        (body_of({"content": None}, "content_filter"), EndpointLostError, "content_filter"),
    ],
)
def test_what_is_no_answer_is_never_scored(
    workspace: Workspace, reply: Answer, error: type[Exception], said: str
) -> None:
    with serve(lambda body, number: reply) as server:
        config = config_of(workspace, server.url, request_tries=1)
        with pytest.raises(error, match=said):
            run_score(config)
    assert not (plan(config).directory / "results.json").exists()


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(("choices", "message", "content", "text", "finish_reason")), inner
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serve(echo) as running:
        yield running


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
@example({"choices": [{"message": {"content": "a"}}]})
@example({"choices": [{"text": "b"}]})
@example({"choices": [{"message": {}, "finish_reason": "stop"}]})
@example({"choices": [{"message": {"content": ["c"]}, "finish_reason": "stop"}]})
@example({"choices": {"0": {}}})
def test_any_reply_is_a_text_or_the_end_of_the_run(
    tmp_path: Path, server: ChatServer, said: Any
) -> None:
    server.answer = lambda body, number: Answer(200, json.dumps(said).encode())
    calling = Calling("chat", "", concurrency=1, timeout_s=10, max_tries=1)
    row = {"row_id": secrets.token_hex(8)}
    request = Instance("generate_until", row, (JsonChatStr("[]"), {}), 0, ("t", 0, 1))
    model = journaled(
        Endpoint(server.url, "m"), calling, Journal(tmp_path / "answers.jsonl"), seed=0
    )
    try:
        [text] = model.generate_until([request])
    except EndpointLostError as error:
        assert row["row_id"] in str(error)
    else:
        choice = said["choices"][0]
        message = choice.get("message")
        said_text = message.get("content") if isinstance(message, dict) else choice.get("text")
        assert text == (said_text or "")


def test_a_model_that_never_came_to_its_answer_is_wrong(workspace: Workspace) -> None:
    with serve(lambda body, number: body_of({"content": None}, "length")) as server:
        result = run_score(config_of(workspace, server.url))
    assert accuracy(result.directory) == 0


def test_a_plain_completions_endpoint_gets_the_prompt_as_text(workspace: Workspace) -> None:
    def plain(body: dict[str, Any], number: int) -> Answer:
        text = body["prompt"].rpartition("Say ")[2]
        return Answer(200, json.dumps({"choices": [{"index": 0, "text": text}]}).encode())

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say 0"}]
    row = make_row("r0", "", "0", prompt_json=json.dumps(messages))
    publish_rows(workspace, [row], key="k2")
    with serve(plain) as server:
        result = run_score(config_of(workspace, server.url, endpoint_api="completions"))
        assert [body["prompt"] for body in server.requests] == ["Be brief.\n\nSay 0"]
    assert accuracy(result.directory) == 1


def test_half_a_surrogate_pair_is_an_answer_like_any_other(workspace: Workspace) -> None:
    with serve(lambda body, number: body_of({"content": "5\ud800"}, "stop")) as server:
        result = run_score(config_of(workspace, server.url))
    assert accuracy(result.directory) == 0


def test_a_folder_without_a_chat_template_is_asked_in_plain_text(
    workspace: Workspace, tiny_model: Path
) -> None:
    plain = workspace.root / "plain"
    shutil.copytree(tiny_model, plain, ignore=shutil.ignore_patterns("*.jinja"))
    config = json.loads((plain / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (plain / "tokenizer_config.json").write_text(json.dumps(config))
    models = (f"chat={tiny_model}", f"plain={plain}")
    result = run_score(config_of(workspace, "", models=models, dtype="float32"))
    summary = json.loads((result.directory / "results.json").read_text())
    assert [model["prompts"] for model in summary["models"]] == ["chat", "text"]
    rows = pq.read_table(result.directory / "samples.parquet").to_pylist()
    answers = {m: [r["answer"] for r in rows if r["model"] == m] for m in ("chat", "plain")}
    assert len(answers["plain"]) == 6
    assert answers["chat"] != answers["plain"], "the same weights, asked otherwise"


def test_weights_that_cannot_be_read_are_named(workspace: Workspace, tiny_model: Path) -> None:
    broken = workspace.root / "broken"
    shutil.copytree(tiny_model, broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match=r"broken is not a readable Hugging Face model"):
        run_score(config_of(workspace, "", models=(f"m={broken}",)))


def test_weights_that_are_missing_are_not_made_up(workspace: Workspace, tiny_model: Path) -> None:
    partial = workspace.root / "partial"
    shutil.copytree(tiny_model, partial)
    tensors = load_file(partial / "model.safetensors")
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 of the model's weights.*up_proj"):
        run_score(config_of(workspace, "", models=(f"m={partial}",)))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("m=http://host/v1", "#MODEL"),
        ("ftp://host/v1#m", "http://HOST:PORT"),
        ("http://user:pass@host/v1#m", "holds no key"),
        ("http://host/v1?key=abc#m", "holds no key"),
        ("!=/tmp", "label"),
        ("m=", "nothing follows"),
    ],
)
def test_bad_addresses_are_refused_without_showing_a_password(
    tmp_path: Path, spec: str, said: str
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        models.resolve(Workspace(tmp_path), [spec])
    assert "pass@" not in str(refused.value)
    assert "abc" not in str(refused.value)


def test_labels_name_models_and_must_differ(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    a, b = "http://h/v1#a", "http://h/v1#b"
    found = models.resolve(workspace, [f"old={a}", f"new={b}", a])
    assert [model.label for model in found] == ["old", "new"], "a model is scored once"
    assert found[0].hash != found[1].hash
    with pytest.raises(UserError, match="two are called 'x'"):
        models.resolve(workspace, [f"x={a}", f"x={b}"])


def test_vllm_that_is_not_installed_is_said_before_anything_runs(
    workspace: Workspace, tiny_model: Path
) -> None:
    config = ScoreConfig(
        workspace=workspace.root, models=(f"m={tiny_model}",), benchmarks=("closed_book",),
        engine="vllm",
    )  # fmt: skip
    with pytest.raises(UserError, match=r"vllm.*http://HOST:PORT"):
        plan(config)
