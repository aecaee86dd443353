"""Random SIGKILLs in a run against the same run left alone: every sample once, the same bits.

    python -m benchmarks.training.resume [--short]

Attempts are real trainer processes on gloo with a random Llama of 100,000 weights. A kill hits one
rank at a random moment: in a step, in the middle of a save (half of them), and around the border of
two passes. The next attempt goes on from the newest complete checkpoint. Judged by the ledger of
samples and by the SHA-256 of the published weights.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Report, parser
from benchmarks.training.stage_run import StageFiles, StageRun, wait_for
from benchmarks.training.tiny_model import write_questions, write_texts, write_tiny_model
from benchmarks.training.zygote import Zygote

ROWS = 6  # of a step
QUESTIONS = 67
EVERY = 7  # steps between checkpoints: never in step with the passes
CASES: dict[tuple[str, str, int], dict[str, Any]] = {
    ("cpt", "fsdp", 2): {"sequence_length": 96, "learning_rate": 1e-3},
    ("sft", "fsdp", 2): {"tokens_per_forward": 160, "token_budget": 0},
    ("sft", "trl", 2): {"tokens_per_forward": 160, "token_budget": 0},
    ("dpo", "trl", 2): {"micro_batch": 2},
    ("rlvr", "trl", 2): {"generations": 4, "max_new_tokens": 4, "learning_rate": 1e-3},
}


class Disturbed(NamedTuple):
    """Where the kills fell."""

    kills: int
    in_saves: int
    near_borders: int


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    kills, steps = (4, 60) if arguments.short else (20, 400)
    report = Report("training", "resume", short=arguments.short)
    with tempfile.TemporaryDirectory() as folder, Zygote(("training.trainers.sft",)) as zygote:
        root = Path(folder)
        base = write_tiny_model(root / "base")
        data = {
            "cpt": write_texts(root / "texts.parquet", 70),
        }
        questions = write_questions(root / "questions.parquet", QUESTIONS)
        tuned = answering(zygote, root / "tuned", base, questions)
        for (stage, backend, ranks), settings in CASES.items():
            made = {
                "parent": tuned if stage == "rlvr" else base,
                "data": data.get(stage, questions),
                "stage": stage,
                "backend": backend,
                "every": EVERY,
                **_length(stage, steps),
                **settings,
            }
            name = f"{stage} by {backend}, {ranks} ranks"
            alone = StageRun(zygote, root / "alone" / backend, **made)
            alone.finish(ranks)
            killed = StageRun(zygote, root / "killed" / backend, **made)
            done = disturb(killed, ranks, kills, steps)
            killed.finish(ranks)
            judge(report, name, alone, killed, done)
    return report.finish()


def answering(zygote: Zygote, root: Path, base: Path, questions: Path) -> Path:
    """A model that knows some answers: without rewards that differ, GRPO moves no weight."""
    run = StageRun(
        zygote, root, parent=base, data=questions, stage="sft", backend="trl",
        epochs=12.0, rows_per_step=8, tokens_per_forward=160, learning_rate=3e-3,
    )  # fmt: skip
    run.finish(1)
    return run.folder / "model"


def _length(stage: str, steps: int) -> dict[str, Any]:
    """The settings that make a stage as many steps of `ROWS` rows long."""
    if stage == "rlvr":
        return {"steps": steps, "prompts_per_step": ROWS}
    epochs = 1000.0 if stage == "cpt" else steps * ROWS / QUESTIONS
    return {"epochs": epochs, "rows_per_step": ROWS, "max_steps": steps}


def disturb(run: StageRun, ranks: int, kills: int, steps: int) -> Disturbed:
    """Kill a rank `kills` times at random points of the run."""
    noise = random.Random(11)
    targets = sorted(noise.sample(range(1, steps - EVERY), kills))
    in_saves = near_borders = 0
    for number, target in enumerate(targets):
        attempt = run.start(ranks)
        wait_for(lambda target=target: run.steps_so_far() >= target, attempt)  # type: ignore[misc]
        if number % 2:
            wait_for(lambda: is_saving(run), attempt)
        time.sleep(noise.uniform(0, 0.02))
        in_saves += is_saving(run)
        near_borders += is_near_border(run)
        attempt.kill(noise.randrange(ranks))
        attempt.wait()
    return Disturbed(len(targets), in_saves, near_borders)


def is_saving(run: StageFiles) -> bool:
    return any(run.checkpoints.glob("*/.incomplete/checkpoint-*"))


def is_near_border(run: StageFiles) -> bool:
    """Whether the newest step, or the one after it, holds samples of two passes."""
    try:
        count = run.samples()
    except FileNotFoundError:  # the kill came before the first word
        return False
    first = run.steps_so_far() * ROWS
    return (first - ROWS) // count != (first + ROWS - 1) // count


def judge(report: Report, name: str, alone: StageRun, killed: StageRun, done: Disturbed) -> None:
    report.add(f"{name}: kills", done.kills, f"({done.in_saves} in a save)")
    report.add(f"{name}: kills within a step of a border", done.near_borders)
    audit = killed.audit()
    report.add(f"{name}: passes over the samples", audit.epochs)
    report.add(f"{name}: samples lost or repeated", len(audit.faults), target="= 0")
    report.add(f"{name}: steps trained again", audit.retrained_steps, f"of {audit.steps}")
    same = killed.weights() == alone.weights()
    report.add(f"{name}: weights equal in every bit", int(same), target="= 1")


if __name__ == "__main__":
    sys.exit(main())
