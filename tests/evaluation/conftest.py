"""Fixtures of the evaluation tests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from scoring_inputs import Declare, write_tiny_model

from evaluation.benchmarks.verilog import contents


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama over characters, as a Hugging Face folder."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model", seed=0)


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Says which problems a public benchmark has, so that a small folder is all of it."""

    def write(benchmark: str, ids: Collection[str]) -> str:
        path = tmp_path / "contents.yaml"
        path.write_text(json.dumps({benchmark: " ".join(ids)}))
        monkeypatch.setattr(contents, "PATH", path)
        contents.known_ids.cache_clear()
        return benchmark

    yield write
    contents.known_ids.cache_clear()
