"""Runs of the project's own trainers on the cluster: `training.train`, a random Llama, two nodes.

python -m benchmarks.chaos.real_trainer CONFIG.yaml        train it, as a process of its own
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.chaos.lab import Lab, LabError, ranks_of
from benchmarks.chaos.result import Result
from benchmarks.chaos.supervisor import REPOSITORY
from benchmarks.training.resume import EVERY, QUESTIONS, ROWS, Disturbed, is_near_border, is_saving
from benchmarks.training.stage_run import StageFiles
from benchmarks.training.tiny_model import write_questions, write_tiny_model
from training.train import plan, train
from training.train_config import TrainConfig
from training.trainers.settings import RlvrSettings, SftSettings
from workspace.manifest import Manifest, describe_file, now, write_manifest

PATIENCE_S = 180.0
NODES = 2


def random_kills(lab: Lab, short: bool) -> list[Result]:
    """C4: SIGKILL to a rank at random moments, half of them in a save, under the supervisor."""
    kills, steps = (3, 60) if short else (20, 400)
    base = write_tiny_model(lab.folder / "base-C4")
    alone = _start(lab.folder / "alone", base, steps)
    alone.finish()
    killed = _start(lab.folder / "killed", base, steps)
    done = _disturb(killed, kills, steps)
    killed.finish()
    audit = killed.files.audit()
    if audit.steps != steps:
        raise LabError(f"{audit.steps} steps are in the ledger, not {steps}")
    same = killed.files.weights() == alone.files.weights()
    return [
        Result(f"samples lost or repeated, {done.kills} kills in {steps} steps",
               len(audit.faults), "", "= 0"),
        Result("final weights equal to the undisturbed run's in every bit", int(same), "", "= 1"),
        Result("kills in the middle of a save", done.in_saves, "", ">= 1"),
        Result("kills within a step of a border of two passes", done.near_borders, "", ">= 1"),
    ]  # fmt: skip


class RealRun(NamedTuple):
    """A run whose supervisor is a process of its own."""

    supervisor: subprocess.Popen[bytes]
    log: Path
    files: StageFiles

    def finish(self, within_s: float = 600.0) -> None:
        """To a good end. Raises `LabError` with its log otherwise."""
        try:
            code = self.supervisor.wait(within_s)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            raise LabError(f"{self.log.parent.name} is not over after {within_s} s") from None
        if code:
            raise LabError(f"exit {code}: {self.log.read_text(errors='replace')[-1500:]}")

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if self.supervisor.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-1500:]
                raise LabError(f"{self.log.parent.name} never {what}: {said}")
            time.sleep(0.002)


def _disturb(run: RealRun, kills: int, steps: int) -> Disturbed:
    """One kill after each of `kills` steps, the next when its ranks train again: random ones, and
    that before the first step with samples of two passes."""
    noise, files = random.Random(11), run.files
    border = QUESTIONS // ROWS
    targets = sorted({border, *noise.sample(range(border + 2, steps - EVERY), kills - 1)})
    in_saves = near_borders = 0
    for number, target in enumerate(targets):
        run.until(lambda: files.steps_so_far() >= target, f"trained step {target}")  # noqa: B023
        if number % 2 == 1:
            run.until(lambda: is_saving(files), "saved")
        in_saves += is_saving(files)
        near_borders += is_near_border(files)
        ranks = ranks_of(files.folder)
        if len(ranks) != NODES:
            raise LabError(f"{len(ranks)} ranks are there to kill one of")
        os.kill(ranks[noise.randrange(NODES)], signal.SIGKILL)
        before = set(ranks.values())
        run.until(
            lambda: len(now := ranks_of(files.folder)) == NODES and not before & set(now.values()),  # noqa: B023
            "started its ranks again",
        )
        written = _metrics_size(files)
        run.until(lambda: _metrics_size(files) > written, "trained again")  # noqa: B023
    return Disturbed(kills, in_saves, near_borders)


def _metrics_size(files: StageFiles) -> tuple[int, int]:
    """Attempt and bytes: it grows with every step of whoever trains."""
    with suppress(FileNotFoundError):
        return files.attempts, (files.attempt_dir() / "metrics.jsonl").stat().st_size
    return files.attempts, 0


def _start(workspace: Path, base: Path, steps: int) -> RealRun:
    config = config_of(
        workspace,
        base,
        questions=QUESTIONS,
        backend="fsdp",
        epochs=steps * ROWS / QUESTIONS,
        max_steps=steps,
        rows_per_step=ROWS,
        checkpoint_every_steps=EVERY,
    )
    file = write_config(config)
    log = workspace / "supervisor.log"
    with log.open("wb") as stream:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.chaos.real_trainer", str(file)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    return RealRun(supervisor, log, StageFiles(stage_of(config).resolve()))


def config_of(
    workspace: Path,
    base: Path,
    *,
    questions: int,
    checkpoint_every_steps: int = 10,
    **sft: Any,
) -> TrainConfig:
    """A run of `sft` alone on two nodes, on a data set of `questions` that is written for it."""
    folder = workspace / "datasets" / "dsm"
    view = folder / "views" / "trl_sft"
    view.mkdir(parents=True)
    write_questions(view / "train.parquet", questions)
    manifest = Manifest(
        stage="dataset",
        key="d" * 16,
        fingerprint="f" * 16,
        settings={},
        inputs={},
        code_version="chaos",
        created=now(),
        files=[describe_file(folder, view / "train.parquet")],
    )
    write_manifest(folder, manifest)
    return TrainConfig(
        workspace=workspace,
        base_model=str(base),
        precision="fp32",
        sft=SftSettings(tokens_per_forward=160, token_budget=0, **sft),
        rlvr=RlvrSettings(steps=0),
        checkpoint_every_steps=checkpoint_every_steps,
        launcher="slurm",
        nodes=NODES,
        time_limit_s=1800,
    )


def write_config(config: TrainConfig) -> Path:
    """As the YAML file that its command line takes."""
    file = config.workspace / "train.yaml"
    values = config.model_dump(mode="json", exclude_unset=True)
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def stage_of(config: TrainConfig) -> Path:
    return plan(config).folder.root / "sft"


if __name__ == "__main__":
    train(TrainConfig.from_yaml(Path(sys.argv[1])))
