"""What the model answers to a few held-out prompts while cpt, sft or dpo trains it.

    asked = HeldOutAnswers(spec, tokenizer, of_rows(held), total_steps=400)
    if asked.is_due(step): asked.ask(model, step)

At an evaluation the first `evaluation.answers` held-out prompts of at most 1,024 tokens are
answered with at most `evaluation.answer_tokens` tokens, the likeliest each time. Answers go to the
attempt's `rollouts.jsonl` (`training.rollouts`), with the row's own answer beside them; of cpt a
text's beginning is the prompt. Nothing of the training changes: the generators of random numbers
and every module's mode are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from training.rollouts import Rollout, append, is_kept
from training.trainers.callbacks import wait_for_all_ranks
from training.trainers.rows import IGNORED, TokenRow
from training.trainers.samples import Samples
from training.trainers.spec import TrainSpec

_LONGEST_PROMPT: Final = 1024  # whose logits are all computed at once
_LONGEST_BEGINNING: Final = 64  # of a text to be continued


class Question(NamedTuple):
    """Tokens of a prompt and of the answer that its row has."""

    prompt: list[int]
    reference: list[int]


def of_rows(rows: Iterable[TokenRow]) -> Iterator[Question]:
    """Rows of sft."""
    for row in rows:
        start = row.labels.count(IGNORED)
        yield Question(row.input_ids[:start], row.input_ids[start:])


def of_samples(spec: TrainSpec, samples: Samples) -> Iterator[Question]:
    """Samples of the fsdp trainer; of cpt, the beginning of each one's first document."""
    for number in range(len(samples)):
        sample = samples[number]
        end = next(iter(np.flatnonzero(sample.positions == 0)[1:]), len(sample.ids))
        ids = sample.ids[:end].tolist()
        if spec.stage == "cpt":
            start = min(_LONGEST_BEGINNING, len(ids) // 2)
        else:
            start = int(np.argmax(sample.labels != IGNORED))
        yield Question(ids[:start], ids[start:])


class HeldOutAnswers:
    """Asks the same questions at some of the evaluations, which are evenly spread.

    Where weights are sharded, all ranks ask and `agree` returns rank 0's value: ranks that took
    different tokens would wait for each other for ever. `writes`: whether this rank keeps answers.
    """

    def __init__(
        self,
        spec: TrainSpec,
        tokenizer: Any,
        questions: Iterable[Question],
        *,
        total_steps: int,
        agree: Callable[[int], int] = lambda token: token,
        writes: bool = True,
    ) -> None:
        fitting = (asked for asked in questions if 0 < len(asked.prompt) <= _LONGEST_PROMPT)
        self._questions = list(islice(fitting, spec.evaluation.answers))
        self._spec, self._tokenizer = spec, tokenizer
        self._evaluations = total_steps // max(1, spec.evaluation.every_steps)
        self._agree, self._writes = agree, writes

    def is_due(self, step: int) -> bool:
        """Whether the evaluation after `step` is one whose answers are kept."""
        if not self._questions:
            return False
        return is_kept(step // self._spec.evaluation.every_steps, self._evaluations)

    def ask(self, model: Any, step: int) -> None:
        """Let `model` answer, and keep what it says as after `step`."""
        limit = self._spec.evaluation.answer_tokens
        rollouts = []
        with _undisturbed(model):
            for asked in self._questions:
                answer = self._answer(model, asked.prompt, limit)
                prompt = self._text(asked.prompt)
                rollouts += [
                    Rollout(step, prompt, self._text(answer), None, "evaluation"),
                    Rollout(step, prompt, self._text(asked.reference[:limit]), None, "reference"),
                ]
        if self._writes:
            append(self._spec.attempt_dir, rollouts)

    def _answer(self, model: Any, prompt: list[int], limit: int) -> list[int]:
        """The likeliest token each time, up to the end token or `limit`."""
        import torch

        device = next(model.parameters()).device
        positions = getattr(model.config, "max_position_embeddings", None)
        if positions:
            limit = min(limit, positions - len(prompt))
        answer: list[int] = []
        known, new = None, prompt
        while len(answer) < limit:
            seen = model(
                input_ids=torch.tensor([new], device=device), past_key_values=known, use_cache=True
            )
            token = self._agree(int(seen.logits[0, -1].argmax()))
            if token == self._tokenizer.eos_token_id:
                break
            answer.append(token)
            known, new = seen.past_key_values, [token]
        return answer

    def _text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True)).strip()


def answering(asked: HeldOutAnswers) -> Any:
    """The callback of Hugging Face's trainers. It must come before the one that times evaluations.

    The weights of these trainers are whole on every rank: rank 0 alone asks, the others wait.
    """
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class AnswerHeldOutPrompts(TrainerCallback):  # type: ignore[misc]
        def on_evaluate(
            self,
            args: TrainingArguments,
            state: TrainerState,
            control: TrainerControl,
            model: Any = None,
            **_: Any,
        ) -> None:
            if not asked.is_due(state.global_step):
                return
            if state.is_world_process_zero:
                asked.ask(model, state.global_step)
            # Here, where the limit of time is an evaluation's, and not in the next step.
            wait_for_all_ranks()

    return AnswerHeldOutPrompts()


@contextmanager
def _undisturbed(model: Any) -> Iterator[None]:
    """Evaluate in the block; generators of random numbers and modes are afterwards as before."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    model.eval()
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training
