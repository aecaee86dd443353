"""CPU that Prefect, its server and the command line add to an ingest.

    python -m benchmarks.ingest.overhead [--short]

The same documents through the library in this process and through `python -m flows.ingest`, in
turns, so that a busy machine slows both. What the flow adds is the same for every page count of a
shard, so a cut of the documents shows it: it stands beside the CPU that the full ladder takes for
all of them (`benchmarks.ingest.speed`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.ingest.samples import corpus_files, cut_corpus
from benchmarks.ingest.speed import FAST, ingest_files
from benchmarks.measure import Report, cpu_seconds, parser

REPOSITORY = Path(__file__).resolve().parents[2]
SPEED = REPOSITORY / "benchmarks" / "results" / "ingest_speed.json"


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "overhead", short=arguments.short)
    rounds = 1 if arguments.short else 5
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        files = cut_corpus(place / "cut", pages=1)
        added = [add_of_flow(place / str(number), files) for number in range(rounds)]
    report.add("flow over library, CPU a run", median(added), "CPU-s")
    report.add("that, largest less smallest round", max(added) - min(added), "CPU-s")
    whole = ladder_cpu_s() * _pages(corpus_files())
    share = 100 * median(added) / whole
    report.add("of the full ladder's CPU over all documents", share, "%", target="<= 3")
    return report.finish()


def add_of_flow(place: Path, files: Sequence[Path]) -> float:
    """CPU seconds of the flow's command less those of the library."""
    library = ingest_files(place / "library", files, **FAST)
    flags = [
        part for name, value in FAST.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    command = [sys.executable, "-m", "flows.ingest", "--workspace", str(place / "flow"), *flags]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with cpu_seconds() as spent:
        done = subprocess.run(
            [*command, *map(str, files)],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode not in (0, 3):
        raise SystemExit(f"the flow failed with {done.returncode}")
    return spent[0] - library.cpu_s


def ladder_cpu_s() -> float:
    """CPU seconds a page of the full ladder, as `benchmarks.ingest.speed` measured it last."""
    figures = json.loads(SPEED.read_text(encoding="utf-8"))["figures"]
    return next(float(figure["value"]) for figure in figures if figure["name"] == "full ladder")


def _pages(files: Sequence[Path]) -> int:
    import pypdfium2

    pages = 0
    for path in files:
        if path.suffix == ".pdf":
            with pypdfium2.PdfDocument(path) as document:
                pages += len(document)
    return pages


if __name__ == "__main__":
    sys.exit(main())
