"""Our views in the files that external programs read, and how many steps they come to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.run_record import link_or_copy
from training.trainers.rows import read_view
from training.trainers.settings import CptSettings, RlvrSettings
from training.trainers.spec import TrainSpec
from workspace import publish
from workspace.errors import UserError

Row = dict[str, Any]


class Size(NamedTuple):
    rows: int
    tokens: int
    steps: int


def link_parquet(files: Sequence[Path], folder: Path) -> None:
    """The view as it is, alone in a folder, as `datasets.load_dataset(folder)` wants it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, source in enumerate(files):
        target = folder / f"{number:04d}.parquet"
        if not target.exists():
            with publish.atomic_path(target) as temporary:
                link_or_copy(source, temporary)


def write_jsonl(files: Sequence[Path], target: Path, convert: Callable[[Row], Row]) -> None:
    """One JSON object a line."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with publish.atomic_path(target) as temporary, temporary.open("w", encoding="utf-8") as out:
        for row in read_view(files, ()):
            out.write(json.dumps(convert(row), ensure_ascii=False) + "\n")


def as_messages(row: Row) -> Row:
    """A row of `trl_sft` as one conversation."""
    return {"messages": row["prompt"] + row["completion"]}


def as_ranked(row: Row) -> Row:
    """A row of `trl_dpo` as NeMo RL's preference data sets have it: rank 0 is preferred."""
    answers = (row["chosen"], row["rejected"])
    return {
        "context": row["prompt"],
        "completions": [
            {"rank": rank, "completion": answer} for rank, answer in enumerate(answers)
        ],
    }


def measure(spec: TrainSpec) -> Size:
    """Rows, tokens of one pass, and the optimizer steps that the stage's budget comes to.

    Counted with the model's own tokenizer, without what a chat template adds.
    """
    rows = read_view(spec.data, ())
    if not rows:
        raise UserError(f"{', '.join(map(str, spec.data))}: there are no rows to train on")
    settings = spec.settings
    if isinstance(settings, RlvrSettings):
        return Size(len(rows), 0, settings.planned_steps(len(rows)))
    tokens = _count_tokens(spec.parent, rows)
    if isinstance(settings, CptSettings):
        per_step = settings.rows_per_step * settings.sequence_length
        wanted = settings.epochs * tokens
        steps = math.ceil(min(wanted, settings.token_budget or wanted) / per_step)
    else:
        steps = math.ceil(settings.epochs * len(rows) / settings.rows_per_step)
        if settings.token_budget:
            average = settings.rows_per_step * tokens / len(rows)
            steps = min(steps, math.floor(settings.token_budget / average))
    steps = max(1, steps)
    return Size(len(rows), tokens, min(steps, settings.max_steps or steps))


def _count_tokens(model: Path, rows: Iterable[Row]) -> int:
    from tokenizers import Tokenizer

    path = model / "tokenizer.json"
    if not path.exists():
        raise UserError(f"{path} is missing: external programs read the fast tokenizer's file")
    tokenizer = Tokenizer.from_file(str(path))
    return sum(
        len(tokenizer.encode(text, add_special_tokens=False).ids) + 1
        for row in rows
        for text in _texts(row)
    )


def _texts(row: Row) -> list[str]:
    if "text" in row:
        return [row["text"]]
    parts = (row.get(name) or [] for name in ("messages", "prompt", "completion", "chosen"))
    return [message["content"] for part in parts for message in part]
