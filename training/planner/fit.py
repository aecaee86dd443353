"""Fit the planner's constants on published runs and write `training/planner/calibration.yaml`.

    python -m training.planner.fit TABLE.csv

Each constant starts from a value known from elsewhere (reachable shares of data sheets, kernels'
papers) and is held there by a prior as strong as that knowledge; runs move it only where they
agree. The speed of each software stack over the average is a random effect, shrunk towards 1. Rows
of one source, model and GPU share their weight, so that a table of forty sequence lengths does not
outvote a single run. Only the constants are written: no row of the table.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import yaml

from training.planner.calibration import FILE, Calibration
from training.planner.memory import peak_memory
from training.planner.published import Run, read_runs
from training.planner.speed import estimate
from workspace import publish
from workspace.errors import UserError
from workspace.manifest import now

STACK_SPREAD: Final = 0.12  # of the logarithm of a stack's speed
NOISE: Final = 0.08  # of the logarithm of a run's speed, seen in repeated runs
UNDER: Final = 0.02  # of a measured peak that an estimate may fall short by
_STEP: Final = 1e-3


class Prior(NamedTuple):
    """How far a constant may leave its default: standard deviation on its own scale."""

    name: str
    spread: float
    is_share: bool = True  # between 0 and 1, on the logit scale; otherwise positive, on the log's


PRIORS: Final = (
    Prior("gemm_ampere", 0.25),
    Prior("gemm_hopper", 0.25),
    Prior("gemm_blackwell", 0.35),
    Prior("gemm_blackwell_ultra", 0.35),
    Prior("fp8_hopper", 0.5),
    Prior("fp8", 0.5),
    Prior("mxfp8", 0.4),
    Prior("nvfp4", 0.5),
    Prior("grouped_gemm", 0.5),
    Prior("grouped_gemm_fused", 0.5),
    Prior("attention_ampere", 0.3),
    Prior("attention_triton", 0.3),
    Prior("attention_hopper", 0.3),
    Prior("attention_hopper3", 0.3),
    Prior("attention_blackwell", 0.4),
    Prior("attention_blackwell2", 0.4),
    Prior("elementwise", 0.3, is_share=False),
    Prior("weight_traffic", 0.5),
    Prior("layer_seconds", 0.4, is_share=False),
    Prior("expert_layer_seconds", 0.6, is_share=False),
    Prior("expert_loop_seconds", 0.6, is_share=False),
    Prior("step_seconds", 0.7, is_share=False),
    Prior("link", 0.3),
    Prior("fabric", 0.3),
    Prior("congestion", 0.5),
    Prior("hop_seconds", 0.5, is_share=False),
    Prior("fused", 0.5),
    Prior("eager", 0.5),
    Prior("tensor_overlap", 0.5),
    Prior("tensor_overlap_async", 0.5),
    Prior("data_overlap", 0.6),
    Prior("expert_overlap", 0.6),
    Prior("publish_seconds", 0.5, is_share=False),
    Prior("publish_gbytes", 0.5, is_share=False),
    Prior("jitter", 0.6, is_share=False),
)


def main() -> int:
    """Read the table named on the command line and write the constants."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.fit", description=__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.csv", help="published runs")
    try:
        runs = read_runs(parser.parse_args().table).runs
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    if not fitted(runs):
        print("the table has no run with a throughput", file=sys.stderr)
        return 1
    used = fitted(runs)
    constants = fit(runs)
    values = constants.model_dump()
    values["stack_speed"] = dict(sorted(values["stack_speed"].items()))
    text = yaml.safe_dump(
        {
            "version": 1,
            "fitted": now(),
            "runs": dict(sorted(Counter(run.source for run in used).items())),
            "sources": sorted({run.url for run in used if run.url}),
            "constants": _rounded(values),
        },
        sort_keys=False,
    )
    head = "# Written by `python -m training.planner.fit`; do not edit.\n"
    publish.write_text(FILE, head + text)
    print(text)
    return 0


def fitted(runs: Iterable[Run]) -> list[Run]:
    """Runs that say how fast they were."""
    return [run for run in runs if run.tokens_per_second_per_gpu]


def fit(runs: Sequence[Run], start: Calibration | None = None) -> Calibration:
    """Maximum a posteriori constants, robust to outliers (soft L1)."""
    from scipy.optimize import least_squares

    base = start or Calibration()
    used = fitted(runs)
    problem = _Problem(used, base)
    found = least_squares(
        problem.residuals,
        np.zeros(len(PRIORS)),
        loss="soft_l1",
        diff_step=_STEP,
        x_scale=1.0,
        max_nfev=12,
        ftol=1e-4,
    )
    constants = problem.constants(found.x)
    update = {"stack_speed": problem.stacks(found.x), "memory_margin": _margin(runs, base)}
    return constants.model_copy(update=update)


def _margin(runs: Sequence[Run], base: Calibration) -> float:
    """What the estimate of memory needs to be multiplied with so as to be hardly ever under."""
    plain = base.model_copy(update={"memory_margin": 1.0})
    missing = [
        run.peak_gib / peak_memory(run.shape, run.job, run.layout, plain).total
        for run in runs
        if run.peak_gib
    ]
    return max([1.0, *(share * (1 - UNDER) for share in missing)])


class _Problem:
    """Residuals over the spreads, the stacks' effects solved in closed form."""

    def __init__(self, runs: Sequence[Run], base: Calibration) -> None:
        self.base = base.model_copy(update={"stack_speed": {}})
        group = Counter((run.source, run.model, run.machine.gpu.name) for run in runs)
        self.sources = [run.job.stack for run in runs]
        self.observed = np.log([run.tokens_per_second_per_gpu or 1.0 for run in runs])
        counts = [group[run.source, run.model, run.machine.gpu.name] for run in runs]
        self.weights = np.array([count**-0.5 for count in counts])
        # Repeated measurements of one setting are predicted once.
        keys = [(run.shape, run.job, run.layout, run.machine) for run in runs]
        numbers: dict[str, int] = {}
        self.which = np.array([numbers.setdefault(repr(key), len(numbers)) for key in keys])
        seen: dict[int, int] = {}
        for position, number in enumerate(self.which):
            seen.setdefault(int(number), position)
        self.distinct = [keys[seen[number]] for number in range(len(numbers))]

    def constants(self, x: Sequence[float] | np.ndarray) -> Calibration:
        """The constants at `x`, in spreads from their defaults."""
        changed = {}
        for prior, offset in zip(PRIORS, x, strict=True):
            value = getattr(self.base, prior.name)
            moved = float(offset) * prior.spread
            if prior.is_share:
                changed[prior.name] = 1 / (1 + math.exp(-(math.log(value / (1 - value)) + moved)))
            else:
                changed[prior.name] = value * math.exp(moved)
        return self.base.model_copy(update=changed)

    def _errors(self, x: Sequence[float] | np.ndarray) -> np.ndarray:
        constants = self.constants(x)
        speeds = [estimate(*key, constants).tokens_per_second_per_gpu for key in self.distinct]
        errors: np.ndarray = np.log(speeds)[self.which] - self.observed
        return errors

    def stacks(self, x: Sequence[float] | np.ndarray) -> dict[str, float]:
        """Speed of each stack over the average one."""
        effects = self._effects(self._errors(x))
        return {source: math.exp(effect) for source, effect in effects.items()}

    def _effects(self, errors: np.ndarray) -> dict[str, float]:
        effects = {}
        for source in set(self.sources):
            mine = np.array([name == source for name in self.sources])
            weights = self.weights[mine] / NOISE**2
            ridge = 1 / STACK_SPREAD**2
            middle = _weighted_median(-errors[mine], weights)
            effects[source] = float(middle * weights.sum() / (weights.sum() + ridge))
        return effects

    def residuals(self, x: np.ndarray) -> np.ndarray:
        errors = self._errors(x)
        effects = self._effects(errors)
        shift = np.array([effects[source] for source in self.sources])
        data = (errors + shift) * self.weights / NOISE
        stacks = np.array(sorted(effects.values())) / STACK_SPREAD
        joined: np.ndarray = np.concatenate([data, stacks, np.asarray(x)])
        return joined


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
