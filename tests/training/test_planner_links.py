"""Measured links in the planner: what they change, what is refused, what a run holds on to."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_training import question, tiny_config, write_dataset

from benchmarks.training.tiny_model import write_tiny_model
from training import train as training
from training.plan import main
from training.planner.calibration import load
from training.planner.hardware import GpuGroup, machine_of
from training.planner.layout import Job, Layout
from training.planner.links import MAX_AGE_DAYS, read_links, with_links
from training.planner.shape import read_shape
from training.planner.speed import estimate
from training.train import TrainConfig, plan, preview, train
from training.trainers.settings import SftSettings
from workspace.errors import UserError

H100 = "NVIDIA H100 80GB HBM3"
EIGHT = read_shape("Llama-3.1-8B")


def measurement(path: Path, speeds: list[float], *, days_ago: float = 1, **changes: object) -> Path:
    """A file as `training.cluster.health.bandwidth --save` writes it."""
    nodes = {f"node{number}": speed for number, speed in enumerate(speeds)}
    document = {
        "measured": (datetime.now(UTC) - timedelta(days=days_ago)).isoformat(timespec="seconds"),
        "devices": [H100],
        "nodes": nodes,
        "pairs": [],
        "slow": [],
        "files_not_seen": [],
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_slowest_node_that_is_fit_counts(tmp_path: Path) -> None:
    path = measurement(tmp_path / "links.json", [41.0, 38.5, 40.0, 3.0], slow=["node3"])
    machine = with_links(machine_of(GpuGroup(gpu="H100", nodes=4)), read_links(path))
    assert machine.fabric_gbytes == 38.5


def test_what_collectives_reached_is_taken_as_it_is(tmp_path: Path) -> None:
    """The share of a port's promise that collectives reach is in the measurement already."""
    described = machine_of(GpuGroup(gpu="H100", nodes=4, fabric_gbytes=50))
    reached = 50 * load().fabric
    measured = with_links(described, read_links(measurement(tmp_path / "l.json", [reached] * 4)))
    job, layout = Job(4096, 256), Layout(dp=32, sharding="zero3")
    first, second = (estimate(EIGHT, job, layout, one, load()) for one in (described, measured))
    assert first.seconds == pytest.approx(second.seconds)


def test_the_table_says_when_it_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measurement(tmp_path / "links.json", [1.5] * 4)
    day = read_links(path).day
    arguments = ["Llama-3.1-8B", "--nodes", "4", "--fabric-gbytes", "50", "--global-batch", "32"]
    assert main([*arguments, "--measured", str(path)]) == 0
    assert f"1.5 GB/s between nodes (measured on {day})" in capsys.readouterr().out
    (slow,) = as_json(capsys, *arguments, "--measured", str(path))["parts"]
    (fast,) = as_json(capsys, *arguments)["parts"]
    assert (slow["fabric_gbytes"], slow["fabric_measured"]) == (1.5, day)
    assert (fast["fabric_gbytes"], fast["fabric_measured"]) == (50, "")
    assert slow["hours"] > fast["hours"]


def test_of_a_mixed_cluster_only_the_measured_kind_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.yaml"
    groups = [{"gpu": "H100", "nodes": 4}, {"gpu": "A100", "nodes": 4, "fabric_gbytes": 25}]
    cluster.write_text(yaml.safe_dump({"groups": groups}))
    path = measurement(tmp_path / "links.json", [38.0] * 4)
    found = as_json(capsys, "Llama-2-7B", "--cluster", str(cluster), "--measured", str(path))
    fabric = {part["gpu"]: part["fabric_gbytes"] for part in found["parts"]}
    assert fabric == {"H100": 38.0, "A100-80GB": 25}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"days_ago": MAX_AGE_DAYS + 2}, f"{MAX_AGE_DAYS + 2} days ago .*measure again"),
        ({"days_ago": -3}, "yet to come"),
        (
            {"devices": ["NVIDIA A100-SXM4-80GB"]},
            "between NVIDIA A100.*, not between nodes of H100",
        ),
        ({"devices": [H100, "NVIDIA A100-SXM4-80GB"]}, "not between nodes of H100"),
        ({"devices": ["Abacus 3000"]}, "not between nodes of H100"),
        ({"devices": []}, "without GPUs"),
        ({"speeds": [38.0] * 3}, "between 3 nodes, fewer than the 4"),
        ({"nodes": {"node0": 38.0, "node1": 0.0}}, "above 0"),
        ({"nodes": {}}, "nodes: .*\n.*Not a measurement"),
        ({"measured": "yesterday"}, "measured"),
    ],
)
def test_old_and_foreign_measurements_are_refused(
    changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measurement(tmp_path / "links.json", **{"speeds": [38.0] * 4, **changes})
    assert main(["Llama-3.1-8B", "--nodes", "4", "--measured", str(path)]) == 1
    error = capsys.readouterr().err
    assert str(path) in error
    assert re.search(said, error, re.DOTALL), error


@pytest.mark.parametrize("text", ["", "[]", "{", '{"nodes": {"a": 1}}', "\udcff"])
def test_what_is_no_measurement_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "links.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["Llama-3.1-8B", "--nodes", "4", "--measured", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def on_gpus(tmp_path: Path, base: Path, **changes: object) -> TrainConfig:
    """A run that is never started: eight H100 in each of two nodes."""
    write_dataset(tmp_path / "w", [question(number) for number in range(64)])
    sft = SftSettings(epochs=1, rows_per_step=16, backend="fsdp")
    settings: dict[str, Any] = {
        "sft": sft, "launcher": "slurm", "nodes": 2, "gpus_per_node": 8, "processes_per_node": 8,
        **changes,
    }  # fmt: skip
    return tiny_config(tmp_path / "w", base, steps=4, **settings)


def test_slow_links_keep_the_shards_inside_the_nodes(tmp_path: Path) -> None:
    config = TrainConfig.parse(
        {
            "workspace": tmp_path, "launcher": "slurm", "nodes": 4, "gpus_per_node": 8,
            "processes_per_node": 8,
            "sft": {"rows_per_step": 128, "max_length": 4096, "backend": "fsdp"},
        },
        origin="test",
    )  # fmt: skip
    slow = read_links(measurement(tmp_path / "slow.json", [2.0] * 4))
    assert config.layout("sft", "Llama-3.1-8B").dp_shard == 32
    found = config.layout("sft", "Llama-3.1-8B", links=slow)
    assert (found.dp_shard, found.dp_replicate) == (8, 4)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


def test_a_run_takes_the_workspace_s_measurement(base: Path, tmp_path: Path) -> None:
    config = on_gpus(tmp_path, base)
    assert "measured on" not in preview(config)
    path = measurement(config.workspace / "links.json", [38.0] * 2)
    assert f"38 GB/s between nodes, measured on {read_links(path).day}" in preview(config)
    for unused in ({"nodes": 1}, {"gpus_per_node": 0}):
        assert "measured on" not in preview(on_gpus(tmp_path, base, **unused))
    measurement(path, [38.0] * 2, days_ago=MAX_AGE_DAYS + 2)
    with pytest.raises(UserError, match=r"days ago .*or remove the file"):
        preview(config)


def test_a_run_keeps_the_measurement_that_it_began_with(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another layout in the middle of a run could not read its checkpoints everywhere."""

    class Interrupted(Exception):
        pass

    def interrupt(*arguments: object, **named: object) -> None:
        raise Interrupted

    config = on_gpus(tmp_path, base)
    measurement(config.workspace / "links.json", [38.0] * 2, days_ago=MAX_AGE_DAYS - 1)
    monkeypatch.setattr(training, "run_stage", interrupt)
    with pytest.raises(Interrupted):
        train(config)
    held = plan(config).folder.links
    assert read_links(held).fabric_gbytes == 38.0

    # Measured anew, and what was held has grown old: neither changes the run.
    measurement(config.workspace / "links.json", [5.0] * 2)
    measurement(held, [38.0] * 2, days_ago=MAX_AGE_DAYS + 5)
    with pytest.raises(Interrupted):
        train(config)
    assert read_links(held).fabric_gbytes == 38.0
    assert "38 GB/s between nodes" in preview(config)
