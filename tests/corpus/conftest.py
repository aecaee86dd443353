"""Documents that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_client import open_client
from browser_corpora import hostile_corpus
from corpus_samples import manual_pdf
from starlette.testclient import TestClient


@pytest.fixture(scope="session")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A four-page PDF with every kind of element."""
    return manual_pdf(tmp_path_factory.mktemp("manual") / "manual.pdf")


@pytest.fixture(scope="session")
def hostile_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ingested corpus of a manual, RTL, a broken file, and texts that attack a web page."""
    return hostile_corpus(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def client(hostile_workspace: Path) -> TestClient:
    """The browser of that corpus."""
    return open_client(hostile_workspace)
