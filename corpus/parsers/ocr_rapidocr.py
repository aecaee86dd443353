"""RapidOCR (PP-OCR models in its wheel, no network): the second opinion, and the only engine where
Tesseract is not installed.

Reads Latin script and Chinese without being told the language. A line comes as one word with one
box; its languages cannot be chosen. Costs about three times as much CPU as Tesseract.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from PIL.Image import Image

from corpus.parsed import Box
from corpus.parsers.ocr_lines import OcrError, OcrLine, OcrWord
from corpus.parsers.reading_order import sort_reading_order


@cache
def _load() -> Any:
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    threads = ("intra_op_num_threads", "inter_op_num_threads")
    return RapidOCR(
        params={
            "Global.log_level": "error",
            # Lines are looked for in a copy of 960 pixels, which is PaddleOCR's own choice, and
            # read from the picture. At RapidOCR's 2000 a page took 550 MB and 3.8 s, so it takes
            # 210 MB and 1.9 s; the error rate of four scans went from 0.154 to 0.115.
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
            "Rec.rec_batch_num": 1,
            **{f"EngineConfig.onnxruntime.{name}": 1 for name in threads},
        }
    )


class Rapidocr:
    """An `OcrEngine`."""

    def __init__(self) -> None:
        self.name = f"rapidocr {version('rapidocr')}"

    def read(self, picture: Image, dpi: int) -> list[OcrLine]:
        import numpy

        try:
            found = _load()(numpy.asarray(picture.convert("RGB"))[:, :, ::-1])
        except MemoryError:
            raise
        except Exception as error:  # it raises what OpenCV and ONNX Runtime give it
            raise OcrError(f"rapidocr failed: {type(error).__name__}: {error}") from error
        if found.boxes is None or found.txts is None:
            return []
        words = [
            OcrWord(" ".join(text.split()), _box(corners), float(score))
            for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
            if text.strip()
        ]
        ordered = sort_reading_order(words, lambda word: word.box)
        return [OcrLine((word,), number) for number, word in enumerate(ordered)]

    def orientation(self, picture: Image, dpi: int) -> int | None:
        return None


def _box(corners: Any) -> Box:
    across = [float(x) for x, _ in corners]
    down = [float(y) for _, y in corners]
    return Box(min(across), min(down), max(across), max(down))
