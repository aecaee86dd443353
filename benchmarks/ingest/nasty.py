"""Broken, hostile and fuzzed files: each must end in a record, and none may stop the run.

    python -m benchmarks.ingest.nasty [--short]

All hard and broken documents, then 1,000 mutations of good files of every format (`--short`: 100
mutations), seeded: bits flipped, ends cut off, parts of another file spliced in, parts zeroed.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.ingest.samples import corpus_files
from benchmarks.measure import Report, parser, shared_data
from corpus import ingest
from corpus.ingest_config import IngestConfig
from workspace import stage
from workspace.shards import iterate_rows

MUTATIONS, SHORT_MUTATIONS = 1000, 100
LARGEST = 300_000
PAGE_TIMEOUT_S, DOCUMENT_TIMEOUT_S = 20.0, 60.0
# The watcher looks four times a second, and a busy machine delays it.
GRACE_S = 10.0


class Outcome(NamedTuple):
    """What became of a set of files."""

    files: int
    recorded: int
    crashed: int  # 1 when the run itself ended with an error
    late: int
    reasons: Counter[str]


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("ingest", "nasty", short=arguments.short)
    count = SHORT_MUTATIONS if arguments.short else MUTATIONS
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        hard = sorted(
            path
            for path in (shared_data() / "nasty").rglob("*")
            if path.is_file() and path.name != "index.tsv"
        )
        add(report, "hard and broken files", run(place / "hard", hard))
        mutate_files(place / "mutations", count)
        add(report, "mutations", run(place / "fuzzed", sorted((place / "mutations").iterdir())))
    return report.finish()


def add(report: Report, name: str, outcome: Outcome) -> None:
    report.add(name, outcome.files, "files")
    share = 100 * outcome.recorded / outcome.files
    report.add(f"{name}: with a record", share, "%", target="= 100")
    report.add(f"{name}: runs that failed", outcome.crashed, "", target="= 0")
    report.add(f"{name}: beyond the deadline", outcome.late, "", target="= 0")
    for reason, n in outcome.reasons.most_common():
        report.add(f"{name}: {reason}", n)


def run(workspace: Path, files: list[Path]) -> Outcome:
    """Ingest `files`; a failure of the run is counted and shown."""
    config = IngestConfig(
        sources=list(map(str, files)),
        workspace=workspace,
        page_timeout_s=PAGE_TIMEOUT_S,
        document_timeout_s=DOCUMENT_TIMEOUT_S,
    )
    try:
        stage.run(config, ingest.plan, ingest.process, ingest.publish)
    except Exception as error:
        print(f"the run failed: {type(error).__name__}: {error}", file=sys.stderr)
        return Outcome(len(files), 0, 1, 0, Counter())
    corpus = workspace / "corpus"
    recorded = {uri for row in iterate_rows(corpus, "documents", ["uris"]) for uri in row["uris"]}
    lost = list(iterate_rows(corpus, "quarantine", ["uri", "reason", "page", "detail"]))
    recorded |= {row["uri"] for row in lost}
    reasons = Counter(row["reason"] for row in lost)
    given = {path.as_posix() for path in files}
    return Outcome(len(files), len(given & recorded), 0, sum(map(_is_late, lost)), reasons)


def _is_late(row: dict[str, str]) -> bool:
    """Whether a child that was killed for its time had more of it than its limit."""
    found = re.search(
        r"killed after (\d+) CPU seconds, (\d+) s in all \(limit (\d+)", row["detail"]
    )
    return found is not None and int(found[1]) > int(found[3]) + GRACE_S


def mutate_files(folder: Path, count: int, *, seed: int = 7) -> None:
    """`count` damaged copies of good files, equally many of each format."""
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    by_format: dict[str, list[Path]] = {}
    for path in corpus_files():
        if path.stat().st_size <= LARGEST:
            by_format.setdefault(path.suffix, []).append(path)
    formats = sorted(by_format)
    for number in range(count):
        suffix = formats[number % len(formats)]
        data = bytearray(draw.choice(by_format[suffix]).read_bytes())
        kind = draw.choice(sorted(_MUTATORS))
        other = draw.choice(by_format[draw.choice(formats)]).read_bytes()
        _MUTATORS[kind](data, other, draw)
        (folder / f"{number:04d}-{kind}{suffix}").write_bytes(data)


def _flip(data: bytearray, other: bytes, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 8, 64, 512))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _truncate(data: bytearray, other: bytes, draw: random.Random) -> None:
    del data[draw.randrange(1, len(data)) :]


def _splice(data: bytearray, other: bytes, draw: random.Random) -> None:
    start = draw.randrange(len(other))
    part = other[start : start + draw.randrange(1, 20_000)]
    at = draw.randrange(len(data))
    data[at : at + draw.randrange(1, 20_000)] = part


def _zero(data: bytearray, other: bytes, draw: random.Random) -> None:
    at = draw.randrange(len(data))
    end = min(len(data), at + draw.randrange(1, 20_000))
    data[at:end] = bytes(end - at)


_MUTATORS = {"flip": _flip, "truncate": _truncate, "splice": _splice, "zero": _zero}

if __name__ == "__main__":
    sys.exit(main())
