"""Which OCR engines and languages this machine has: what the settings are checked against.

Light: it imports no engine, since every command that takes settings loads it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Final

from workspace.errors import UserError

TESSERACT: Final = "tesseract"


@cache
def ask_tesseract(question: str) -> str:
    """What `tesseract --version` and the like print. Raises `UserError` when it does not run."""
    try:
        done = subprocess.run([TESSERACT, question], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"tesseract cannot be run: {error}") from error
    if done.returncode:
        tail = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise UserError(f"tesseract {question} left with code {done.returncode}: {tail}")
    return done.stdout.decode("utf-8", "replace")


def tesseract_languages() -> frozenset[str]:
    """Installed languages; `osd` is the orientation model."""
    return frozenset(ask_tesseract("--list-langs").splitlines()[1:])


def _has_tesseract() -> bool:
    return shutil.which(TESSERACT) is not None


def _has_rapidocr() -> bool:
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


ENGINES: Final[dict[str, tuple[str, ...]]] = {
    "both": ("tesseract", "rapidocr"),
    "tesseract": ("tesseract",),
    "rapidocr": ("rapidocr",),
    "none": (),
}
_INSTALLED: Final[dict[str, Callable[[], bool]]] = {
    "tesseract": _has_tesseract,
    "rapidocr": _has_rapidocr,
}
CURES: Final = {
    "tesseract": "apt-get install tesseract-ocr tesseract-ocr-osd",
    "rapidocr": "pip install 'dsm-pipeline[ocr]'",
}


def find_engines() -> str:
    """The best value of `ocr_engine` on this machine: both, tesseract, rapidocr or none."""
    found = tuple(name for name, is_installed in _INSTALLED.items() if is_installed())
    return next(value for value, names in ENGINES.items() if names == found)


def missing_engines(value: str) -> list[str]:
    """What `ocr_engine=value` needs and this machine lacks."""
    return [name for name in ENGINES[value] if not _INSTALLED[name]()]


def language_fault(value: str, wanted: Sequence[str]) -> str:
    """Why `ocr_engine=value` cannot read the languages, "" when it can."""
    if "tesseract" not in ENGINES[value]:
        return ""  # RapidOCR's one model reads what it can and has no choice of languages
    installed = tesseract_languages() - {"osd"}
    missing = [name for name in wanted if name not in installed]
    if not missing:
        return ""
    packages = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in missing)
    return (
        f"tesseract lacks {', '.join(missing)}; it has {', '.join(sorted(installed))}. "
        f"Install: apt-get install {packages}"
    )
