"""Before an external job is submitted: is the program there, can it do the stage, what is it told?

    launch = prepare(spec, target, ...)     # writes configuration, data and launch.json

Everything is written by the supervisor, so that a dry run shows it and a missing program or a
setting that the program does not know is an error before the scheduler is asked.
"""

from __future__ import annotations

import json
from pathlib import Path

from training.external.data import measure
from training.external.nemo_rl import NemoRl
from training.external.prime_rl import PrimeRl
from training.external.program import LAUNCH_NAME, Launch, Program, Work
from training.external.torchtitan import Torchtitan
from training.external.verl import Verl
from training.trainers.settings import StageName
from training.trainers.shared_settings import ExternalSettings
from training.trainers.spec import TrainSpec
from workspace import publish
from workspace.errors import MissingToolError, UserError


def program_of(settings: ExternalSettings, stage: StageName) -> Program:
    """The program that the settings name. Raises `UserError` when it cannot do `stage`."""
    programs: dict[str, Program] = {
        "torchtitan": Torchtitan(),
        "nemo_rl": NemoRl(),
        "verl": Verl(stage),
        "prime_rl": PrimeRl(),
    }
    program = programs[settings.program]
    if stage not in program.stages:
        able = [f"{one.name} ({', '.join(one.stages)})" for one in programs.values()]
        raise UserError(
            f"external.program {program.name} does {', '.join(program.stages)} here, not {stage}; "
            f"there are {', '.join(able)}"
        )
    return program


def check_external(
    settings: ExternalSettings, stage: StageName, *, processes_per_node: int, python: str
) -> None:
    """Raise what would stop the job, before there is one: `UserError`, `MissingToolError`.

    `python` is the ranks' interpreter, "" where it cannot be asked from here (a container).
    """
    program = program_of(settings, stage)
    if program.is_driven and processes_per_node != 1:
        raise UserError(
            f"{program.name} spreads itself over the GPUs of a node: set processes_per_node to 1 "
            "and gpus_per_node to their number"
        )
    if python:
        require_program(program, settings, stage, python)


def require_program(
    program: Program, settings: ExternalSettings, stage: StageName, python: str
) -> None:
    """Raise `MissingToolError` with the cure where the program is not there."""
    cure = program.cure(settings.folder, python)
    if cure:
        raise MissingToolError(f"{stage} is to be trained by {program.name}, but {cure}")


def prepare(
    spec: TrainSpec,
    target: Path,
    *,
    model: Path,
    run: str,
    nodes: int,
    processes_per_node: int,
    gpus_per_node: int,
    with_data: bool = True,
    known_as: Path | None = None,
) -> Launch:
    """Write the program's data (once, under `Work.folder`) and its configuration (into `target`).

    `model` is a folder of the same architecture and tokenizer that is there already; `known_as` is
    where the job will find `target`, if that is renamed before.
    """
    if spec.checkpoint_every_steps < 1:
        raise UserError(
            "checkpoint_every_steps is 0, which external programs cannot choose: give a number"
        )
    if spec.adapter.method != "full":
        raise UserError(
            f"adapter.method {spec.adapter.method}: external programs train all weights here; set "
            "full, or another backend"
        )
    if spec.settings.max_hours or spec.keeps_best:
        raise UserError(
            f"external programs end at their last step: unset {spec.stage}.max_hours and "
            "evaluation.patience, or choose another backend"
        )
    if spec.stage == "rlvr" and spec.rlvr.token_budget:
        raise UserError(
            "external programs do not say how many tokens they sampled: unset rlvr.token_budget, "
            "or choose another backend"
        )
    program = program_of(spec.external, spec.stage)
    size = measure(spec if spec.parent.exists() else spec.model_copy(update={"parent": model}))
    work = Work(
        spec=spec,
        nodes=nodes,
        processes_per_node=processes_per_node,
        gpus_per_node=gpus_per_node,
        architecture=json.loads((model / "config.json").read_text(encoding="utf-8")),
        rows=size.rows,
        steps=size.steps,
        run=run,
    )
    if with_data:
        program.write_data(work)
    rendered = program.render(work)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in rendered.files.items():
        publish.write_text(target / name, text)
    launch = Launch(
        program=program.name,
        command=tuple(
            word.replace("{files}", str(known_as or target)) if word.startswith("{files}") else word
            for word in rendered.command
        ),
        working_folder=spec.external.folder or str(work.folder),
        is_driven=program.is_driven,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        steps=size.steps,
        rows=size.rows,
        tokens=size.tokens,
    )
    publish.write_text(target / LAUNCH_NAME, launch.model_dump_json(indent=2) + "\n")
    return launch
