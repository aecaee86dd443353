"""Rows whose faults need no cluster: the figures of `benchmarks.training`, measured anew by it.

Those with a target, under their own names. Whole processes of the real trainers, as there.
"""

from __future__ import annotations

from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.result import Result
from benchmarks.measure import Report
from benchmarks.training import async_save, planner, reshard, save_kill


def resharding(lab: Lab, short: bool) -> list[Result]:
    """C5: a run on 4, then 2, then 3 ranks."""
    return _rows(reshard.measure(short))


def kills_in_saves(lab: Lab, short: bool) -> list[Result]:
    """C6: SIGKILL at points spread over a save."""
    return _rows(save_kill.measure(short))


def saves_meanwhile(lab: Lab, short: bool) -> list[Result]:
    """C16: how long training stands still for an asynchronous save."""
    return _rows(async_save.measure(short))


def planning(lab: Lab, short: bool) -> list[Result]:
    """C17: the planner against published runs. Raises `LabError` where their table is not."""
    try:
        return _rows(planner.measure(short))
    except SystemExit as error:
        raise LabError(str(error)) from None


def _rows(report: Report) -> list[Result]:
    return [
        Result(figure.name, figure.value, _unit(figure.unit), figure.target)
        for figure in report.figures
        if figure.target
    ]


def _unit(unit: str) -> str:
    """`of 50` is said by the target."""
    return "" if unit.startswith("of ") else unit
