"""Training metrics on disk: one JSON line per optimizer step.

    runs/<run>/<stage>/attempts/<n>/metrics.jsonl

Rank 0 of each attempt appends to its own file, so a stale writer never mixes its lines with those
of its successor. Steps that were trained again after a crash appear in both files; `read_metrics`
keeps those of the newest attempt, which are the ones that the weights went through.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from training.trainers.settings import STAGES

METRICS_NAME = "metrics.jsonl"


@dataclass(frozen=True)
class StepMetrics:
    """What one optimizer step did."""

    stage: str  # cpt | sft | dpo | rlvr
    attempt: int
    step: int  # 1-based
    total_steps: int
    epoch: float
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int  # in this step, all ranks, without padding
    seconds: float  # wall time of this step, all work between two steps included
    data_wait_s: float = 0.0  # of these, waiting for the batch
    checkpoint_s: float = 0.0  # of these, held up by the save after the step before
    # Model FLOPs utilisation (PaLM, appendix B); None where it is not defined (training.mfu).
    mfu: float | None = None
    # Bytes on rank 0: host, gpu_allocated, gpu_reserved, gpu_peak (training.memory_watch)
    memory: dict[str, float] = field(default_factory=dict)
    # rlvr: reward, reward_std, frac_reward_zero_std, those of `training.data.reward`; sft: entropy,
    # ...; eval_loss in the steps that were followed by an evaluation
    extra: dict[str, float] = field(default_factory=dict)
    # When the step was over, in seconds of the epoch; `append` says now for 0.
    time: float = field(default=0.0, compare=False)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def append(path: Path, metrics: StepMetrics) -> None:
    """Add a line; it is in the operating system's hands when this returns."""
    stamped = metrics if metrics.time else replace(metrics, time=time.time())
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(stamped)) + "\n")


class MetricsFollower:
    """Reads a growing metrics file piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> list[StepMetrics]:
        """Steps written since the last call. A torn last line waits for its end."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return [step for line in data[:end].splitlines() if (step := _parse(line))]


def read_metrics(run: Path, stage: str | None = None) -> list[StepMetrics]:
    """All steps of a run's folder in order: stage by stage, each step as it was last trained."""
    names = (stage,) if stage else STAGES
    return [step for name in names for step in read_history(run / name).steps]


class Restart(NamedTuple):
    """Training went on at `step` after it had reached `reached`."""

    step: int
    reached: int
    attempt: int  # that goes on


class History(NamedTuple):
    """A stage's steps, each as it was last trained, and where it was taken up again."""

    steps: list[StepMetrics]
    restarts: list[Restart]


def read_history(stage: Path) -> History:
    """Of a stage's folder."""
    kept: list[StepMetrics] = []
    restarts: list[Restart] = []
    for path in attempt_files(stage):
        for step in MetricsFollower(path).new():
            if kept and (step.step <= kept[-1].step or step.attempt != kept[-1].attempt):
                restarts.append(Restart(step.step, kept[-1].step, step.attempt))
            # A new attempt or generation goes on from a checkpoint before the last step.
            while kept and kept[-1].step >= step.step:
                kept.pop()
            kept.append(step)
    return History(kept, restarts)


def seconds_spent(stage: Path) -> float:
    """Seconds of all steps of a stage's folder, those trained again after a crash included."""
    return sum(
        step.seconds for path in attempt_files(stage) for step in MetricsFollower(path).new()
    )


def attempt_files(stage: Path, name: str = METRICS_NAME) -> list[Path]:
    """The file `name` of each attempt of a stage's folder, oldest first; some may not be there."""
    folders = [p for p in stage.glob("attempts/*") if p.name.isdigit()]
    return [p / name for p in sorted(folders, key=lambda p: int(p.name))]


def _parse(line: bytes) -> StepMetrics | None:
    # A machine that lost power may leave a block of zeros in the middle of an appended file.
    try:
        return StepMetrics(**json.loads(line))
    except (ValueError, TypeError):
        return None
