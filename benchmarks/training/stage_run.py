"""One stage of a run, attempt after attempt, as the supervisor runs it, with faults at will."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.training.zygote import Attempt, Zygote
from training import checkpoints, ledger
from training.cluster.job import STOP_FILE
from training.metrics import StepMetrics, read_metrics
from training.trainers.spec import TrainSpec

MODULES = {
    ("cpt", "fsdp"): "training.trainers.fsdp",
    ("sft", "fsdp"): "training.trainers.fsdp",
    ("sft", "trl"): "training.trainers.sft",
    ("dpo", "trl"): "training.trainers.dpo",
    ("rlvr", "trl"): "training.trainers.grpo",
}


class StageFiles:
    """What a stage of the real trainers leaves in its folder, whoever started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def attempts(self) -> int:
        """How many were made."""
        return sum(path.name.isdigit() for path in self.folder.glob("attempts/*"))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def newest_step(self) -> int:
        newest = checkpoints.newest_complete(self.checkpoints)
        return newest.step if newest else 0

    @property
    def is_done(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def attempt_dir(self, number: int = 0) -> Path:
        """Of an attempt, by default the newest."""
        return self.folder / "attempts" / str(number or self.attempts)

    def log(self, attempt: int = 0) -> str:
        """The end of what an attempt's ranks said, by default of the newest."""
        return (self.attempt_dir(attempt) / "log").read_text()[-5000:]

    def steps_so_far(self) -> int:
        """Steps of the newest attempt that are in its metrics."""
        path = self.attempt_dir() / "metrics.jsonl"
        try:
            last = path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)[-1]
            return int(json.loads(last)["step"]) if last else 0
        except (FileNotFoundError, ValueError):
            return 0

    def samples(self) -> int:
        """How many there are, by the newest attempt's ledger. Raises `FileNotFoundError`."""
        path = next(self.attempt_dir().glob("ledger/*/rank-0000.jsonl"), None)
        if path is None:
            raise FileNotFoundError(f"attempt {self.attempts} has no ledger yet")
        return int(json.loads(path.read_bytes().split(b"\n")[0])["samples"])

    def metrics(self) -> list[StepMetrics]:
        return read_metrics(self.folder.parent, self.folder.name)

    def audit(self) -> ledger.Audit:
        return ledger.audit(self.folder)

    def weights(self) -> str:
        """Hash of the published weights."""
        seen = hashlib.sha256()
        for path in sorted((self.folder / "model").glob("*.safetensors")):
            seen.update(path.read_bytes())
        return seen.hexdigest()


class StageRun(StageFiles):
    """A stage in a folder of its own. `settings` are those of `TrainSpec` and of the stage."""

    def __init__(
        self,
        zygote: Zygote,
        root: Path,
        *,
        parent: Path,
        data: Path,
        stage: str = "cpt",
        backend: str = "fsdp",
        every: int = 10,
        keep: int = 2,
        precision: str = "fp32",
        evaluation: dict[str, Any] | None = None,
        layout: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(root / stage)
        self.zygote = zygote
        self._module = MODULES[stage, backend]
        self._values = {
            "stage": stage,
            "stage_dir": self.folder,
            "parent": parent,
            "data": (data,),
            "seed": 7,
            "precision": precision,
            "use_gpu": False,
            "checkpoint_every_steps": every,
            "keep_checkpoints": keep,
            "evaluation": evaluation or {},
            "layout": layout or {},
            stage: {"backend": backend, **settings},
        }

    def start(self, world_size: int, *, stop: bool = False, **environment: str) -> Attempt:
        """Start the next attempt. `stop`: it is asked to at once, and so trains one step."""
        number = self.attempts + 1
        folder = self.attempt_dir(number)
        folder.mkdir(parents=True)
        if stop:
            (folder / STOP_FILE).touch()
        spec = TrainSpec(attempt=number, attempt_dir=folder, **self._values)
        (folder / "spec.json").write_text(spec.model_dump_json(indent=1))
        return self.zygote.start(
            self._module,
            folder / "spec.json",
            world_size=world_size,
            log=folder / "log",
            **environment,
        )

    def finish(self, world_size: int) -> None:
        """Run an attempt to the end of the stage. Raises `RuntimeError` with its log otherwise."""
        codes = self.start(world_size).wait()
        if any(codes) or not self.is_done:
            raise RuntimeError(f"attempt {self.attempts} ended with {codes}:\n{self.log()}")


def wait_for(condition: Callable[[], bool], attempt: Attempt, timeout_s: float = 300.0) -> bool:
    """Until `condition` holds (True) or the attempt has ended (False)."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if not attempt.is_running:
            return condition()
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {condition}")
        time.sleep(0.001)
    return True
