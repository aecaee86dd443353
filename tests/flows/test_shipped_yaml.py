"""Every YAML file of the repository is read by what reads it in use; none is without a reader."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows._forecast import CLUSTERS
from flows._pipeline import PipelineConfig
from tasks.cluster import ClusterConfig, load_cluster
from training.train import TrainConfig
from workspace.config import StageConfig, read_yaml

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def tracked() -> list[str]:
    found = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.yaml", "*.yml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.rstrip("\0").split("\0")


def benchmark_task(path: Path) -> None:
    """As lm-eval: includes merged, functions imported, unknown keys refused."""
    from lm_eval.config.task import TaskConfig
    from lm_eval.tasks._yaml_loader import load_yaml

    task = TaskConfig(**load_yaml(path, resolve_func=True))
    assert callable(task.process_results) or task.output_type == "multiple_choice"


def cluster_file(path: Path) -> None:
    assert load_cluster(path.stem, CLUSTERS) == ClusterConfig.from_yaml(path)


def deployments(path: Path) -> None:
    """As a worker: the flow is imported and takes the deployment's parameters."""
    from prefect.flows import load_flow_from_entrypoint

    for deployment in read_yaml(path)["deployments"]:
        module, _, name = deployment["entrypoint"].partition(":")
        flow = load_flow_from_entrypoint(f"{REPOSITORY / module}:{name}")
        assert flow.name == name
        flow.validate_parameters(deployment["parameters"])


def hooks(path: Path) -> None:
    from pre_commit.clientlib import load_config

    assert load_config(str(path))["repos"]


def errata(path: Path) -> None:
    from evaluation.benchmarks.verilog.errata import read_errata

    assert read_errata(path).errata


def contents_of_public_benchmarks(path: Path) -> None:
    from evaluation.benchmarks.verilog.contents import PATH, known_ids, layout_of
    from evaluation.benchmarks.verilog.public_set import PUBLIC

    assert path == PATH
    assert known_ids().keys() == {layout_of(name) for name in PUBLIC}


def published_scores(path: Path) -> None:
    from evaluation.published_scores import read_published

    assert read_published(path).scores


def gpus(path: Path) -> None:
    from training.planner.hardware import GPUS, find_gpu, gpu_names

    assert path == GPUS
    assert {find_gpu(name).name for name in read_yaml(path)} == set(gpu_names())


def model_shapes(path: Path) -> None:
    from training.planner.shape import SHAPES, named_shape, names

    assert path == SHAPES
    assert {named_shape(name).name for name in read_yaml(path)} == set(names())


def calibration(path: Path) -> None:
    from training.planner.calibration import FILE, load

    assert path == FILE
    assert load().model_dump().items() >= read_yaml(path)["constants"].items()


def alerts(path: Path) -> None:
    """Prometheus itself reads them in `tests/test_monitoring.py`, where it is installed."""
    rules = [rule for group in read_yaml(path)["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["alert"] and rule["expr"]


def slurm_releases(path: Path) -> None:
    """What it holds is read release by release in `test_slurm_releases.py`."""
    releases: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert len({release["release"] for release in releases}) == len(releases) > 0


def configured(config: type[StageConfig], **given: Any) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        config.parse({**given, **read_yaml(path)}, origin=path.name)

    return read


# Pattern of the path -> what reads it; `*` also stands for slashes, the first that fits is taken.
READERS: Mapping[str, Callable[[Path], None]] = {
    ".pre-commit-config.yaml": hooks,
    "prefect.yaml": deployments,
    "examples/*.yaml": configured(PipelineConfig, sources=["x"], workspace="W"),
    "flows/clusters/*.yaml": cluster_file,
    "training/recipes/*.yaml": configured(TrainConfig, workspace="W"),
    "training/planner/gpus.yaml": gpus,
    "training/planner/shapes.yaml": model_shapes,
    "training/planner/calibration.yaml": calibration,
    "evaluation/published_scores.yaml": published_scores,
    "evaluation/benchmarks/verilog/errata.yaml": errata,
    "evaluation/benchmarks/verilog/contents.yaml": contents_of_public_benchmarks,
    "evaluation/benchmarks/*/*.yaml": benchmark_task,
    "monitoring/alerts.yml": alerts,
    "tests/training/slurm_releases.yaml": slurm_releases,
}


def pattern_of(name: str) -> str:
    fitting = [pattern for pattern in READERS if fnmatchcase(name, pattern)]
    assert fitting, f"{name}: nothing here reads it; name its reader in READERS"
    return fitting[0]


@pytest.mark.parametrize("name", tracked())
def test_it_is_read_by_what_reads_it_in_use(name: str) -> None:
    READERS[pattern_of(name)](REPOSITORY / name)


def test_every_reader_has_a_file() -> None:
    assert {pattern_of(name) for name in tracked()} == set(READERS)


@pytest.mark.parametrize("name", ["deploy/new.yaml", "evaluation/new.yml", "new.yaml"])
def test_a_file_that_nothing_reads_is_found(name: str) -> None:
    with pytest.raises(AssertionError, match=r"nothing here reads it"):
        pattern_of(name)
