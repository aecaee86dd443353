"""How long training stands still for a checkpoint: written at once, or while it goes on.

    python -m benchmarks.training.async_save [--short]

Four ranks on gloo train a random Llama of 6.8 million weights, whose state is 82 MB, and save it
every eighth step. Runs of both kinds take turns. The stall is the time that the loop spends in the
save, waiting for the one before included, in the median over all saves.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Report, parser
from benchmarks.training.stage_run import StageRun
from benchmarks.training.tiny_model import write_texts, write_tiny_model
from benchmarks.training.zygote import Zygote
from training.trainers.save_interval import young_interval_s

RANKS = 4
EVERY = 8
SAVES = 6
MTBF_S = 3 * 3600.0


def main() -> int:
    return measure(parser(__doc__ or "").parse_args().short).finish()


def measure(short: bool) -> Report:
    """The figures, not yet written."""
    rounds = 1 if short else 2
    report = Report("training", "async_save", short=short)
    stalls: dict[bool, list[float]] = {False: [], True: []}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        root = Path(folder)
        base = write_tiny_model(root / "base", hidden=384, layers=5)
        texts = write_texts(root / "texts.parquet", 200)
        size = 0
        for number in range(rounds):
            for is_async in (False, True) if number % 2 == 0 else (True, False):
                run = StageRun(
                    zygote,
                    root / f"{number}-{is_async}",
                    parent=base,
                    data=texts,
                    every=EVERY,
                    epochs=1000.0,
                    max_steps=EVERY * SAVES + 1,
                    sequence_length=128,
                    rows_per_step=8,
                    micro_batch=2,
                    async_save=is_async,
                )
                run.finish(RANKS)
                steps = run.metrics()
                stalls[is_async] += [step.checkpoint_s for step in steps if step.checkpoint_s]
                seconds[is_async].append(sum(step.seconds for step in steps[1:]))
                size = max(size, size_of_newest(run))
    report.add("state on disk", size / 1e6, "MB")
    at_once, meanwhile = statistics.median(stalls[False]), statistics.median(stalls[True])
    report.add("saves of each kind", len(stalls[True]))
    report.add("stall of a save while training goes on", meanwhile, "s",
               peer="save at once", peer_value=at_once)  # fmt: skip
    report.add("stall, share of a save at once", 100 * meanwhile / at_once, "%", target="<= 25")
    between = young_interval_s(meanwhile, MTBF_S)
    report.add("stall, share of the time between saves as planned for a failure every 3 h",
               100 * meanwhile / between, "%", target="<= 1")  # fmt: skip
    report.add("whole run", statistics.median(seconds[True]), "s",
               peer="save at once", peer_value=statistics.median(seconds[False]))  # fmt: skip
    return report


def size_of_newest(run: StageRun) -> int:
    """Bytes of the newest checkpoint."""
    newest = max(run.checkpoints.glob("*/checkpoint-*"), key=lambda path: path.stat().st_mtime)
    return sum(path.stat().st_size for path in newest.iterdir())


if __name__ == "__main__":
    sys.exit(main())
