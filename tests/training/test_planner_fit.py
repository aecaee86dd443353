"""Fitting the constants: known ones are found again, a stack's speed is told from the GPU's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from training.planner import fit as fitting
from training.planner.backtest import predict, score_throughput
from training.planner.calibration import Calibration, load
from training.planner.fit import fit, fitted
from training.planner.hardware import GpuGroup, machine_of
from training.planner.layout import Job, Layout
from training.planner.memory import peak_memory
from training.planner.published import Run
from training.planner.shape import read_shape
from training.planner.speed import estimate


def runs(constants: Calibration, sources: dict[str, float]) -> list[Run]:
    """Runs as they would be measured under `constants`, each source so much faster than average."""
    made = []
    machine = machine_of(GpuGroup(gpu="A100"))
    for source, speed in sources.items():
        for model in ("Llama-2-7B", "MPT-1b", "MPT-3b"):
            for micro in (1, 4):
                shape = read_shape(model)
                job = Job(seq_len=2048, global_batch=64, stack=source)
                layout = Layout(dp=8, sharding="zero3", micro_batch=micro)
                known = constants.model_copy(update={"stack_speed": {source: speed}})
                rate = estimate(shape, job, layout, machine, known).tokens_per_second_per_gpu
                made.append(Run(0, source, model, shape, job, layout, machine, rate, None))
    return made


def test_a_model_that_was_left_out_is_predicted_as_fast_as_it_ran() -> None:
    """All stacks are slow in products, which the constants' start does not know."""
    slow = Calibration(gemm_ampere=0.70)
    made = runs(slow, {f"stack {number}": 1.0 for number in range(8)})
    seen = [run for run in made if run.model != "MPT-3b"]
    left = [run for run in made if run.model == "MPT-3b"]
    before = score_throughput(predict(run, Calibration()) for run in left)
    found = fit(seen)
    after = score_throughput(predict(run, found) for run in left)
    assert before.median > 0.08
    assert after.median < 0.03


def test_a_stack_is_told_from_the_gpu() -> None:
    found = fit(runs(Calibration(), {"fast": 1.15, "slow": 0.87}))
    assert found.stack_speed["fast"] > 1.05 > 0.95 > found.stack_speed["slow"]
    assert found.gemm_ampere == pytest.approx(Calibration().gemm_ampere, abs=0.05)


def test_the_margin_covers_what_memory_was_measured() -> None:
    (one, *others) = runs(Calibration(), {"one": 1.0})
    found = fit([replace(one, peak_gib=60.0), *others])

    total = peak_memory(one.shape, one.job, one.layout, found).total
    assert total == pytest.approx(60.0 * (1 - fitting.UNDER))


def test_runs_without_a_figure_are_left_out() -> None:
    (one, *others) = runs(Calibration(), {"one": 1.0})
    assert fitted([replace(one, tokens_per_second_per_gpu=None), *others]) == others


def test_the_shipped_constants_name_their_sources_and_no_row() -> None:
    text = (Path(fitting.FILE)).read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    assert values["version"] == 1
    assert set(values["runs"]) == set(load().stack_speed)
    assert all("/" in source or "." in source for source in values["sources"])
    assert len(text.splitlines()) < 120
