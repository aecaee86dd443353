"""The real supervisor on the trainer without a model, as a process that can be killed.

    python -m benchmarks.chaos.supervisor RUN.json

Exit code 0: the stage is done; 3: given up, with the reason on standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.chaos.trainer import Settings
from training.cluster.blacklist import Blacklist
from training.cluster.hang import SectionLimits
from training.cluster.health.config import HealthSettings
from training.cluster.job import Job
from training.cluster.recovery import Limits
from training.cluster.slurm import SlurmLauncher, SlurmOptions
from training.cluster.successor_queue import SuccessorQueue
from training.progress import TrainProgress
from training.run_record import StageFolder
from training.supervise import Recovery, Watch, run_stage
from workspace import publish
from workspace.errors import DsmError

GIVEN_UP = 3
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunSettings:
    """A run of one stage; `root` is runs/<run>/sft in a workspace."""

    root: str
    settings: Settings
    nodes: int = 2
    spares: int = 0
    processes: int = 1
    restarts: int = 100
    time_limit_s: int = 3600
    signal_lead_s: int = 60
    max_attempts: int = 10
    step_limit_s: float = 10.0
    min_nodes: int = 0
    shrink_after_s: float = 0.0
    successor: bool = False
    successor_wait_s: float = 10.0
    metrics_targets: str = ""  # where the agents tell Prometheus of themselves; empty: nowhere
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def stage(self) -> Path:
        return Path(self.root)

    @property
    def workspace(self) -> Path:
        return self.stage.parents[2]

    @property
    def key(self) -> str:
        return f"dsm-{self.stage.parent.name}-sft"

    def write(self) -> Path:
        path = self.stage.parent / "chaos.json"
        publish.write_json(path, asdict(self))
        self.settings.write(self.stage / "settings.json")
        return path


def read(path: Path) -> RunSettings:
    values = json.loads(path.read_text(encoding="utf-8"))
    return RunSettings(**{**values, "settings": Settings(**values["settings"])})


def make_job(
    run: RunSettings,
    attempt: int,
    exclude_nodes: tuple[str, ...],
    nodes: int,
    into: Path | None = None,
) -> Job:
    attempt_dir = run.stage / "attempts" / str(attempt)
    (into or attempt_dir).mkdir(parents=True, exist_ok=True)
    return Job(
        key=f"{run.key}-{attempt}",
        command=("-m", "benchmarks.chaos.trainer", str(run.stage / "settings.json")),
        attempt_dir=attempt_dir,
        nodes=nodes or run.nodes,
        processes_per_node=run.processes,
        time_limit_s=run.time_limit_s,
        exclude_nodes=exclude_nodes,
        spares=run.spares,
        restarts=run.restarts,
        checkpoints=run.stage / "checkpoints",
        metrics_targets=Path(run.metrics_targets) if run.metrics_targets else None,
        health=HealthSettings(),  # a user's: nodes and the links between them are checked
        sections=SectionLimits(setup_s=60, step_s=run.step_limit_s, checkpoint_s=60),
        environment={"PYTHONPATH": str(REPOSITORY), **run.environment},
    )


def supervise(run: RunSettings) -> None:
    """To the end. Raises what `run_stage` raises."""
    options = SlurmOptions(
        signal_lead_s=run.signal_lead_s,
        cancel_grace_s=20,
        successor=run.successor,
        successor_wait_s=run.successor_wait_s,
    )
    launcher = SlurmLauncher(options)
    recovery = Recovery(
        limits=Limits(attempts=run.max_attempts, restarts=run.restarts),
        worlds=(run.nodes, *(reversed(range(run.min_nodes, run.nodes)) if run.min_nodes else ())),
        shrink_after_s=run.shrink_after_s,
        blacklist=Blacklist(run.workspace / "bad-nodes.jsonl"),
        successors=SuccessorQueue(launcher),
    )
    run_stage(
        StageFolder(run.stage, "sft"),
        launcher,
        partial(make_job, run),
        Watch(_say, (run.stage / "stop").exists, 1.0),
        recovery,
    )


def _say(progress: TrainProgress) -> None:
    print(time.strftime("%X"), os.getpid(), progress.attempt, progress.state, progress.detail)


if __name__ == "__main__":
    try:
        supervise(read(Path(sys.argv[1])))
    except DsmError as error:
        print(error, file=sys.stderr)
        sys.exit(GIVEN_UP)
