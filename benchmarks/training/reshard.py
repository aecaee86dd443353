"""A run that changes its number of ranks on the way: 4, then 2, then 3, against one rank's.

    python -m benchmarks.training.reshard [--short]

Each change is a stop on request and a new attempt that reads the checkpoint of other ranks. The
global batch stays, so the losses must be those of the undisturbed run up to rounding, and the
ledger must show every sample once.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Report, parser
from benchmarks.training.stage_run import StageRun, wait_for
from benchmarks.training.tiny_model import write_questions, write_texts, write_tiny_model
from benchmarks.training.zygote import Zygote
from training.cluster.job import EXIT_RESUME, STOP_FILE

RANKS = (4, 2, 3)
SETTINGS: dict[str, dict[str, Any]] = {
    "cpt": {"sequence_length": 96, "rows_per_step": 7, "learning_rate": 3e-4},
    "sft": {"rows_per_step": 7, "tokens_per_forward": 160, "token_budget": 0},
}


def main() -> int:
    return measure(parser(__doc__ or "").parse_args().short).finish()


def measure(short: bool) -> Report:
    """The figures, not yet written."""
    steps = 30 if short else 150
    report = Report("training", "reshard", short=short)
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        root = Path(folder)
        base = write_tiny_model(root / "base")
        data = {
            "cpt": write_texts(root / "texts.parquet", 70),
            "sft": write_questions(root / "questions.parquet", 67),
        }
        for stage, settings in SETTINGS.items():
            made = {
                "parent": base,
                "data": data[stage],
                "stage": stage,
                "every": 1000,
                "epochs": 1000.0,
                "max_steps": steps,
                **settings,
            }
            alone = StageRun(zygote, root / "alone", **made)
            alone.finish(RANKS[0])
            changed = StageRun(zygote, root / "changed", **made)
            change_ranks(changed, steps, RANKS)
            judge(report, stage, alone, changed)
    return report


def change_ranks(run: StageRun, steps: int, way: Sequence[int]) -> None:
    """An equal share of the steps with each number of ranks of `way`."""
    for number, ranks in enumerate(way[:-1], start=1):
        attempt = run.start(ranks)
        wait_for(lambda n=number: run.steps_so_far() >= n * steps // len(way), attempt)  # type: ignore[misc]
        (run.attempt_dir() / STOP_FILE).touch()
        codes = attempt.wait()
        assert set(codes) == {EXIT_RESUME}, f"{codes}\n{run.log()}"
    run.finish(way[-1])


def judge(report: Report, stage: str, alone: StageRun, changed: StageRun) -> None:
    pairs = zip(alone.metrics(), changed.metrics(), strict=True)
    differences = [abs(one.loss - other.loss) for one, other in pairs]
    way = " -> ".join(map(str, RANKS))
    name = f"{stage}, {way} ranks against {RANKS[0]}"
    report.add(f"{name}: steps", len(differences))
    report.add(f"{name}: largest difference of a loss", max(differences), target="<= 1e-5")
    audit = changed.audit()
    report.add(f"{name}: samples lost or repeated", len(audit.faults), target="= 0")
    report.add(f"{name}: attempts in the line", len(audit.stretches), target=f"= {len(RANKS)}")


if __name__ == "__main__":
    sys.exit(main())
