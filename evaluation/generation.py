"""A local Hugging Face model as lm-eval sees it, with our batches, our seeds and a journal.

lm-eval gives each repeat of a request the same seed and starts again from nothing after a kill.
Here the requests are laid out in batches that depend on the requests alone, each batch has its
own seed, and finished batches are in the journal: a resumed run gives the answers of a whole one.

Answers are reproducible on one kind of machine with the same number of threads; another one may
round differently. Not covered: models on more than one device.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.journal import AnswerKey, Journal
from workspace.errors import UserError


class Loaded(NamedTuple):
    """A model in memory with its tokenizer."""

    model: Any
    tokenizer: Any


def best_dtype() -> str:
    """`bfloat16` where the processor or GPU computes in it, else `float32`.

    Measured on a CPU with avx512_bf16 at batch 32: 123-139 tokens per CPU second, 75 in float32.
    """
    if Path("/dev/nvidiactl").exists():
        return "bfloat16"
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return "float32"
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"


@functools.lru_cache(maxsize=1)
def load(folder: Path, dtype: str, threads: int = 0) -> Loaded:
    """Read a model folder. The last one stays in memory, because its benchmarks follow each other.

    `threads` 0 takes all cores.
    Raises `UserError` when the folder holds no model that can be read, or no chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=getattr(torch, dtype), use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} is not a readable Hugging Face model folder: {error}") from error
    if not tokenizer.chat_template:
        raise UserError(f"{folder}: its tokenizer has no chat template, which our prompts need")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Loaded(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer)


def journaled(
    loaded: Loaded,
    journal: Journal,
    *,
    seed: int,
    batch_size: int,
    advance: Callable[[int], None] = lambda n: None,
) -> Any:
    """An `lm_eval.api.model.LM` that answers from the journal and fills it."""
    from lm_eval.models.huggingface import HFLM

    class JournaledLM(HFLM):  # type: ignore[misc]
        """HFLM whose `generate_until` goes batch by batch through the journal."""

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            keys = list(_keys(requests))
            lengths = [len(self.tok_encode(request.args[0])) for request in requests]
            _refuse_too_long(requests, lengths, self.max_length)
            for batch in _batches(keys, lengths, batch_size):
                if any(keys[index] not in journal.answers for index in batch):
                    _seed_torch(seed, [keys[index] for index in batch])
                    texts = super().generate_until(
                        [requests[index] for index in batch], disable_tqdm=True
                    )
                    journal.append(dict(zip((keys[i] for i in batch), texts, strict=True)))
                advance(len(batch))
            return [journal.answers[key] for key in keys]

    return JournaledLM(
        pretrained=loaded.model,
        tokenizer=loaded.tokenizer,
        backend="causal",
        batch_size=batch_size,
        truncation=True,
    )


def _refuse_too_long(requests: Sequence[Any], lengths: Sequence[int], context: int) -> None:
    """lm-eval would cut such a prompt from the left, and with it what is asked."""
    for request, length in zip(requests, lengths, strict=True):
        room = context - request.args[1]["max_gen_toks"]
        if length > room:
            raise UserError(
                f"row {request.doc['row_id']}: a prompt of {length} tokens does not fit the "
                f"model's context of {context}: build the data set with a smaller "
                "max_prompt_tokens or max_rtl_tokens"
            )


def _keys(requests: Sequence[Any]) -> Iterator[AnswerKey]:
    """lm-eval repeats a request as often as samples are wanted; number the repeats."""
    seen: Counter[str] = Counter()
    for request in requests:
        row_id = request.doc["row_id"]
        yield AnswerKey(row_id, seen[row_id])
        seen[row_id] += 1


def _batches(
    keys: Sequence[AnswerKey], lengths: Sequence[int], batch_size: int
) -> Iterator[list[int]]:
    """Indices of requests, longest first (the first batch shows whether memory is enough)."""
    order = sorted(range(len(keys)), key=lambda i: (keys[i].sample, -lengths[i], keys[i].row_id))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _seed_torch(seed: int, batch: Sequence[AnswerKey]) -> None:
    import torch

    name = f"{seed}:" + ",".join(f"{key.row_id}/{key.sample}" for key in batch)
    torch.manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]))
