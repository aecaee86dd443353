"""A model folder as lm-eval sees it, with our batches, our seeds and a journal.

lm-eval gives each repeat of a request the same seed and starts again from nothing after a kill.
Here the requests are laid out in batches that depend on the requests alone, each batch has its
own seed, and finished batches are in the journal: a resumed run gives the answers of a whole one.
vLLM, where it is installed, seeds each answer by itself.

Answers are reproducible on one kind of machine with the same number of threads; another one may
round differently. Not covered: models on more than one device.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.answer_keys import answer_keys, seed_of
from evaluation.journal import AnswerKey, Journal
from workspace.errors import MissingToolError, UserError
from workspace.processor import multiplies_bf16


class Loaded(NamedTuple):
    """A model in memory with its tokenizer."""

    model: Any
    tokenizer: Any


def best_dtype() -> str:
    """`bfloat16` where the processor or GPU computes in it, else `float32`.

    Measured on a CPU with avx512_bf16 at batch 32: 123-139 tokens per CPU second, 75 in float32.
    """
    has_gpu = Path("/dev/nvidiactl").exists()
    return "bfloat16" if has_gpu or multiplies_bf16() else "float32"


_in_memory: dict[tuple[object, ...], Any] = {}


def _keep_one(key: tuple[object, ...], start: Callable[[], Any]) -> Any:
    """The model of `key`. The last one stays, because its benchmarks follow each other.

    It goes before another one comes: there may be room for one only.
    """
    if key not in _in_memory:
        _in_memory.clear()
        gc.collect()
        _in_memory[key] = start()
    return _in_memory[key]


def load(folder: Path, dtype: str, threads: int = 0) -> Loaded:
    """Read a model folder, or the one in memory. `threads` 0 takes all cores.

    Raises `UserError` when the folder holds no model that can be read, or lacks weights.
    """
    loaded: Loaded = _keep_one((folder, dtype, threads), lambda: _read(folder, dtype, threads))
    return loaded


def _read(folder: Path, dtype: str, threads: int) -> Loaded:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder} is not a readable Hugging Face model folder: {error}") from error
    # transformers makes up what is not in the files, at random.
    missing = sorted(map(str, [*found["missing_keys"], *found["mismatched_keys"]]))
    if missing:
        raise UserError(f"{folder} lacks {len(missing)} of the model's weights, e.g. {missing[0]}")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Loaded(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer)


@dataclass(frozen=True)
class Drawing:
    """How a journaled model draws its answers, and where it keeps them."""

    journal: Journal
    seed: int
    batch_size: int
    advance: Callable[[int], None] = lambda n: None


class Journaled(ABC):
    """Put before an `lm_eval.api.model.LM`: answers from the journal, and fills it."""

    drawing: Drawing

    @abstractmethod
    def seeded(self, requests: list[Any], keys: list[AnswerKey]) -> list[Any]:
        """The requests of one batch as the model is to answer them."""

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        model: Any = self
        keys = answer_keys(requests)
        lengths = [len(model.tok_encode(request.args[0])) for request in requests]
        _refuse_too_long(requests, lengths, model.max_length)
        return self._through_journal(requests, keys, lengths, "generate_until")

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        model: Any = self
        # lm-eval's own tasks are cut as it cuts them, for scores like those that others publish.
        ours = [request for request in requests if "row_id" in request.doc]
        tokens = [len(model.tok_encode("".join(request.args))) for request in ours]
        _refuse_too_long(ours, tokens, model.max_length)
        lengths = [len(request.args[0]) + len(request.args[1]) for request in requests]
        texts = self._through_journal(requests, answer_keys(requests), lengths, "loglikelihood")
        return [(float(value), bool(greedy)) for value, greedy in map(json.loads, texts)]

    def _through_journal(
        self, requests: list[Any], keys: list[AnswerKey], lengths: list[int], ask: str
    ) -> list[str]:
        """What is kept of each request: its text, or the JSON of its log-likelihood."""
        drawing, inner = self.drawing, getattr(super(), ask)
        for batch in batches_of_like_length(keys, lengths, drawing.batch_size):
            mine = [keys[index] for index in batch]
            if any(key not in drawing.journal.answers for key in mine):
                asked = self.seeded([requests[index] for index in batch], mine)
                found = inner(asked, disable_tqdm=True)
                texts = [one if isinstance(one, str) else json.dumps(one) for one in found]
                drawing.journal.append(dict(zip(mine, texts, strict=True)))
            drawing.advance(len(batch))
        return [drawing.journal.answers[key] for key in keys]


def journaled(loaded: Loaded, drawing: Drawing) -> Any:
    """The model as an `LM` that answers from the journal and fills it."""
    from lm_eval.models.huggingface import HFLM

    class JournaledTransformers(Journaled, HFLM):  # type: ignore[misc]
        """A batch has one seed, because torch draws all its answers from one generator."""

        def seeded(self, requests: list[Any], keys: list[AnswerKey]) -> list[Any]:
            _seed_torch(seed_of(self.drawing.seed, keys))
            return requests

    model = JournaledTransformers(
        pretrained=loaded.model,
        tokenizer=loaded.tokenizer,
        backend="causal",
        batch_size=drawing.batch_size,
        truncation=True,
    )
    model.drawing = drawing
    return model


def require_vllm() -> None:
    """Raises `MissingToolError` when vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingToolError(
            "engine vllm: the package vllm is not installed here: pip install vllm, or serve the "
            "model elsewhere and give it as http://HOST:PORT/v1#MODEL"
        )


def journaled_vllm(folder: Path, dtype: str, drawing: Drawing) -> Any:
    """The model folder in vLLM as an `LM`. Raises `MissingToolError` without vLLM."""
    require_vllm()
    model = _keep_one((folder, dtype, "vllm"), lambda: _start_vllm(folder, dtype))
    model.drawing = drawing
    return model


def _start_vllm(folder: Path, dtype: str) -> Any:
    from lm_eval.models.vllm_causallms import VLLM

    class JournaledVllm(Journaled, VLLM):  # type: ignore[misc]
        """Every answer has its own seed: what vLLM puts beside it is no matter."""

        def seeded(self, requests: list[Any], keys: list[AnswerKey]) -> list[Any]:
            if requests[0].request_type != "generate_until":
                return requests
            seeds = [seed_of(self.drawing.seed, [key]) for key in keys]
            return [
                replace(request, arguments=(request.args[0], {**request.args[1], "seed": seed}))
                for request, seed in zip(requests, seeds, strict=True)
            ]

    return JournaledVllm(pretrained=str(folder), dtype=dtype, batch_size="auto")


def _refuse_too_long(requests: Sequence[Any], lengths: Sequence[int], context: int) -> None:
    """lm-eval would cut such a prompt from the left, and with it what is asked."""
    for request, length in zip(requests, lengths, strict=True):
        asked = request.args[1]
        room = context - (asked.get("max_gen_toks", 0) if isinstance(asked, dict) else 0)
        if length > room:
            raise UserError(
                f"row {answer_keys([request])[0].row_id}: a prompt of {length} tokens does not "
                f"fit the model's context of {context}: build the data set with a smaller "
                "max_prompt_tokens or max_rtl_tokens, lower max_answer_tokens, or leave the "
                "benchmark out"
            )


def batches_of_like_length(
    keys: Sequence[AnswerKey], lengths: Sequence[int], batch_size: int
) -> Iterator[list[int]]:
    """Indices of requests, longest first (the first batch shows whether memory is enough).

    Prompts that are less than half as long as a batch's first are left to the next one: each row
    is padded to it, and each token of an answer attends over the padding as well.
    """
    order = sorted(range(len(keys)), key=lambda i: (-lengths[i], keys[i].row_id, keys[i].sample))
    batch: list[int] = []
    for index in order:
        if len(batch) == batch_size or (batch and 2 * lengths[index] < lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _seed_torch(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
