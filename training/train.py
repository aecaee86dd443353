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

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from training.base_model import hash_model, resolve_base_model
from training.cluster.blacklist import Blacklist
from training.cluster.flow_state import FlowRecord, note_flow
from training.cluster.job import Launcher
from training.cluster.local import LocalLauncher
from training.cluster.recovery import Limits
from training.cluster.slurm import SlurmLauncher
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_queue import SharedQueue, queue_name
from training.cluster.successor_queue import SuccessorQueue
from training.data.splits import TRAIN, VALIDATION
from training.data.views import view_file
from training.goodput.prices import write_prices
from training.lineage import write_sources
from training.planner.links import Links, kept_links, read_links
from training.progress import TrainProgress
from training.publish_run import STAGE, publish_run
from training.run_page import PageWriter
from training.run_record import Placement, RunFolder, RunRecord
from training.stage_job import JobMaker, check_stage, needs_validation, view_of
from training.supervise import Recovery, Watch, run_stage
from training.train_config import RECIPES, TrainConfig
from training.trainers.settings import StageName
from training.trainers.spec import StageOutcome
from workspace import publish, registry
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
            **({"recipe": config.recipe} if config.recipe else {}),
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
        record = _open(config, planned)
        if flow is not None:
            note_flow(folder, flow)
        with PageWriter(folder.root) as page:

            def look(progress: TrainProgress) -> None:
                page.refresh()
                if observe is not None:
                    observe(replace(progress, page=page.path))

            # Of looks at the disk; Slurm is asked by the launcher's own pace.
            interval_s = 0.5 if config.launcher == "local" else 3.0
            watch = Watch(look, should_stop or (lambda: False), interval_s)
            manifest = _train_stages(config, planned, record, watch)
    _register(config, planned, manifest)
    return StageResult(manifest, folder.final, skipped=False)


def _train_stages(
    config: TrainConfig, planned: RunPlan, record: RunRecord, watch: Watch
) -> Manifest:
    """One stage after the other, then publish the last one's model."""
    started = time.monotonic()
    folder, parent = planned.folder, planned.base
    launcher, links = make_launcher(config), held_links(folder)
    outcomes: list[StageOutcome] = []
    for name in record.stages:
        stage = folder.stage(name)
        maker = JobMaker(config, folder, stage, parent, planned.base, links)
        recovery = make_recovery(config, name, parent, links)
        if isinstance(launcher, SlurmLauncher):
            recovery = recovery._replace(successors=SuccessorQueue(launcher))
        outcomes.append(run_stage(stage, launcher, maker, watch, recovery))
        parent = stage.model
    return publish_run(
        folder,
        record,
        outcomes,
        base=planned.base,
        fingerprint=config.fingerprint(),
        seconds=time.monotonic() - started,
    )


def make_launcher(config: TrainConfig) -> Launcher:
    """The launcher that the configuration names."""
    if config.launcher != "slurm":
        return LocalLauncher()
    client = SlurmClient()
    shared = Workspace(config.workspace).slurm_queue(queue_name())
    return SlurmLauncher(config.slurm, client, queue=SharedQueue(client.own_jobs, shared))


def make_recovery(
    config: TrainConfig, stage: StageName, model: Path, links: Links | None = None
) -> Recovery:
    """What may be done after an attempt that did not finish `stage` of `model`."""
    return Recovery(
        limits=Limits(attempts=config.max_attempts, restarts=config.restarts),
        worlds=(config.nodes, *_smaller_worlds(config, stage, model, links)),
        shrink_after_s=config.shrink_after_s if config.min_nodes else 0,
        blacklist=Blacklist(Workspace(config.workspace).bad_nodes),
    )


def _smaller_worlds(
    config: TrainConfig, stage: StageName, model: Path, links: Links | None
) -> tuple[int, ...]:
    """Numbers of nodes below the configured one that the same batch can be spread over."""
    if not config.min_nodes:
        return ()
    found = []
    for nodes in range(config.nodes - 1, config.min_nodes - 1, -1):
        if config.demand(stage).rows_per_step % (nodes * config.processes_per_node):
            continue
        try:
            config.layout(stage, model, nodes=nodes, links=links)
        except UserError:
            continue
        found.append(nodes)
    return tuple(found)


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
    parent, links = planned.base, held_links(planned.folder) or measured_links(config)
    if links is not None:
        lines.append(
            f"{links.fabric_gbytes:.3g} GB/s between nodes, measured on {links.day} "
            f"({links.origin})"
        )
    for name in planned.record.stages:
        layout = config.layout(name, planned.base, links=links)
        lines.append(f"{name}: {config.demand(name).backend}, {layout.label}")
        stage = planned.folder.stage(name)
        maker = JobMaker(config, planned.folder, stage, parent, planned.base, links)
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
    # Measured anew, they would give another layout in the middle of the run.
    links = measured_links(config) if known is None else held_links(folder)
    for stage in planned.record.stages:
        check_stage(config, stage, planned.base, links)
        _hold_data(config, folder, stage, dataset)
    write_prices(folder.root, config.prices)
    if known is None:
        workspace = Workspace(config.workspace)
        held = {stage: folder.data(stage) for stage in planned.record.stages}
        write_sources(folder, dataset, workspace.corpus, held)
        if links is not None:
            publish.write_text(folder.links, links.model_dump_json(indent=2) + "\n")
        known = planned.record.model_copy(update={"placement": _placement(config, planned, links)})
        folder.write_record(known)
    return known


def _placement(config: TrainConfig, planned: RunPlan, links: Links | None) -> Placement:
    return Placement(
        launcher=config.launcher,
        nodes=config.nodes,
        processes_per_node=config.processes_per_node,
        gpus_per_node=config.gpus_per_node,
        gpu=config.parallelism.gpu if config.gpus_per_node else "",
        layouts={
            stage: config.layout(stage, planned.base, links=links)
            for stage in planned.record.stages
        },
        checkpoint_every_steps=config.checkpoint_every_steps,
        keep_checkpoints=config.keep_checkpoints,
        node_mtbf_hours=config.node_mtbf_hours,
    )


def measured_links(config: TrainConfig) -> Links | None:
    """The workspace's measurement where the planner has a use for it, a person's before those of
    earlier jobs; None without one.

    Raises `UserError` when a person's is too old.
    """
    workspace, now_is = Workspace(config.workspace), datetime.now(UTC)
    if not config.is_planned:
        return None
    if not workspace.links.exists():
        gpu = config.parallelism.gpu
        return kept_links(workspace.kept_links, gpu, config.nodes, now_is)
    links = read_links(workspace.links)
    links.require_recent(now_is)
    return links


def held_links(folder: RunFolder) -> Links | None:
    """The measurement that the run began with, however old it is by now."""
    return read_links(folder.links) if folder.links.exists() else None


def _register(config: TrainConfig, planned: RunPlan, manifest: Manifest) -> None:
    workspace = Workspace(config.workspace)
    # As the run began: a command that finds it published may name another recipe or none.
    record = planned.folder.read_record() or planned.record
    registry.register(
        workspace,
        config.name,
        run=planned.folder.name,
        path=planned.folder.final.relative_to(workspace.root).as_posix(),
        base_model=str(planned.base),
        lineage={**record.lineage, "run": manifest.key, "code": manifest.code_version},
    )


__all__ = [
    "RECIPES",
    "STAGE",
    "VERSION",
    "RunPlan",
    "TrainConfig",
    "TrainProgress",
    "plan",
    "preview",
    "train",
]
