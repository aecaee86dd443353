"""A model behind an OpenAI-compatible endpoint as lm-eval sees it, with our seeds and a journal.

lm-eval's own classes make the requests (`local-chat-completions`, or `local-completions` for models
without a chat form). What they do with failures is replaced here: they give an answer that could
not be read as "", which would be scored as wrong. Here every answer is in the journal when it
arrives, what may pass is tried again, and anything else stops the run; the same command goes on
where it was.

The key is read from the environment and is in no file. Not covered: log-likelihoods, which chat
endpoints do not give; who plans an evaluation keeps such tasks from them.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final, Literal

from evaluation.answer_keys import answer_keys, seed_of
from evaluation.journal import AnswerKey, Journal
from evaluation.models import Endpoint
from workspace.errors import DsmError, TransientError, UserError

# chat_fixed: hosted models that reason set temperature and top_p themselves and refuse them.
Api = Literal["chat", "chat_fixed", "completions"]
_PATHS: Final = {
    "chat": "chat/completions",
    "chat_fixed": "chat/completions",
    "completions": "completions",
}
_SEED_BITS: Final = 31  # what every server takes
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class EndpointLostError(TransientError):
    """The endpoint stopped answering; the answers so far are kept."""


@dataclass(frozen=True)
class Calling:
    """How an endpoint is asked."""

    api: Api
    api_key_env: str  # the variable that holds the key, empty: no key
    concurrency: int
    timeout_s: int
    max_tries: int

    def key(self) -> str:
        """The key, "" for none. Raises `UserError` when the environment lacks it."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if self.api_key_env and not key:
            raise UserError(f"api_key_env: the environment has no {self.api_key_env}")
        return key


def journaled(
    endpoint: Endpoint,
    calling: Calling,
    journal: Journal,
    *,
    seed: int,
    advance: Callable[[int], None] = lambda n: None,
) -> Any:
    """An `LM` that answers from the journal and asks the endpoint for the rest."""
    from lm_eval.models import openai_completions

    base: Any = (
        openai_completions.LocalCompletionsAPI
        if calling.api == "completions"
        else openai_completions.LocalChatCompletion
    )

    writing = threading.Lock()

    class JournaledEndpoint(base):  # type: ignore[misc]
        """Asks one by one, several at a time; each answer has its own seed."""

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            keys = answer_keys(requests)
            left = [
                (key, request)
                for key, request in zip(keys, requests, strict=True)
                if key not in journal.answers
            ]
            advance(len(keys) - len(left))
            self._ask_all(left)
            return [journal.answers[key] for key in keys]

        def _ask_all(self, left: Sequence[tuple[AnswerKey, Any]]) -> None:
            """The first failure stops what has not started; what was under way is still kept."""
            failed: BaseException | None = None
            pool = ThreadPoolExecutor(calling.concurrency)
            waiting = [pool.submit(self._ask, key, request) for key, request in left]
            try:
                for future in as_completed(waiting):
                    error = None if future.cancelled() else future.exception()
                    if error is None:
                        advance(0 if future.cancelled() else 1)
                    elif failed is None:
                        failed = error
                        for other in waiting:
                            other.cancel()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
            if failed is not None:
                raise failed

        def _ask(self, key: AnswerKey, request: Any) -> None:
            """One answer into the journal, before this thread asks for another."""
            prompt, settings = request.args
            own_seed = seed_of(seed, [key]) >> (56 - _SEED_BITS)
            call = functools.partial(
                self.model_call, messages=[prompt], gen_kwargs={**settings, "seed": own_seed}
            )
            text = _read(_try(call, endpoint, calling, key), endpoint, key)
            with writing:
                journal.append({key: text})

        def _create_payload(self, *arguments: Any, **settings: Any) -> dict[str, Any]:
            payload: dict[str, Any] = super()._create_payload(*arguments, **settings)
            if not payload.get("stop"):  # OpenAI's server refuses an empty list
                payload.pop("stop", None)
            if calling.api == "chat_fixed":
                payload["max_completion_tokens"] = payload.pop("max_tokens")
                for name in ("temperature", "top_p", "stop"):
                    payload.pop(name, None)
            return payload

    return JournaledEndpoint(
        model=endpoint.model,
        base_url=f"{endpoint.url}/{_PATHS[calling.api]}",
        tokenizer_backend=None,
        tokenized_requests=False,
        batch_size=1,
        max_length=1 << 30,  # the server knows its context and refuses what is longer
        timeout=calling.timeout_s,
        eos_string="",
        header=_header(calling),
    )


def _header(calling: Calling) -> dict[str, str]:
    key = calling.key()
    # lm-eval puts OPENAI_API_KEY into every request that has no header of its own.
    return {"Authorization": f"Bearer {key or 'none'}"}


def _try(call: Callable[[], Any], endpoint: Endpoint, calling: Calling, key: AnswerKey) -> Any:
    """The server's JSON. What may pass is tried `max_tries` times with growing pauses."""
    import requests
    import tenacity

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(calling.max_tries),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
        retry=tenacity.retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        return retrying(call)
    except requests.HTTPError as error:
        raise _status_error(error.response, endpoint, calling, key) from error
    except (requests.RequestException, json.JSONDecodeError) as error:
        raise EndpointLostError(
            f"endpoint {endpoint.url}: {type(error).__name__} after {calling.max_tries} tries; "
            "run again when it is back, the answers so far are kept"
        ) from error


def _may_pass(error: BaseException) -> bool:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code in _PASSING
    return isinstance(error, requests.RequestException)


def _status_error(response: Any, endpoint: Endpoint, calling: Calling, key: AnswerKey) -> DsmError:
    status = response.status_code
    where = f"endpoint {endpoint.url} (model {endpoint.model})"
    if status in _PASSING:
        return EndpointLostError(
            f"{where} still answers {status}; run again later, the answers so far are kept"
        )
    if status in (401, 403):
        return UserError(f"{where} refuses the key ({status}): check api_key_env")
    if status == 404:
        return UserError(
            f"{where} says 404: check the address (most end in /v1), the model's name and "
            "endpoint_api"
        )
    secret = calling.key()
    said = (response.text.replace(secret, "...") if secret else response.text)[:300]
    return UserError(f"{where} refuses row {key.row_id} ({status}): {said}")


def _read(said: Any, endpoint: Endpoint, key: AnswerKey) -> str:
    """The answer's text. An empty one counts only when the model itself ended it, or ran out."""
    choice = said["choices"][0] if _has_choice(said) else {}
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if text is None and choice.get("finish_reason") in ("length", "stop"):
        return ""  # a reasoning model that never came to its answer
    if not isinstance(text, str):
        raise EndpointLostError(
            f"endpoint {endpoint.url} gave no answer to row {key.row_id} "
            f"(finish_reason {choice.get('finish_reason')!r}): that is no wrong answer, so the run "
            "stops here; the answers so far are kept"
        )
    # Half a surrogate pair, which JSON can hold and UTF-8 cannot.
    return text.encode("utf-8", "replace").decode("utf-8")


def _has_choice(said: Any) -> bool:
    choices = said.get("choices") if isinstance(said, dict) else None
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict)
