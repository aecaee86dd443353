"""The ranks of a Slurm job in a container, where the site has pyxis or apptainer.

The batch script and the coordinator run on the node itself; the node agents and their ranks run in
the container, started by srun's own options (pyxis: `--container-image`) or by a command before
them (`apptainer exec`). The project, the workspace and the base model must be mounted at their own
paths, since the files that they pass to each other name them so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from training.cluster.job import Job
from workspace.config import StageConfig, setting
from workspace.errors import UserError

PROJECT = Path(__file__).resolve().parents[2]


class ContainerOptions(StageConfig):
    """What the ranks run in."""

    runtime: Literal["none", "pyxis", "apptainer"] = setting(
        "none", position=1, description="pyxis is a plugin of srun", affects_output=False
    )
    image: str = setting(
        "",
        position=2,
        description="pyxis: a squashfs file or registry#name:tag; apptainer: a .sif file or a URI",
        affects_output=False,
    )
    mounts: tuple[str, ...] = setting(
        (),
        position=3,
        description="SOURCE:TARGET or SOURCE:TARGET:FLAGS each; must hold the project, the "
        "workspace and the base model at their own paths",
        affects_output=False,
    )
    python: str = setting(
        "python3", position=4, description="interpreter in the image", affects_output=False
    )
    workdir: str = setting(
        "", position=5, description="folder to start in; empty: the attempt's", affects_output=False
    )


def srun_options(options: ContainerOptions, job: Job) -> list[str]:
    """What srun needs to start the agents in a pyxis container; [] otherwise."""
    _check(options, job)
    if options.runtime != "pyxis":
        return []
    return [
        f"--container-image={options.image}",
        f"--container-mounts={','.join(options.mounts)}",
        f"--container-workdir={options.workdir or job.attempt_dir}",
        # The home of a user often hides the image's own packages (~/.local).
        "--no-container-mount-home",
    ]


def agent_words(options: ContainerOptions, job: Job) -> list[str]:
    """The words before `-m training.cluster.node_agent`; [] for the node's own interpreter."""
    _check(options, job)
    if options.runtime == "none":
        return []
    if options.runtime == "pyxis":
        return [options.python]
    binds = [f"--bind={mount}" for mount in options.mounts]
    gpus = ["--nv"] if job.gpus_per_node else []
    workdir = f"--pwd={options.workdir or job.attempt_dir}"
    return ["apptainer", "exec", "--no-home", *gpus, *binds, workdir, options.image, options.python]


def variables(options: ContainerOptions) -> dict[str, str]:
    """So that the image's Python finds this project, which it has not installed."""
    return {} if options.runtime == "none" else {"PYTHONPATH": str(PROJECT)}


def _check(options: ContainerOptions, job: Job) -> None:
    if options.runtime == "none":
        if options.image:
            raise UserError("slurm.container.image is set: choose a runtime (pyxis or apptainer)")
        return
    if not options.image:
        raise UserError("slurm.container.runtime is set: name an image")
    for mount in options.mounts:
        source, colon, _ = mount.partition(":")
        if not colon or not source.startswith("/") or any(c in mount for c in ",\n"):
            raise UserError(f"slurm.container.mounts: {mount!r} is not SOURCE:TARGET with paths")
    for path in (job.attempt_dir, PROJECT):
        if not _is_mounted(path, options.mounts):
            raise UserError(
                f"slurm.container.mounts: {path} is not in the container at its own path; add "
                f"a folder above it, such as {path.parents[-2]}:{path.parents[-2]}"
            )


def _is_mounted(path: Path, mounts: tuple[str, ...]) -> bool:
    for mount in mounts:
        source, target = mount.split(":")[:2]
        if source == target and path.is_relative_to(source):
            return True
    return False
