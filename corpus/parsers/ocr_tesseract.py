"""Tesseract through its command: orientation (OSD) and words with boxes and confidences (TSV).

The picture goes in by stdin, so that no file is left behind by a kill. One thread, since the pool
runs one process a core. Languages are Tesseract's names, e.g. `eng`, `deu`, `chi_sim`.
"""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from PIL.Image import Image

from corpus.parsed import Box
from corpus.parsers.ocr_lines import OcrError, OcrLine, OcrWord
from corpus.parsers.ocr_setup import TESSERACT, ask_tesseract, tesseract_languages

# The pool's limit comes first; this one is for callers without a pool.
TIMEOUT_S: Final = 600
MIN_ORIENTATION_CONFIDENCE: Final = 1.0
_WORD_LEVEL: Final = "5"


class Tesseract:
    """An `OcrEngine`."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.name = f"tesseract {_version()}"
        self._languages = "+".join(wanted)

    def read(self, picture: Image, dpi: int) -> list[OcrLine]:
        table = _run(*_input(dpi), "-l", self._languages, "tsv", picture=picture)
        return list(_lines(table))

    def orientation(self, picture: Image, dpi: int) -> int | None:
        if "osd" not in tesseract_languages():
            return None
        try:
            answer = _run(*_input(dpi), "--psm", "0", picture=picture)
        except OcrError:  # it exits with 1 where it finds too few characters
            return None
        turn = re.search(r"^Rotate:\s*(\d+)", answer, re.MULTILINE)
        sure = re.search(r"^Orientation confidence:\s*([\d.]+)", answer, re.MULTILINE)
        if not turn or not sure or float(sure[1]) < MIN_ORIENTATION_CONFIDENCE:
            return None
        return int(turn[1]) % 360


def _version() -> str:
    words = ask_tesseract("--version").split()
    return words[1].lstrip("v") if len(words) > 1 else "unknown"


def _input(dpi: int) -> list[str]:
    return ["stdin", "stdout", "--dpi", str(dpi)]


def _lines(table: str) -> Iterator[OcrLine]:
    rows = csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE)
    words = (row for row in rows if row["level"] == _WORD_LEVEL and (row["text"] or "").strip())
    # Paragraphs are finer than blocks, and never cross them.
    paragraphs: dict[tuple[str, str], int] = {}
    for (block, paragraph, _), found in groupby(
        words, key=lambda row: (row["block_num"], row["par_num"], row["line_num"])
    ):
        number = paragraphs.setdefault((block, paragraph), len(paragraphs))
        yield OcrLine(tuple(_word(row) for row in found), number)


def _word(row: dict[str, str]) -> OcrWord:
    left, top = float(row["left"]), float(row["top"])
    box = Box(left, top, left + float(row["width"]), top + float(row["height"]))
    return OcrWord(row["text"].strip(), box, max(0.0, float(row["conf"])) / 100)


def _run(*arguments: str, picture: Image) -> str:
    pixels = io.BytesIO()
    picture.save(pixels, "PPM")
    try:
        done = subprocess.run(
            [TESSERACT, *arguments],
            input=pixels.getvalue(),
            capture_output=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired as error:
        raise OcrError(f"tesseract took more than {TIMEOUT_S} s") from error
    except OSError as error:
        raise OcrError(f"tesseract cannot be started: {error}") from error
    if done.returncode:
        tail = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise OcrError(f"tesseract left with code {done.returncode}: {tail}")
    return done.stdout.decode("utf-8", "replace")
