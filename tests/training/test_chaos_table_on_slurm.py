"""The table of `make chaos`: rows of a few cheap experiments, on a real Slurm of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_on_one_host import require_slurm

from benchmarks.chaos.experiments import EXPERIMENTS
from benchmarks.measure import RESULTS

pytestmark = pytest.mark.slurm
REPOSITORY = RESULTS.parents[1]
CHEAP = ("C9", "C19", "pair")


def test_the_short_table_prints_and_meets_its_targets(tmp_path: Path) -> None:
    require_slurm()
    before = {path: path.read_bytes() for path in RESULTS.glob("chaos_*")}
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.chaos", "--short", "--no-peers",
            "--only", ",".join(CHEAP), "--out", str(tmp_path),
        ],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [written] = tmp_path.iterdir()
    assert written.name == "chaos_training_short.json"
    report = json.loads(written.read_text())
    assert {figure["name"].partition(":")[0] for figure in report["figures"]} == set(CHEAP)
    assert all(figure["met"] for figure in report["figures"])
    table = done.stdout.partition("faults in training on Slurm")[2]
    for figure in report["figures"]:
        key, _, name = figure["name"].partition(": ")
        assert re.search(rf"{key} +{re.escape(name)} +{figure['value']:g} .*met", table), table
    assert {path: path.read_bytes() for path in RESULTS.glob("chaos_*")} == before


def test_each_wanted_experiment_has_its_row() -> None:
    """C1 to C20, as they were set; C11 has a row for whatever may die."""
    numbers = [re.match(r"C(\d+)", experiment.key) for experiment in EXPERIMENTS]
    assert {int(number[1]) for number in numbers if number} == set(range(1, 21))


def test_only_takes_known_experiments(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", "--only", "C99", "--out", str(tmp_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "there is no C99" in done.stderr
    assert not list(tmp_path.iterdir())
