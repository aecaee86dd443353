"""One Prefect API for all flow tests, one served UI, texts for the small stage in `tally.py`."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from chromium import open_chromium
from served import PATIENCE_MS, serving

from benchmarks.training.tiny_model import write_tiny_model
from flows._api import apply_environment, temporary_api

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Before any test module imports Prefect, which reads them then.
apply_environment()
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="dsm-prefect-tests-")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """The address of a Prefect API of our own, which this process and its children talk to."""
    with temporary_api() as address:
        from prefect.settings import PREFECT_API_URL, temporary_settings

        # The test modules imported Prefect, which read its settings, before this API was there.
        with temporary_settings({PREFECT_API_URL: address}):
            yield address


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two text files of five words together."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one two three", encoding="utf-8")
    (folder / "b.txt").write_text("four five", encoding="utf-8")
    return folder


@pytest.fixture
def start_tally() -> Callable[..., subprocess.Popen[str]]:
    """Starts `python -m tally ARGUMENTS` in a process of its own."""

    def start(arguments: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tally", *arguments],
            env={**os.environ, "PYTHONPATH": str(HERE), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """`tests/training/tiny_training.py`: rows to train the tiny model on, and runs of it."""
    path = REPOSITORY / "tests" / "training" / "tiny_training.py"
    spec = importlib.util.spec_from_file_location("tiny_training", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="session")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the UI of a running `python -m flows.serve`."""
    with serving(tmp_path_factory.mktemp("serve")) as (address, _):
        yield address


@pytest.fixture
def page() -> Iterator[Page]:
    with open_chromium() as browser:
        opened = browser.new_page(viewport={"width": 1400, "height": 1400})
        opened.set_default_timeout(PATIENCE_MS)
        yield opened
