"""Whole batch scripts as they are submitted: a change of the renderer shows here, line by line.

After a change that is meant, write them anew:  python tests/training/test_slurm_golden.py
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from training.cluster.container import PROJECT, ContainerOptions
from training.cluster.health.config import HealthSettings, LinkLimits, NodeLimits
from training.cluster.job import Job
from training.cluster.render import check_version, render, render_successor
from training.cluster.slurm_options import SlurmOptions
from workspace.errors import UserError

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).resolve().parents[2]
MOUNTS = ("/fsx:/fsx", f"{PROJECT}:{PROJECT}:ro")


def job(**changes: object) -> Job:
    values: dict[str, object] = {
        "key": "dsm-run-sft-1",
        "command": ("-m", "training.trainers.sft", "/fsx/runs/run/sft/attempts/1/spec.json"),
        "attempt_dir": Path("/fsx/runs/run/sft/attempts/1"),
        "checkpoints": Path("/fsx/runs/run/sft/checkpoints"),
        **changes,
    }
    return Job(**values)  # type: ignore[arg-type]


GPUS = {"nodes": 4, "processes_per_node": 8, "cpus_per_process": 12, "gpus_per_node": 8}
SCRIPTS = {
    "plain": (job(), SlurmOptions(python="/opt/venv/bin/python")),
    "gpus": (
        job(
            **GPUS, spares=1, restarts=100, exclude_nodes=("gpu7",), environment={"WHO": "a b"},
            health=HealthSettings(
                every_s=0, limits=NodeLimits(skip=("clock",), dcgm_level=1),
                links=LinkLimits(least_gbytes=20),
            ),
            kept_links=Path("/fsx/workspaces/a b/links"),
        ),
        SlurmOptions(
            partition="gpu", account="llm", mem="0", exclusive=True, gres="gpu:h100:8",
            modules=("cuda/12.8", "openmpi"), setup=("ulimit -l unlimited",), switches=2,
            switches_wait_s=5400, signal_lead_s=300, python="/opt/venv/bin/python",
        ),
    ),
    "pyxis": (
        job(**GPUS, restarts=100),
        SlurmOptions(
            python="/opt/venv/bin/python", segment=2,
            container=ContainerOptions(
                runtime="pyxis", image="nvcr.io#nvidia/pytorch:26.03-py3", mounts=MOUNTS
            ),
        ),
    ),
    "apptainer": (
        job(**GPUS),
        SlurmOptions(
            python="/opt/venv/bin/python",
            container=ContainerOptions(
                runtime="apptainer", image="/fsx/images/train it.sif", mounts=MOUNTS,
                python="/usr/bin/python3.12", workdir="/fsx/scratch",
            ),
        ),
    ),
}  # fmt: skip


SUCCESSOR = "successor"  # of the job in "gpus"
NAMES = (*SCRIPTS, SUCCESSOR)


def script_of(name: str) -> str:
    if name == SUCCESSOR:
        folder = Path("/fsx/runs/run/sft/successors/1")
        script = render_successor(*SCRIPTS["gpus"], folder, "4710")
    else:
        script = render(*SCRIPTS[name])
    return script.replace(str(PROJECT), "/opt/dsm-pipeline")


@pytest.mark.parametrize("name", NAMES)
def test_the_script_is_as_it_was(name: str) -> None:
    assert script_of(name) == (GOLDEN / f"{name}.sbatch").read_text(encoding="utf-8")


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("not installed: shellcheck")
    hyperpod = REPOSITORY / "deploy" / "hyperpod"
    ours = [
        *GOLDEN.glob("*.sbatch"),
        REPOSITORY / "deploy" / "slurm" / "one-host",
        REPOSITORY / "deploy" / "slurm" / "node-health",
        *hyperpod.glob("*.sh"),
    ]
    done = subprocess.run(
        ["shellcheck", "--external-sources", *map(str, ours)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("container", "named"),
    [
        (ContainerOptions(runtime="pyxis", mounts=MOUNTS), "name an image"),
        (ContainerOptions(image="x.sif"), "choose a runtime"),
        (ContainerOptions(runtime="pyxis", image="i", mounts=("/fsx",)), "SOURCE:TARGET"),
        (ContainerOptions(runtime="pyxis", image="i", mounts=("/a:/a,/b:/b",)), "SOURCE:TARGET"),
        (ContainerOptions(runtime="apptainer", image="i", mounts=MOUNTS[1:]), "/fsx/runs/run"),
        (ContainerOptions(runtime="apptainer", image="i", mounts=("/fsx:/fsx",)), "own path"),
        (
            ContainerOptions(
                runtime="apptainer", image="i", mounts=("/fsx:/data", *MOUNTS[1:])
            ),
            "/fsx/runs/run",
        ),
    ],
)  # fmt: skip
def test_a_container_that_cannot_work_is_refused(container: ContainerOptions, named: str) -> None:
    with pytest.raises(UserError, match=named):
        render(job(), SlurmOptions(container=container))


def test_segments_need_a_newer_slurm_and_whole_numbers_of_them() -> None:
    options = SlurmOptions(segment=2)
    check_version(options, (24, 5))
    check_version(SlurmOptions(), (22, 5))
    with pytest.raises(UserError, match=r"needs Slurm 24\.05"):
        check_version(options, (23, 11))
    with pytest.raises(UserError, match="3 nodes"):
        render(job(nodes=2, spares=1), options)


def test_metrics_can_be_moved_and_switched_off() -> None:
    told = job(metrics_targets=Path("/fsx/chips/metrics targets"))
    script = render(told, SlurmOptions(metrics_port=9400))
    assert "--metrics-targets '/fsx/chips/metrics targets' --metrics-port 9400 \\\n" in script
    moved = render(told, SlurmOptions(metrics_targets="/fsx/metrics-targets"))
    assert "--metrics-targets /fsx/metrics-targets --metrics-port 0 \\\n" in moved
    assert "--metrics" not in render(told, SlurmOptions(metrics=False))
    with pytest.raises(UserError, match="not absolute"):
        render(told, SlurmOptions(metrics_targets="metrics"))


@pytest.mark.parametrize("name", ["cuda; id", "-x", "", "a b", "$(id)"])
def test_a_module_has_a_plain_name(name: str) -> None:
    with pytest.raises(UserError, match="module"):
        render(job(), SlurmOptions(modules=(name,)))


if __name__ == "__main__":
    for name in NAMES:
        (GOLDEN / f"{name}.sbatch").write_text(script_of(name), encoding="utf-8")
