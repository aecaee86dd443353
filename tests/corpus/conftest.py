"""A manual that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_samples import manual_pdf


@pytest.fixture(scope="session")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A four-page PDF with every kind of element."""
    return manual_pdf(tmp_path_factory.mktemp("manual") / "manual.pdf")
