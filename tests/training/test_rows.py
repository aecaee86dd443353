"""Rows of a view as the model sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.training.tiny_model import write_tiny_model
from training.trainers.model_io import load_tokenizer
from training.trainers.rows import IGNORED, read_view, tokenize_row, tokenize_rows
from workspace.errors import UserError

PROMPT = [{"role": "user", "content": "2+2?"}]
ANSWER = [{"role": "assistant", "content": "4"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_tokenizer(write_tiny_model(tmp_path_factory.mktemp("base") / "tiny"))


def test_only_the_answer_and_its_end_are_learned(tokenizer: Any) -> None:
    row = tokenize_row(tokenizer, PROMPT, ANSWER)
    text = tokenizer.decode(row.input_ids)
    assert text == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>"
    learned = [label for label in row.labels if label != IGNORED]
    assert tokenizer.decode(learned) == "4<|im_end|>"
    assert len(row.labels) == len(row.input_ids)


def test_rows_that_cannot_be_used_are_counted(tokenizer: Any) -> None:
    long = [{"role": "assistant", "content": "4" * 300}]
    empty = [{"role": "assistant", "content": ""}]
    rows = [{"prompt": PROMPT, "completion": answer} for answer in (ANSWER, long, empty)]
    tokens = tokenize_rows(tokenizer, rows, max_length=200)
    assert len(tokens.rows) == 1
    assert tokens.rejects == {"no_answer": 1, "too_long": 1}


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"prompt": ["x"]}), path)
    with pytest.raises(UserError, match=r"lacks the column\(s\) completion"):
        read_view([path], ("prompt", "completion"))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(UserError, match=r"train\.parquet cannot be read"):
        read_view([path], ("prompt",))
