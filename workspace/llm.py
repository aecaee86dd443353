"""Chat completions of any OpenAI-compatible endpoint: cached, accounted, bounded.

    client = LlmClient(config, Workspace(root).llm, purpose="corpus 2-ab12")
    replies = client.complete_all([Prompt(system="…", user="…"), …])

Every reply is kept in `llm/cache/` under the hash of its request, so a second run asks nothing and
gets the same text; tokens and money go to `llm/ledger.jsonl`, one line a request, fsynced before
the reply is used. Transient failures (connection, timeout, 408, 409, 429, 5xx) are retried with
back-off by the `openai` package. After that, and for answers that are no chat completion, the run
stops with `LlmUnavailableError`; a request that the endpoint refuses for its contents (400, 413,
422) is a `Refusal` among the replies. The key is read from the environment or a file and is in no
setting, cache, ledger or log. Does no streaming and calls no tools.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from workspace import publish
from workspace.config import StageConfig, setting
from workspace.errors import DsmError, MissingToolError, TransientError, UserError
from workspace.ids import derive_id
from workspace.llm_ledger import Entry, Ledger

_LOG: Final = logging.getLogger(__name__)
_CACHE_VERSION: Final = "1"
_NONSENSE_TRIES: Final = 3
_BYTES_PER_TOKEN: Final = 2  # fewer than any usual text has, so that an estimate is not too low


class LlmConfig(StageConfig):
    """An endpoint, and what it may cost."""

    base_url: str = setting(position=0, description="Endpoint, e.g. http://localhost:8000/v1")
    model: str = setting(position=1, min_length=1, description="Model name that the endpoint knows")
    api_key_env: str = setting(
        "",
        position=2,
        affects_output=False,
        description="Environment variable that holds the key; empty: no key",
    )
    api_key_file: Path | None = setting(
        None, position=3, affects_output=False, description="File that holds the key"
    )
    temperature: float = setting(
        0.0, position=4, ge=0, le=2, description="Sampling temperature; 0 for the likeliest answer"
    )
    max_output_tokens: int = setting(
        400, position=5, ge=16, le=32768, description="Most tokens of one answer"
    )
    timeout_s: float = setting(
        120.0, position=6, gt=0, le=3600, affects_output=False, description="Seconds for an answer"
    )
    max_retries: int = setting(
        5,
        position=7,
        ge=0,
        le=20,
        affects_output=False,
        description="Further tries after a lost connection, a timeout, 429 or 5xx",
    )
    concurrency: int = setting(
        4, position=8, ge=1, le=256, affects_output=False, description="Requests side by side"
    )
    price_input: float = setting(
        0.0, position=9, ge=0, affects_output=False, description="Price of a million input tokens"
    )
    price_output: float = setting(
        0.0, position=10, ge=0, affects_output=False, description="Price of a million output tokens"
    )
    budget: float | None = setting(
        None,
        position=11,
        gt=0,
        affects_output=False,
        description="Most money that all runs in this workspace together may spend",
    )

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address like http://localhost:8000/v1")
        if parts.username or parts.password:
            raise ValueError("must hold no password: use api_key_env or api_key_file")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.budget is not None and not (self.price_input or self.price_output):
            raise ValueError("budget needs price_input and price_output to count against")
        return self

    def read_key(self) -> str:
        """The key, or a placeholder for endpoints without one. Raises `UserError` naming where."""
        if self.api_key_env:
            key = os.environ.get(self.api_key_env, "").strip()
            if not key:
                raise UserError(f"api_key_env: the environment has no {self.api_key_env}")
            return key
        if self.api_key_file is not None:
            try:
                key = self.api_key_file.expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"api_key_file {self.api_key_file}: {error}") from error
            if not key:
                raise UserError(f"api_key_file {self.api_key_file} is empty")
            return key
        return "none"

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.price_input + tokens_out * self.price_output) / 1e6


class Prompt(NamedTuple):
    """One request."""

    system: str
    user: str


class Reply(NamedTuple):
    """`finish_reason` is the endpoint's: `stop`, or `length` for an answer that was cut."""

    text: str
    finish_reason: str


class Refusal(NamedTuple):
    """The endpoint refused this request; it is not cached, and the others go on."""

    status: int
    detail: str


class LlmUnavailableError(TransientError):
    """The endpoint cannot be reached or does not speak the API; replies so far are cached."""


class BudgetSpentError(UserError):
    """The next request could pass the budget; replies so far are cached."""


class LlmClient:
    """`folder` is shared by all runs and processes of a workspace; `purpose` is in the ledger."""

    def __init__(self, config: LlmConfig, folder: Path, purpose: str) -> None:
        self._config = config
        self._cache = folder / "cache"
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._purpose = purpose
        self._api = _connect(config)
        self._lock = threading.Lock()
        self._reserved = 0.0

    def complete_all(
        self, prompts: Sequence[Prompt], on_reply: Callable[[], None] | None = None
    ) -> list[Reply | Refusal]:
        """Replies in the order of `prompts`. The first failure stops what has not started."""
        with ThreadPoolExecutor(self._config.concurrency) as pool:
            futures = [pool.submit(self.complete, prompt) for prompt in prompts]
            if on_reply is not None:
                for future in futures:
                    future.add_done_callback(lambda _: on_reply())
            done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
            for future in waiting:
                future.cancel()
            for future in done:
                future.result()
        return [future.result() for future in futures]

    def complete(self, prompt: Prompt) -> Reply | Refusal:
        """The reply from the cache, or else from the endpoint."""
        request = self._request(prompt)
        key = derive_id(_CACHE_VERSION, self._config.base_url, json.dumps(request, sort_keys=True))
        path = self._cache / key[:2] / f"{key}.json"
        cached = _read_cached(path)
        if cached is not None:
            return cached
        most = self._reserve(prompt)
        try:
            answer = self._ask(request)
            if isinstance(answer, Refusal):
                return answer
            self._account(key, prompt, answer)
        finally:
            with self._lock:
                self._reserved -= most
        reply = Reply(answer.choices[0].message.content or "", answer.choices[0].finish_reason)
        publish.write_json(path, {"request": request, "reply": reply._asdict()})
        return reply

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        return {
            "model": self._config.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_output_tokens,
            "seed": 0,
        }

    def _reserve(self, prompt: Prompt) -> float:
        """Set money aside for the request, since others run beside it."""
        config = self._config
        most = config.cost(_estimate(prompt.system + prompt.user), config.max_output_tokens)
        with self._lock:
            spent = self._ledger.spent()
            if config.budget is not None and spent + self._reserved + most > config.budget:
                raise BudgetSpentError(
                    f"llm budget {config.budget:g}: {spent:g} is spent and the next request may "
                    f"cost {most:g}; raise llm.budget and run again, the replies so far are kept"
                )
            self._reserved += most
        return most

    def _ask(self, request: dict[str, Any]) -> Any:
        """A chat completion with at least one choice, or a `Refusal`."""
        import openai

        where = f"{self._config.base_url} (model {self._config.model})"
        for _ in range(_NONSENSE_TRIES):
            try:
                answer = self._api.chat.completions.create(**request)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                return Refusal(error.status_code, str(error)[:300])
            except openai.APIStatusError as error:
                if error.status_code == 413:
                    return Refusal(413, str(error)[:300])
                raise _status_error(error, where) from error
            except openai.APIConnectionError as error:
                raise LlmUnavailableError(
                    f"llm endpoint {where}: {error} after {self._config.max_retries} retries; "
                    "run again when it is back, the replies so far are kept"
                ) from error
            except (openai.APIResponseValidationError, ValueError) as error:
                _LOG.warning("%s answered with something else than JSON: %s", where, error)
                continue
            if _is_completion(answer):
                return answer
            _LOG.warning("%s answered with something else than a chat completion", where)
        raise LlmUnavailableError(
            f"llm endpoint {where} does not answer with chat completions; check llm.base_url "
            "(most end in /v1)"
        )

    def _account(self, key: str, prompt: Prompt, answer: Any) -> None:
        tokens_in = getattr(answer.usage, "prompt_tokens", None)
        tokens_out = getattr(answer.usage, "completion_tokens", None)
        is_estimate = False
        if not isinstance(tokens_in, int) or not isinstance(tokens_out, int):
            is_estimate = True
            tokens_in = _estimate(prompt.system + prompt.user)
            tokens_out = _estimate(answer.choices[0].message.content or "")
        cost = self._config.cost(tokens_in, tokens_out)
        self._ledger.append(
            Entry(self._purpose, self._config.model, key, tokens_in, tokens_out, cost, is_estimate)
        )


def _connect(config: LlmConfig) -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingToolError("llm needs the openai package: pip install openai") from error
    return openai.OpenAI(
        base_url=config.base_url,
        api_key=config.read_key(),
        timeout=config.timeout_s,
        max_retries=config.max_retries,
    )


def _read_cached(path: Path) -> Reply | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))["reply"]
        return Reply(str(value["text"]), str(value["finish_reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s is damaged (%s): asking again", path, error)
        return None


def _is_completion(answer: Any) -> bool:
    choices = getattr(answer, "choices", None)
    message = (
        getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    )
    return message is not None and isinstance(getattr(message, "content", None), str | None)


def _status_error(error: Any, where: str) -> DsmError:
    status = error.status_code
    if status in (401, 403):
        return UserError(f"llm endpoint {where} refuses the key ({status}): check llm.api_key_env")
    if status == 404:
        return UserError(f"llm endpoint {where} says 404: check llm.base_url and llm.model")
    return LlmUnavailableError(
        f"llm endpoint {where} answers {status} after all retries; run again later, the replies "
        "so far are kept"
    )


def _estimate(text: str) -> int:
    return len(text.encode()) // _BYTES_PER_TOKEN + 16
