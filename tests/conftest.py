"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are shared and noisy: no test here judges by wall time.
settings.register_profile("dsm", deadline=None, print_blob=True)
settings.load_profile("dsm")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real documents with ground truth; tests that need it skip without it."""
    root = Path(os.environ.get("DSM_SHARED", REPOSITORY.parent / "shared"))
    data = root / "data"
    if not data.is_dir():
        pytest.skip(f"real documents not found at {data}; set DSM_SHARED to their folder")
    return data
