"""One attempt of a stage: its specification and job, and what would stop it before there is one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from training.cluster.job import Job
from training.cluster.render import write_script
from training.cluster.slurm_queue import QUEUE_VARIABLE, queue_name
from training.data.splits import VALIDATION
from training.external.installed import require_module
from training.external.prepare import check_external, prepare, program_of
from training.planner.links import Links
from training.run_record import RunFolder, StageFolder
from training.train_config import TrainConfig
from training.trainers.settings import STAGES, Backend, StageName
from training.trainers.spec import TrainSpec
from workspace import publish
from workspace.errors import UserError
from workspace.paths import Workspace

EXTERNAL_NAME = "external"  # in an attempt's folder: what an external program is told

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


class JobMaker:
    """Writes an attempt's specification and describes its job."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        stage: StageFolder,
        parent: Path,
        base: Path,
        links: Links | None = None,
    ) -> None:
        """`parent` may be still to be trained; `base` is there, of the same architecture.

        `links`: measured between the nodes, for the planner.
        """
        self._links = links
        self._base = base
        self._config = config
        self._folder = folder
        self._stage = stage
        self._parent = parent

    def __call__(
        self, attempt: int, exclude_nodes: tuple[str, ...], nodes: int, into: Path | None = None
    ) -> Job:
        """`nodes` is 0 for the configured number. `into`: a folder that will be renamed to the
        attempt's, which is not made."""
        folder = into or self._stage.attempt(attempt).resolve()
        spec_file = folder / "spec.json"
        if not spec_file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            spec = self._spec(attempt, nodes)
            if spec.backend == "external":
                self._prepare(spec, folder / EXTERNAL_NAME, nodes)
            publish.write_text(spec_file, spec.model_dump_json(indent=2) + "\n")
        return self._job(attempt, exclude_nodes, nodes)

    def dry_run_slurm(self, target: Path) -> Path:
        """Write the first attempt's specification and batch script into `target`; the script."""
        publish.write_text(target / "spec.json", self._spec(1, 0).model_dump_json(indent=2) + "\n")
        return write_script(self._job(1, (), 0), self._config.slurm, target)

    def _job(self, attempt: int, exclude_nodes: tuple[str, ...], nodes: int) -> Job:
        config, stage = self._config, self._stage
        attempt_dir = stage.attempt(attempt).resolve()
        workspace = Workspace(config.workspace.resolve())
        return Job(
            key=f"dsm-{self._folder.name}-{stage.stage}-{attempt}",
            command=(
                "-m",
                trainer_module(config, stage.stage),
                str(attempt_dir / "spec.json"),
            ),
            attempt_dir=attempt_dir,
            environment={**_allocator(config, stage.stage), **_shared_queue(config)},
            nodes=nodes or config.nodes,
            processes_per_node=config.processes_per_node,
            cpus_per_process=cpus_per_process(config),
            gpus_per_node=config.gpus_per_node,
            time_limit_s=config.time_limit_s,
            exclude_nodes=exclude_nodes,
            spares=config.spares,
            restarts=config.restarts,
            replace_stragglers=config.replace_stragglers,
            checkpoints=stage.checkpoints.resolve(),
            sections=config.sections,
            metrics_targets=workspace.metrics_targets,
            health=config.health,
            kept_links=workspace.kept_links,
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
            known_as=spec.attempt_dir / EXTERNAL_NAME if with_data else None,
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
            layout=config.layout(stage.stage, self._parent, nodes=nodes, links=self._links),
            evaluation=config.evaluation,
            seed=config.seed,
            precision=config.arithmetic,
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


def _shared_queue(config: TrainConfig) -> dict[str, str]:
    """Where the job's coordinator finds what its supervisor was told by Slurm."""
    if config.launcher != "slurm":
        return {}
    shared = Workspace(config.workspace.resolve()).slurm_queue(queue_name())
    return {QUEUE_VARIABLE: str(shared)}


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


def check_stage(
    config: TrainConfig, stage: StageName, base: Path, links: Links | None = None
) -> None:
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
        if config.adapter.method == "qlora":
            raise UserError(
                "rlvr.rollouts: vllm takes adapters merged into whole weights, and in four bits "
                "they are rounded away; set adapter.method lora, or rlvr.rollouts transformers"
            )
        require_module("vllm", "rlvr.rollouts is vllm", "take transformers", python_of(config))
    if config.adapter.method == "qlora" and config.demand(stage).backend == "trl":
        require_module("bitsandbytes", "adapter.method is qlora", "take lora", python_of(config))
    if config.adapter.method != "full" and config.demand(stage).backend == "fsdp":
        raise UserError(
            f"{stage}: the fsdp trainer trains all weights; set adapter.method full, or "
            "backend trl for adapters"
        )
    config.layout(stage, base, links=links)
