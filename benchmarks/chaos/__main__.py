"""Faults on a real Slurm of six nodes on this machine: how long training stands still.

    python -m benchmarks.chaos [--short] [--only C1,C2] [--no-peers]

Needs root and Debian's Slurm (`deploy/slurm/one-host`). One table: ours, the target, and what a
plain `sbatch --requeue` and submitit make of the same fault ("lost": not training again within
150 s; "not run": not measured). Writes `benchmarks/results/chaos_training*.json`.
"""

from __future__ import annotations

import os
import sys
import time

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.chaos import peers
from benchmarks.chaos.experiments import EXPERIMENTS, Experiment, Result
from benchmarks.chaos.lab import Lab, LabError, open_lab
from benchmarks.measure import Figure, Report, parser

NOT_RUN = "not run"


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--only", default="", help="keys of experiments, by commas")
    arguments.add_argument("--no-peers", action="store_true", help="ours alone")
    chosen = arguments.parse_args()
    only = {key for key in chosen.only.upper().split(",") if key}
    report = Report("chaos", "training", short=chosen.short)
    table = _table()
    failed = False
    with open_lab() as lab:
        for experiment in EXPERIMENTS:
            if only and experiment.key.upper() not in only:
                continue
            results = _play(lab, experiment, chosen.short, report)
            failed |= results is None
            beside = {} if chosen.no_peers else _peers(lab, experiment)
            for at, result in enumerate(results or []):
                _add(table, report, experiment, result, beside if at == 0 else {})
    report.notes.append(f"load of the machine at the end: {os.getloadavg()[1]:.1f}")
    console = Console() if sys.stdout.isatty() else Console(width=160)
    return max(report.finish(lambda _: console.print(table)), int(failed))


def _play(lab: Lab, experiment: Experiment, short: bool, report: Report) -> list[Result] | None:
    started = time.monotonic()
    print(f"{experiment.key}: {experiment.about} ...", flush=True)
    try:
        results = experiment.play(lab, short)
    except LabError as error:
        report.notes.append(f"{experiment.key} FAILED: {error}")
        print(f"  FAILED: {error}", flush=True)
        results = None
    finally:
        lab.cancel_all()
        lab.revive()
    for result in results or []:
        print(f"  {result.name}: {result.value:.4g} {result.unit} ({result.target})", flush=True)
    print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return results


def _peers(lab: Lab, experiment: Experiment) -> dict[str, str]:
    measure = peers.MEASURED.get(experiment.key)
    found = {}
    for peer in peers.available() if measure else ():
        try:
            assert measure is not None
            value = measure(lab, peer)
            found[peer] = "lost" if value == peers.LOST else f"{value:.3g}"
        except LabError as error:
            found[peer] = f"failed: {error}"[:60]
        finally:
            lab.cancel_all()
            lab.revive()
        print(f"  {peer}: {found[peer]}", flush=True)
    return found


def _add(
    table: Table, report: Report, experiment: Experiment, result: Result, beside: dict[str, str]
) -> None:
    plain = beside.get("sbatch --requeue", NOT_RUN)
    figure = Figure(
        f"{experiment.key} {result.name}",
        result.value,
        result.unit,
        result.target,
        "sbatch --requeue" if plain != NOT_RUN else "",
        float(plain) if plain.replace(".", "").isdigit() else None,
    )
    report.figures.append(figure)
    met = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[figure.met]
    submitit = beside.get("submitit", NOT_RUN)
    ours = f"{result.value:,.3g} {result.unit}".rstrip()
    table.add_row(experiment.key, result.name, ours, result.target, met, plain, submitit)
    if beside:
        report.notes.append(f"{figure.name}: " + ", ".join(f"{k}: {v}" for k, v in beside.items()))


def _table() -> Table:
    table = Table(title="faults in training on Slurm", box=SIMPLE_HEAD, title_justify="left")
    for column in ("", "figure", "ours", "target", "", "sbatch --requeue", "submitit"):
        table.add_column(column)
    return table


if __name__ == "__main__":
    sys.exit(main())
