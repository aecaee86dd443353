"""Rows of a view -> token ids, with a reason for every row that is left out.

Reads the columns of `views/trl_sft`: `prompt` and `completion`, lists of {role, content}.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow.parquet as pq

from training.trainers.spec import TrainSpec
from workspace.errors import UserError

T = TypeVar("T")
IGNORED = -100  # label of a token that the loss skips


class TokenRow(NamedTuple):
    """One training sequence; `labels` is -100 where the prompt is."""

    input_ids: list[int]
    labels: list[int]


class TokenRows(NamedTuple):
    rows: list[TokenRow]
    rejects: dict[str, int]


def read_view(files: Sequence[Path], required: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of the view's files. Raises `UserError` when a file or a column is missing."""
    rows: list[dict[str, Any]] = []
    for path in files:
        try:
            table = pq.read_table(path)
        except (OSError, ValueError) as error:
            raise UserError(f"training data {path} cannot be read: {error}") from error
        missing = [name for name in required if name not in table.column_names]
        if missing:
            raise UserError(f"training data {path} lacks the column(s) {', '.join(missing)}")
        rows += table.to_pylist()
    return rows


def with_evaluation(
    spec: TrainSpec, rows: list[T], usable: Callable[[list[dict[str, Any]]], list[T]]
) -> tuple[list[T], list[T]]:
    """The rows to train on and those to evaluate on, each as `usable` makes them of a view's rows.

    The latter are of the validation split, or, where the spec has no such file, a seeded share of
    `rows`. Raises `UserError` when there are none.
    """
    if not spec.evaluates:
        return rows, []
    limit = spec.evaluation.max_rows
    order = list(range(len(rows)))
    random.Random(f"held-out:{spec.seed}").shuffle(order)
    if spec.eval_data:
        held = usable(read_view(spec.eval_data, ()))
    else:
        count = round(spec.evaluation.held_out_share * len(rows))
        held = [rows[at] for at in order[:count]]
        rows = [rows[at] for at in sorted(order[count:])]
    if not held or not rows:
        raise UserError(
            "evaluation: no row is left for it; raise evaluation.held_out_share, or set "
            "evaluation.every_steps to 0"
        )
    return rows, held[:limit]


def tokenize_rows(tokenizer: Any, rows: Iterable[dict[str, Any]], max_length: int) -> TokenRows:
    """Format with the chat template and mask the prompt.

    Rows are left out as `too_long` (more than `max_length` tokens: a cut answer would teach
    stopping in the middle) or `no_answer` (nothing to learn).
    """
    kept: list[TokenRow] = []
    rejects: Counter[str] = Counter()
    for row in rows:
        tokens = tokenize_row(tokenizer, row["prompt"], row["completion"])
        if not any(label != IGNORED for label in tokens.labels):
            rejects["no_answer"] += 1
        elif len(tokens.input_ids) > max_length:
            rejects["too_long"] += 1
        else:
            kept.append(tokens)
    return TokenRows(kept, dict(sorted(rejects.items())))


def tokenize_row(
    tokenizer: Any, prompt: list[dict[str, str]], completion: list[dict[str, str]]
) -> TokenRow:
    """The sequence as the model sees it when it is asked `prompt` and answers `completion`."""
    if not any(message["content"] for message in completion):
        return TokenRow([], [])
    before = prompt_tokens(tokenizer, prompt)
    whole = _render(tokenizer, prompt + completion, add_generation_prompt=False)
    start = _common_prefix(before, whole)
    # Templates put a line break after the end-of-turn token, which no model needs to predict.
    end = len(whole)
    while end > start and whole[end - 1] != tokenizer.eos_token_id:
        end -= 1
    end = end if end > start else len(whole)
    ids = whole[:end]
    return TokenRow(ids, [IGNORED] * start + ids[start:])


def prompt_tokens(tokenizer: Any, prompt: list[dict[str, str]]) -> list[int]:
    """The prompt with the template's opening of the answer."""
    return _render(tokenizer, prompt, add_generation_prompt=True)


def _render(
    tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool
) -> list[int]:
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    for at, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return at
    return min(len(first), len(second))
