"""Faults on a real Slurm of six nodes on this machine: how long training stands still.

    python -m benchmarks.chaos [--short] [--only C1,C2] [--no-peers | --only-peers]

Needs root and Debian's Slurm (`deploy/slurm/one-host`). One table: ours, the target, and what a
plain `sbatch --requeue` and submitit make of the same fault ("lost": not training again within
150 s; "not run": not measured). Writes `benchmarks/results/chaos_training*.json`; `--only` keeps
the file's figures of the other experiments, `--only-peers` ours of those that it names. Faults in
the real trainers' saves and samples are measured by
`benchmarks.training.{resume,save_kill,reshard,async_save}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import fields, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.chaos import peers
from benchmarks.chaos.experiments import EXPERIMENTS, Experiment
from benchmarks.chaos.lab import Lab, LabError, open_lab
from benchmarks.chaos.result import Result
from benchmarks.measure import Figure, Report, parser

NOT_RUN = "not run"


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--only", default="", help="keys of experiments, by commas")
    whose = arguments.add_mutually_exclusive_group()
    whose.add_argument("--no-peers", action="store_true", help="ours alone")
    whose.add_argument("--only-peers", action="store_true", help="beside our known figures")
    chosen = arguments.parse_args()
    only = {key for key in chosen.only.upper().split(",") if key}
    report = Report("chaos", "training", short=chosen.short)
    failed = False
    with open_lab() as lab:
        for experiment in EXPERIMENTS:
            if only and experiment.key.upper() not in only:
                continue
            beside = {} if chosen.no_peers else _peers(lab, experiment)
            if chosen.only_peers:
                report.figures += _known(report, experiment, beside)
                continue
            results = _play(lab, experiment, chosen.short, report)
            failed |= results is None
            for at, result in enumerate(results or []):
                report.figures.append(_figure(experiment, result, beside if at == 0 else {}))
    load = os.getloadavg()[2]
    report.notes.append(f"{', '.join(sorted(only)) or 'all'}: load of the machine {load:.1f}")
    if only or chosen.only_peers:
        _take_over(report)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    return max(report.finish(lambda filled: console.print(_table(filled))), int(failed))


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
            report_line = str(error).splitlines()[0][:60].replace(",", ";")
            found[peer] = f"failed ({report_line})"
        finally:
            lab.cancel_all()
            lab.revive()
        print(f"  {peer}: {found[peer]}", flush=True)
    return found


def _figure(experiment: Experiment, result: Result, beside: dict[str, str]) -> Figure:
    return Figure(
        f"{experiment.key}: {result.name}",
        result.value,
        result.unit,
        result.target,
        _peer_words(beside),
    )


def _peer_words(beside: dict[str, str]) -> str:
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


def _known(report: Report, experiment: Experiment, beside: dict[str, str]) -> list[Figure]:
    """Our figures of the file, with those of the peers beside the one that they are of."""
    ours = [figure for figure in _written(report)[0] if _key(figure) == experiment.key]
    if not ours or not beside:
        return ours
    return [replace(ours[0], peer=_peer_words(beside)), *ours[1:]]


def _key(figure: Figure) -> str:
    return figure.name.partition(":")[0]


def _table(report: Report) -> Table:
    table = Table(title="faults in training on Slurm", box=SIMPLE_HEAD, title_justify="left")
    for column in ("", "figure", "ours", "target", "", *peers.PEERS):
        table.add_column(column)
    for figure in report.figures:
        met = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[figure.met]
        beside = dict(part.split(": ", 1) for part in figure.peer.split(", ") if part)
        table.add_row(
            _key(figure),
            figure.name.partition(": ")[2],
            f"{figure.value:,.3g} {figure.unit}".rstrip(),
            figure.target,
            met,
            *(beside.get(peer, NOT_RUN) for peer in peers.PEERS),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
