"""Fixtures of the evaluation tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from scoring_inputs import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama over characters, as a Hugging Face folder."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model", seed=0)
