"""SIGKILL at points spread over a save, synchronous and asynchronous: what does the next one load?

    python -m benchmarks.training.save_kill [--short]

Two ranks save a state of about 20 MB every second step. Both are killed at a chosen share of the
time that a save takes. Which checkpoint is the newest complete one is worked out beforehand from
the files alone, by this program's own reading of sizes and hashes; the next attempt must name it in
its ledger, and must leave nothing of the broken one.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Report, parser
from benchmarks.training.stage_run import StageRun, wait_for
from benchmarks.training.tiny_model import write_texts, write_tiny_model
from benchmarks.training.zygote import Attempt, Zygote

RANKS = 2
EVERY = 2


class Outcome(NamedTuple):
    phase: str
    is_newest: bool
    is_clean: bool


def main() -> int:
    return measure(parser(__doc__ or "").parse_args().short).finish()


def measure(short: bool) -> Report:
    """The figures, not yet written."""
    points = 8 if short else 50
    report = Report("training", "save_kill", short=short)
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        root = Path(folder)
        base = write_tiny_model(root / "base", hidden=256, layers=3)
        texts = write_texts(root / "texts.parquet", 70)
        for name, is_async in (("synchronous", False), ("asynchronous", True)):
            run = StageRun(
                zygote,
                root / name,
                parent=base,
                data=texts,
                every=EVERY,
                epochs=1000.0,
                max_steps=100_000,
                sequence_length=96,
                rows_per_step=2,
                async_save=is_async,
            )
            judge(report, name, kill_at_points(run, points))
    return report


def kill_at_points(run: StageRun, points: int) -> list[Outcome]:
    """One kill in each of `points` parts of a save's time; the next attempt shows what it loads."""
    noise = random.Random(5)
    seconds = time_of_a_save(run)
    outcomes = []
    attempt = run.start(RANKS)
    for point in range(points):
        kill_in_a_save(run, attempt, seconds * (point + noise.random()) / points)
        phase, expected = phase_of(run), newest_by_hand(run)
        attempt = run.start(RANKS)
        wait_for(lambda: any(ledger_files(run)), attempt)
        resumed = resumed_from(run)
        outcomes.append(Outcome(phase, resumed == expected, not left_overs(run)))
        if resumed != expected:
            print(f"point {point}: resumed from {resumed}, newest complete: {expected}")
    attempt.kill()
    attempt.wait()
    return outcomes


def kill_in_a_save(run: StageRun, attempt: Attempt, delay_s: float) -> None:
    """Not in the attempt's first save: then the newest complete one may be of this attempt."""
    before = run.newest_step
    wait_for(lambda: run.newest_step > before, attempt)
    wait_for(lambda: bool(unfinished(run)), attempt)
    time.sleep(delay_s)
    attempt.kill()
    attempt.wait()


def time_of_a_save(run: StageRun) -> float:
    """The median over some saves from the first file to the rename."""
    attempt = run.start(RANKS)
    seconds: list[float] = []
    while len(seconds) < 6:
        wait_for(lambda: bool(unfinished(run)), attempt)
        begun = time.monotonic()
        wait_for(lambda: not unfinished(run), attempt)
        seconds.append(time.monotonic() - begun)
    attempt.kill()
    attempt.wait()
    return sorted(seconds[1:])[len(seconds) // 2]


def unfinished(run: StageRun) -> list[Path]:
    return list(run.checkpoints.glob("*/.incomplete/checkpoint-*"))


def phase_of(run: StageRun) -> str:
    """How far the save was, by its files."""
    folders = unfinished(run)
    if not folders:
        return "published"
    names = {path.name for path in folders[0].iterdir()}
    if "complete.json" in names:
        return "manifest written"
    if ".metadata" in names:
        return "state written"
    return "writing" if any(name.endswith(".distcp") for name in names) else "begun"


def newest_by_hand(run: StageRun) -> str | None:
    """`<writer>/<step>` of the newest checkpoint whose files are all there and unchanged."""
    found: list[tuple[int, int, str]] = []
    for marker in run.checkpoints.glob("*/checkpoint-*/complete.json"):
        manifest = json.loads(marker.read_text())
        if all(
            hashlib.sha256((marker.parent / name).read_bytes()).hexdigest() == digest
            for name, digest in manifest["sha256"].items()
        ):
            writer = marker.parent.parent.name
            found.append((manifest["step"], int(writer), f"{writer}/{manifest['step']}"))
    return max(found)[2] if found else None


def ledger_files(run: StageRun) -> list[Path]:
    files = run.attempt_dir().glob("ledger/*/rank-0000.jsonl")
    return [path for path in files if b"\n" in path.read_bytes()]


def resumed_from(run: StageRun) -> str | None:
    line = ledger_files(run)[0].read_bytes().split(b"\n")[0]
    origin = json.loads(line)["resumed_from"]
    return f"{origin['writer']}/{origin['step']}" if origin else None


def left_overs(run: StageRun) -> list[Path]:
    """What the killed attempts left unfinished; the running one may be saving."""
    own = str(run.attempts)
    broken = [*unfinished(run), *run.checkpoints.glob("*/.removed-*")]
    return [path for path in broken if path.relative_to(run.checkpoints).parts[0] != own]


def judge(report: Report, name: str, outcomes: list[Outcome]) -> None:
    total = len(outcomes)
    newest = sum(outcome.is_newest for outcome in outcomes)
    clean = sum(outcome.is_clean for outcome in outcomes)
    report.add(f"{name}: resumed from the newest complete one", newest, f"of {total}",
               target=f"= {total}")  # fmt: skip
    report.add(f"{name}: broken ones removed", clean, f"of {total}", target=f"= {total}")
    for phase, count in Counter(outcome.phase for outcome in outcomes).items():
        report.add(f"{name}: killed when {phase}", count)


if __name__ == "__main__":
    sys.exit(main())
