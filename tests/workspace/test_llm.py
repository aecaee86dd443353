"""The client of OpenAI-compatible endpoints, against real local servers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, completion, serve

from workspace.config import StageConfig
from workspace.errors import UserError
from workspace.llm import (
    BudgetSpentError,
    LlmClient,
    LlmConfig,
    LlmUnavailableError,
    Prompt,
    Refusal,
    Reply,
)
from workspace.llm_ledger import Entry, Ledger

PROMPTS = [Prompt("be brief", f"text {n}") for n in range(6)]


def client(url: str, folder: Path, **settings: Any) -> LlmClient:
    config = LlmConfig(base_url=url, model="tiny", **{"max_retries": 2, **settings})
    return LlmClient(config, folder, purpose="test")


def echo(body: dict[str, Any], number: int) -> Answer:
    return completion("on " + body["messages"][1]["content"])


def test_replies_come_in_order_and_a_second_run_asks_nothing(tmp_path: Path) -> None:
    with serve(echo) as server:
        first = client(server.url, tmp_path, concurrency=3).complete_all(PROMPTS)
        assert first == [Reply(f"on text {n}", "stop") for n in range(6)]
        assert len(server.requests) == 6
        assert client(server.url, tmp_path).complete_all(PROMPTS) == first
        assert len(server.requests) == 6
        client(server.url, tmp_path, temperature=0.5).complete(PROMPTS[0])
        assert len(server.requests) == 7  # another request, another reply
    # The server is gone, the replies are not.
    assert client(server.url, tmp_path).complete_all(PROMPTS) == first


def test_a_damaged_cache_file_is_asked_anew(tmp_path: Path) -> None:
    with serve(echo) as server:
        client(server.url, tmp_path).complete(PROMPTS[0])
        (path,) = (tmp_path / "cache").glob("*/*.json")
        path.write_text(path.read_text()[:20])
        assert client(server.url, tmp_path).complete(PROMPTS[0]) == Reply("on text 0", "stop")
        assert len(server.requests) == 2


def test_busy_and_broken_answers_are_tried_again(tmp_path: Path) -> None:
    def moody(body: dict[str, Any], number: int) -> Answer:
        if number == 0:
            return Answer(429, b'{"error": {"message": "slow down"}}')
        return Answer(503, b"") if number == 1 else echo(body, number)

    with serve(moody) as server:
        assert client(server.url, tmp_path).complete(PROMPTS[0]) == Reply("on text 0", "stop")
        assert len(server.requests) == 3


def test_an_endpoint_that_dies_midway_stops_the_run_and_keeps_what_it_gave(tmp_path: Path) -> None:
    def dying(body: dict[str, Any], number: int) -> Answer:
        if number >= 3:
            raise ConnectionAbortedError
        return echo(body, number)

    with serve(dying) as server:
        with pytest.raises(LlmUnavailableError, match="replies so far are kept"):
            client(server.url, tmp_path, concurrency=1, max_retries=1).complete_all(PROMPTS)
        server.answer = echo
        asked = len(server.requests)
        replies = client(server.url, tmp_path).complete_all(PROMPTS)
        assert [reply[0] for reply in replies] == [f"on text {n}" for n in range(6)]
        assert len(server.requests) == asked + 3


def test_a_slow_endpoint_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    def slow(body: dict[str, Any], number: int) -> Answer:
        time.sleep(2)
        return echo(body, number)

    with serve(slow) as server:
        started = time.monotonic()
        with pytest.raises(LlmUnavailableError, match="timed out"):
            client(server.url, tmp_path, timeout_s=0.3, max_retries=0).complete(PROMPTS[0])
        assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "garbage",
    [
        Answer(200, b"<html>hello</html>", "text/html"),
        Answer(200, b"{ not json"),
        Answer(200, b"{}"),
        Answer(200, b'{"choices": []}'),
        Answer(200, b'{"choices": "no"}'),
        Answer(200, b'{"choices": [{"message": {"content": 3}}]}'),
        Answer(200, b"[1]"),
    ],
)
def test_answers_that_are_no_chat_completion_stop_the_run(tmp_path: Path, garbage: Answer) -> None:
    with (
        serve(lambda body, number: garbage) as server,
        pytest.raises(LlmUnavailableError, match=r"base_url|retries"),
    ):
        client(server.url, tmp_path, max_retries=0).complete(PROMPTS[0])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("status", "named"), [(401, "api_key_env"), (404, "llm.model")])
def test_a_wrong_key_or_model_is_the_users_to_mend(tmp_path: Path, status: int, named: str) -> None:
    with serve(lambda body, number: Answer(status, b"{}")) as server:
        with pytest.raises(UserError, match=named):
            client(server.url, tmp_path).complete(PROMPTS[0])
        assert len(server.requests) == 1


def test_a_request_that_is_refused_does_not_cost_the_others(tmp_path: Path) -> None:
    def picky(body: dict[str, Any], number: int) -> Answer:
        is_first = body["messages"][1]["content"] == "text 0"
        return Answer(400, b'{"error": "too long"}') if is_first else echo(body, number)

    with serve(picky) as server:
        replies = client(server.url, tmp_path).complete_all(PROMPTS)
    assert isinstance(replies[0], Refusal) and replies[0].status == 400
    assert replies[5] == Reply("on text 5", "stop")


def test_money_is_counted_and_the_budget_is_not_passed(tmp_path: Path) -> None:
    # 100 tokens in and 10 out at 10 and 100 a million: 0.002 a request, as the server reports.
    prices = {"price_input": 10.0, "price_output": 100.0, "max_output_tokens": 16}
    with serve(echo) as server:
        with pytest.raises(BudgetSpentError, match=r"raise llm\.budget"):
            client(server.url, tmp_path, budget=0.007, concurrency=2, **prices).complete_all(
                PROMPTS
            )
        spent = Ledger(tmp_path / "ledger.jsonl").spent("test")
        assert spent == pytest.approx(0.002 * len(server.requests))
        assert 0 < spent <= 0.007
        client(server.url, tmp_path, budget=1.0, **prices).complete_all(PROMPTS)
    assert Ledger(tmp_path / "ledger.jsonl").spent() == pytest.approx(0.012)


def test_an_endpoint_that_tells_no_usage_is_billed_by_estimate(tmp_path: Path) -> None:
    with serve(lambda body, number: completion("yes", usage=False)) as server:
        client(server.url, tmp_path, price_input=1.0).complete(PROMPTS[0])
    (line,) = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["is_estimate"] is True and json.loads(line)["cost"] > 0


def test_half_a_line_of_a_crash_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    entry = Entry("a", "m", "r", 1, 1, 0.5)
    ledger = Ledger(path)
    ledger.append(entry)
    with path.open("ab") as file:
        file.write(b'{"cost": 9, "purp')
    assert ledger.spent() == 0.5
    ledger.append(entry)
    assert ledger.spent() == Ledger(path).spent("a") == 1.0


def test_the_key_is_sent_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", "sk-very-secret")
    file = tmp_path / "key"
    file.write_text("sk-from-file\n")
    with serve(echo) as server:
        client(server.url, tmp_path / "w", api_key_env="TINY_KEY").complete(PROMPTS[0])
        client(server.url, tmp_path / "w", api_key_file=file).complete(PROMPTS[1])
    assert server.keys == ["Bearer sk-very-secret", "Bearer sk-from-file"]
    for path in (tmp_path / "w").rglob("*"):
        assert path.is_dir() or b"sk-" not in path.read_bytes()


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"), ({"api_key_file": "/no/key"}, "/no/key")],
)
def test_a_missing_key_is_named(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        client("http://127.0.0.1:1/v1", tmp_path, **settings)


@pytest.mark.parametrize(
    "settings",
    [{"base_url": "localhost:8000"}, {"base_url": "http://user:key@host/v1"}, {"budget": 1.0}],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        LlmConfig.parse({"base_url": "http://h/v1", "model": "m", **settings}, origin="test")


def test_only_what_changes_the_answers_is_in_the_fingerprint_of_a_stage() -> None:
    class Stage(StageConfig):
        llm: LlmConfig | None = None

    plain = Stage(llm=LlmConfig(base_url="http://h/v1", model="m"))
    same = Stage(llm=LlmConfig(base_url="http://h/v1/", model="m", concurrency=9, api_key_env="K"))
    other = Stage(llm=LlmConfig(base_url="http://h/v1", model="m2"))
    assert plain.fingerprint() == same.fingerprint() != other.fingerprint()
    assert "api_key_env" not in json.dumps(plain.output_settings())
