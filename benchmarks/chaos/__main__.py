"""Faults on a real Slurm of six nodes on this machine: how long training stands still.

    python -m benchmarks.chaos [--short] [--only C1,C2] [--no-peers | --only-peers] [--out DIR]

Needs root, Debian's Slurm (`deploy/slurm/one-host`) and, for C18, its Prometheus. One table: ours,
the target, and what a plain `sbatch --requeue` and submitit make of the same fault ("lost": not
training again in time; "n/a": nothing of a peer's compares; "not run": not measured). Writes
`chaos_training*.json` to `benchmarks/results` or `--out`; `--only` keeps the file's figures of the
other experiments, `--only-peers` ours of those that it names. C5, C6, C16 and C17 are measured by
`benchmarks.training.{reshard,save_kill,async_save,planner}`, C17 on a table in `../shared/data`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.chaos.experiments import EXPERIMENTS, Experiment
from benchmarks.chaos.lab import Lab, LabError, open_lab
from benchmarks.chaos.peer_faults import PLAYED, Cells
from benchmarks.chaos.peers import PEERS, available
from benchmarks.chaos.result import Result
from benchmarks.measure import RESULTS, Figure, Report, parser

NOT_RUN, NOT_COMPARED = "not run", "n/a"


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--only", default="", help="keys of experiments, by commas")
    whose = arguments.add_mutually_exclusive_group()
    whose.add_argument("--no-peers", action="store_true", help="ours alone")
    whose.add_argument("--only-peers", action="store_true", help="beside our known figures")
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    chosen = arguments.parse_args()
    only = {key for key in chosen.only.upper().split(",") if key}
    unknown = only - {experiment.key.upper() for experiment in EXPERIMENTS}
    if unknown:
        arguments.error(f"--only: there is no {', '.join(sorted(unknown))}")
    report = Report("chaos", "training", short=chosen.short, folder=chosen.out)
    with open_lab() as lab:
        for experiment in EXPERIMENTS:
            if only and experiment.key.upper() not in only:
                continue
            beside = {} if chosen.no_peers else _peers(lab, experiment, chosen.short)
            if chosen.only_peers:
                report.figures += _known(report, experiment, beside)
                continue
            for at, result in enumerate(_play(lab, experiment, chosen.short, report)):
                report.figures.append(_figure(experiment, result, _cells(beside, at)))
    load = os.getloadavg()[2]
    report.notes.append(f"{', '.join(sorted(only)) or 'all'}: load of the machine {load:.1f}")
    if only or chosen.only_peers:
        _take_over(report)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    return report.finish(lambda filled: console.print(_table(filled)))


def _play(lab: Lab, experiment: Experiment, short: bool, report: Report) -> list[Result]:
    """Its rows; a missed one when it failed."""
    started = time.monotonic()
    print(f"{experiment.key}: {experiment.about} ...", flush=True)
    try:
        results = experiment.play(lab, short)
    except LabError as error:
        report.notes.append(f"{experiment.key} FAILED: {error}")
        print(f"  FAILED: {error}", flush=True)
        results = [Result(f"{experiment.about}: came out as it must", 0, "", "= 1")]
    finally:
        lab.cancel_all()
        lab.revive()
    for result in results:
        print(f"  {result.name}: {result.value:.4g} {result.unit} ({result.target})", flush=True)
    print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return results


def _peers(lab: Lab, experiment: Experiment, short: bool) -> dict[str, Cells]:
    """By peer what it made of the experiment's fault; nothing where none compares."""
    play = PLAYED.get(experiment.key)
    found: dict[str, Cells] = {}
    for peer in available() if play else ():
        assert play is not None
        try:
            found[peer] = play(lab, peer, short)
        except LabError as error:
            first = str(error).splitlines()[0][:60].replace(",", ";")
            found[peer] = (f"failed ({first})",)
        finally:
            lab.cancel_all()
            lab.revive()
        print(f"  {peer}: {', '.join(found[peer])}", flush=True)
    return found


def _figure(experiment: Experiment, result: Result, beside: Mapping[str, str]) -> Figure:
    return Figure(
        f"{experiment.key}: {result.name}",
        result.value,
        result.unit,
        result.target,
        _peer_words(beside),
    )


def _cells(beside: Mapping[str, Cells], at: int) -> dict[str, str]:
    """By peer the cell of row `at`."""
    return {peer: (*cells, *[NOT_COMPARED] * (at + 1))[at] for peer, cells in beside.items()}


def _peer_words(beside: Mapping[str, str]) -> str:
    return ", ".join(f"{peer}: {value}" for peer, value in beside.items())


def _take_over(report: Report) -> None:
    """Keep the figures of experiments that this run left out, and the order of all."""
    ran = {_key(figure) for figure in report.figures}
    known, notes = _written(report)
    report.figures += [figure for figure in known if _key(figure) not in ran]
    order = [experiment.key for experiment in EXPERIMENTS]
    report.figures.sort(key=lambda figure: order.index(_key(figure)))
    report.notes = [*notes, *report.notes]


def _written(report: Report) -> tuple[list[Figure], list[str]]:
    """Figures and notes of the file as it is."""
    try:
        known = json.loads(report.path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [], []
    names = {field.name for field in fields(Figure)}
    figures = [Figure(**{k: v for k, v in one.items() if k in names}) for one in known["figures"]]
    return figures, known["notes"]


def _known(report: Report, experiment: Experiment, beside: Mapping[str, Cells]) -> list[Figure]:
    """Our figures of the file, with those of the peers beside them."""
    ours = [figure for figure in _written(report)[0] if _key(figure) == experiment.key]
    if not beside:
        return ours
    return [replace(figure, peer=_peer_words(_cells(beside, at))) for at, figure in enumerate(ours)]


def _key(figure: Figure) -> str:
    return figure.name.partition(":")[0]


def _table(report: Report) -> Table:
    table = Table(title="faults in training on Slurm", box=SIMPLE_HEAD, title_justify="left")
    for column in ("", "figure", "ours", "target", "", *PEERS):
        table.add_column(column)
    for figure in report.figures:
        met = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[figure.met]
        beside = dict(part.split(": ", 1) for part in figure.peer.split(", ") if part)
        unmeasured = NOT_RUN if _key(figure) in PLAYED else NOT_COMPARED
        table.add_row(
            _key(figure),
            figure.name.partition(": ")[2],
            f"{figure.value:,.3g} {figure.unit}".rstrip(),
            figure.target,
            met,
            *(beside.get(peer, unmeasured) for peer in PEERS),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
