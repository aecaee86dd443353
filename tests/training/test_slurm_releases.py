"""What each release of Slurm prints, parsed and understood. See slurm_releases.yaml for sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_in_memory import Scheduler

from training.cluster import slurm_output as output
from training.cluster.job import TERMINAL, Job
from training.cluster.slurm import SlurmLauncher

RELEASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "slurm_releases.yaml").read_text(encoding="utf-8")
)
releases = pytest.mark.parametrize("release", RELEASES, ids=lambda r: r["release"])


def printed(release: dict[str, Any], command: str) -> str:
    text: str = release[command]
    return text.replace("␟", output.SEPARATOR)


def test_one_release_was_recorded_and_the_others_say_so() -> None:
    assert [r["release"] for r in RELEASES if r["recorded"] == "live"] == ["22.05"]
    assert {r["recorded"] for r in RELEASES} == {"live", "sources"}


@releases
def test_the_version(release: dict[str, Any]) -> None:
    major, minor = output.parse_version(release["version"])
    assert f"{major}.{minor:02d}" == release["release"]


@releases
def test_what_becomes_of_the_jobs(release: dict[str, Any], tmp_path: Path) -> None:
    scheduler = Scheduler()
    launcher = SlurmLauncher(client=scheduler, sleep=lambda seconds: None)
    listed = output.parse_jobs(printed(release, "squeue"))
    assert {int(info.job_id) for info in listed} == set(release["jobs"])
    for info in listed:
        folder = tmp_path / info.job_id
        folder.mkdir()
        job = Job(key=f"dsm-{info.job_id}", command=("-c", "pass"), attempt_dir=folder)
        handle = launcher.submit(job)
        scheduler.set(handle.job_id, state=info.state, nodes=info.nodes, exit=info.exit)
        state = launcher.poll(handle, job).state
        seen = "over" if state in TERMINAL else str(state)
        assert seen == release["jobs"][int(info.job_id)], info
        alive = handle.job_id in launcher.live_jobs()
        assert alive == (seen != "over"), info


@releases
def test_which_nodes_can_be_used(release: dict[str, Any]) -> None:
    nodes = output.parse_nodes(printed(release, "sinfo"))
    assert {node.name: node.usable for node in nodes} == release["nodes"]


@releases
def test_how_many_gpus_a_node_has(release: dict[str, Any]) -> None:
    assert output.parse_gpus(printed(release, "gres")) == release["gpus"]


def test_the_exit_code_of_the_recorded_failure() -> None:
    [failed] = [j for j in output.parse_jobs(printed(RELEASES[0], "squeue")) if j.job_id == "2"]
    assert failed.exit == (75, 0)
