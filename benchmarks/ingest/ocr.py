"""OCR of scans made from digital pages, whose own text is the truth.

Each page is drawn at 150 dpi in greys, spoiled (noise and blur, 2 degrees of skew, fed in sideways
or upside down) and read by the whole ladder. Character error rate (CER) is the edit distance over
the truth's characters, blanks left out. Peers in the same run: Tesseract called plainly, without a
look at the orientation, and RapidOCR alone in the place of Tesseract.

    python -m benchmarks.ingest.ocr [--short]
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy
from PIL import Image, ImageFilter
from rapidfuzz.distance import Levenshtein

from benchmarks.measure import Report, cpu_seconds, parser, shared_data
from corpus.parsed import ParsedDocument, ParseOptions
from corpus.parsers import pdf
from corpus.parsers.ocr_setup import missing_engines
from corpus.parsers.ocr_tesseract import Tesseract

DPI: Final = 150
# One column each, since a plain text has no better order than its file's.
PAGES: Final = (
    ("corpus/energy/matpower__MATPOWER-manual.pdf", 12),
    ("corpus/semiconductor/i2c__i2c_specs.pdf", 5),
    ("corpus/semiconductor/zipcpu__spec.pdf", 9),
    ("corpus/semiconductor/black-parrot__bedrock_protocol_specification.pdf", 4),
)
_PAPER: Final = 255


def _noisy(picture: Image.Image) -> Image.Image:
    grey = numpy.asarray(picture, dtype=float)
    grey = grey + numpy.random.default_rng(0).normal(0, 25, grey.shape)
    noisy = Image.fromarray(grey.clip(0, 255).astype("uint8"))
    return noisy.filter(ImageFilter.GaussianBlur(0.7))


SPOILT: Final[dict[str, Callable[[Image.Image], Image.Image]]] = {
    "clean": lambda picture: picture,
    "noise and blur": _noisy,
    "2 degrees askew": lambda picture: picture.rotate(2, fillcolor=_PAPER),
    "sideways": lambda picture: picture.rotate(-90, expand=True),
    "upside down": lambda picture: picture.rotate(180),
}


class Measured(NamedTuple):
    error_rate: float
    cpu_s: float


class Bench:
    """The pages and their twins."""

    def __init__(self, folder: Path, pages: tuple[tuple[str, int], ...]) -> None:
        self._folder = folder
        self._pages = [self._page(*page) for page in pages]

    def _page(self, name: str, number: int) -> tuple[str, Image.Image]:
        import pymupdf

        single = self._folder / "single.pdf"
        with pymupdf.open(shared_data() / name) as document, pymupdf.open() as target:
            pixmap = document[number - 1].get_pixmap(dpi=DPI, colorspace=pymupdf.csGRAY)
            target.insert_pdf(document, from_page=number - 1, to_page=number - 1)
            target.save(single)
        text = letters(pdf.parse(single, ParseOptions(ocr="off", table_detection="fast")))
        return text, Image.open(io.BytesIO(pixmap.tobytes("png")))

    def ladder(self, variant: str, engine: str) -> Measured:
        """The ladder with `engine`, on every page spoilt as `variant`."""
        options = ParseOptions(ocr_engine=engine, table_detection="fast")
        return self._measure(variant, lambda path, _: letters(pdf.parse(path, options)))

    def plain(self, variant: str) -> Measured:
        """Tesseract alone, as its command does by default."""
        engine = Tesseract(("eng",))

        def read(path: Path, picture: Image.Image) -> str:
            return "".join("".join(line.text.split()) for line in engine.read(picture, DPI))

        return self._measure(variant, read)

    def _measure(self, variant: str, read: Callable[[Path, Image.Image], str]) -> Measured:
        rates, seconds = [], []
        for truth, picture in self._pages:
            path = self._folder / "scan.png"
            spoilt = SPOILT[variant](picture)
            spoilt.save(path, dpi=(DPI, DPI))
            with cpu_seconds() as spent:
                found = read(path, spoilt)
            rates.append(Levenshtein.distance(truth, found) / len(truth))
            seconds += spent
        return Measured(fmean(rates), fmean(seconds))


def letters(document: ParsedDocument) -> str:
    return "".join("".join(page.text.split()) for page in document.pages)


def figures(bench: Bench, variants: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Arguments of `Report.add`."""
    for variant in variants:
        ours = bench.ladder(variant, "tesseract")
        plain = bench.plain(variant)
        yield {
            "name": f"CER, {variant}",
            "value": ours.error_rate,
            "target": "<= 0.03",
            "peer": "tesseract alone",
            "peer_value": plain.error_rate,
        }
        yield {
            "name": f"CPU a page, {variant}",
            "value": ours.cpu_s,
            "unit": "s",
            "peer": "tesseract alone",
            "peer_value": plain.cpu_s,
        }
    if missing_engines("both"):
        return
    ours, rapid = bench.ladder("clean", "tesseract"), bench.ladder("clean", "rapidocr")
    for name, value, unit, peer in (
        ("CER, clean, engines", ours.error_rate, "", rapid.error_rate),
        ("CPU a page, clean, engines", ours.cpu_s, "s", rapid.cpu_s),
    ):
        yield {"name": name, "value": value, "unit": unit, "peer": "rapidocr", "peer_value": peer}


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "ocr", short=arguments.short)
    pages = PAGES[:1] if arguments.short else PAGES
    variants = ("clean", "upside down") if arguments.short else tuple(SPOILT)
    with tempfile.TemporaryDirectory() as folder:
        # Loading the libraries is no page's cost.
        bench = Bench(Path(folder), pages)
        for figure in figures(bench, variants):
            report.add(**figure)
    report.notes.append(f"{len(pages)} pages at {DPI} dpi; scans are lone pictures, eng")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
