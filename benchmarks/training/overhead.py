"""What our frame around a trainer costs: metrics, ledger, stop file, bounded passes, order.

    python -m benchmarks.training.overhead [--short]

One process trains a random Llama of 11 million weights on the same rows in the same order, by turns
with TRL's SFTTrainer as it comes, with ours around it, and with the fsdp trainer on one rank (it
computes no entropy and no accuracy). No checkpoint falls into the steps that are timed, whose first
is left out. Judged by the CPU seconds of the process: the median over rounds of ours divided by the
plain trainer's of the same round.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Report, parser
from benchmarks.training.tiny_model import write_questions, write_tiny_model
from training.cluster.local import ENVIRONMENT
from training.trainers.spec import TrainSpec
from training.trainers.stopping import StopRequest

ROWS = 8
NEVER = 1_000_000


class Spent(NamedTuple):
    """By the steps after the first one of a round."""

    cpu_s: float
    wall_s: float


class Clock:
    """Read at the begin of each step and at the end of the last one."""

    def __init__(self) -> None:
        self._readings: list[Spent] = []

    def read(self) -> None:
        self._readings.append(Spent(time.process_time(), time.perf_counter()))

    @property
    def spent(self) -> Spent:
        """Without the first step, which makes the optimizer's states."""
        first, last = self._readings[1], self._readings[-1]
        return Spent(last.cpu_s - first.cpu_s, last.wall_s - first.wall_s)


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    if "MALLOC_ARENA_MAX" not in os.environ:
        # The allocator's settings are read at the start; all three train as in a job.
        environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]], environment)
    rounds, steps = (3, 4) if arguments.short else (12, 7)
    report = Report("training", "overhead", short=arguments.short)
    spent: dict[str, list[Spent]] = {"plain": [], "wrapped": [], "fsdp": []}
    ways: dict[str, Callable[[TrainSpec], Spent]] = {
        "plain": plain,
        "wrapped": wrapped,
        "fsdp": sharded,
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        base = write_tiny_model(root / "base", hidden=384, layers=8)
        data = write_questions(root / "questions.parquet", 200, longest=100)
        for number in range(rounds + 1):
            names = list(ways) if number % 2 else list(reversed(ways))
            for name in names:
                spec = spec_of(root / f"{number}-{name}", base, data, steps, name)
                took = ways[name](spec)
                if number:  # the first round warms up
                    spent[name].append(took)
    judge(report, spent, steps - 1)
    return report.finish()


def spec_of(folder: Path, base: Path, data: Path, steps: int, name: str) -> TrainSpec:
    (folder / "attempts" / "1").mkdir(parents=True)
    return TrainSpec(
        stage="sft",
        attempt=1,
        stage_dir=folder,
        attempt_dir=folder / "attempts" / "1",
        parent=base,
        data=(data,),
        sft={
            "backend": "fsdp" if name == "fsdp" else "trl",
            "rows_per_step": ROWS,
            "epochs": 1000.0,
            "max_steps": steps,
            "token_budget": 0,
            "tokens_per_forward": 1 << 20,  # one pass, as the plain trainer does it
        },
        seed=1,
        precision="fp32",
        use_gpu=False,
        checkpoint_every_steps=NEVER,
        keep_checkpoints=1,
    )


def plain(spec: TrainSpec) -> Spent:
    """TRL's trainer, with the rows and the settings that ours has."""
    from trl import SFTConfig, SFTTrainer

    from training.trainers import sft

    ready = sft.prepare(spec, StopRequest(spec.attempt_dir))
    settings = spec.sft
    trainer = SFTTrainer(
        model=ready.trainer.model,
        args=SFTConfig(
            output_dir=str(spec.stage_dir / "plain"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=settings.max_steps,
            per_device_train_batch_size=ROWS,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            train_sampling_strategy="sequential",
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=ready.trainer.train_dataset.remove_columns("place"),
        processing_class=ready.tokenizer,
    )
    return timed(trainer)


def wrapped(spec: TrainSpec) -> Spent:
    """The trainer as a job runs it."""
    from training.trainers import sft

    return timed(sft.prepare(spec, StopRequest(spec.attempt_dir)).trainer)


def timed(trainer: Any) -> Spent:
    """Train; what other callbacks do at the begin of a step counts for that step."""
    from transformers import TrainerCallback

    clock = Clock()

    class ReadClock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.read()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            clock.read()

    trainer.callback_handler.callbacks.insert(0, ReadClock())
    trainer.train()
    return clock.spent


def sharded(spec: TrainSpec) -> Spent:
    """The fsdp trainer on one rank."""
    import torch.distributed as dist

    from training.trainers.fsdp import Run
    from training.trainers.ranks import start

    run = Run(spec, start(use_gpu=False), StopRequest(spec.attempt_dir))
    clock = Clock()
    for step in range(1, run.schedule.steps + 1):
        clock.read()
        run.step(step)
    clock.read()
    run.saver.close()
    dist.destroy_process_group()
    return clock.spent


def judge(report: Report, spent: dict[str, list[Spent]], steps: int) -> None:
    plain_cpu = [took.cpu_s for took in spent["plain"]]
    report.add("rounds", len(plain_cpu), f"of {steps} steps")
    for name, target in (("wrapped", "<= 2"), ("fsdp", "")):
        told = {"wrapped": "our TRL trainer", "fsdp": "fsdp trainer, one rank"}[name]
        ratios = [took.cpu_s / peer for took, peer in zip(spent[name], plain_cpu, strict=True)]
        more = 100 * (statistics.median(ratios) - 1)
        report.add(f"{told}: CPU seconds more than plain TRL", more, "%", target=target)
        report.add(f"{told}: the same, quartiles", spread(ratios), "%")
        report.add(
            f"{told}: wall seconds of a step",
            statistics.median(took.wall_s for took in spent[name]) / steps,
            "s",
            peer="plain TRL SFTTrainer",
            peer_value=statistics.median(took.wall_s for took in spent["plain"]) / steps,
        )


def spread(ratios: list[float]) -> float:
    """Half the distance of the quartiles, in percent of the plain trainer's time."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return 100 * (high - low) / 2


if __name__ == "__main__":
    sys.exit(main())
