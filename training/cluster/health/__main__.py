"""Command line of the health checks; see the package's text.

Exit code: 0 fit for jobs, 4 not (with --program always 0 once the checks have run), 2 bad usage.
Not 1, which is Python's own for a program that broke.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from training.cluster.health.checks import Situation, host_name, run_checks
from training.cluster.health.config import HealthConfig
from training.cluster.health.processes import end_leftovers, ended_on_disk
from training.cluster.health.results import CheckResult, Severity, worst
from training.cluster.health.slurm_node import (
    act,
    own_scope,
    quick_client,
    situation_by_slurm,
    situation_of_epilog,
)
from training.cluster.health.timed import measure_all
from workspace.errors import UserError

EXIT_UNFIT = 4
# Slurm starts its programs with little or no environment.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks in the mode that the flags name; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    os.environ.setdefault("PATH", _PATH)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        config = _config(chosen)
    except UserError as error:
        print(f"health: {error}", file=sys.stderr)
        return 2
    node = host_name()
    if chosen.program:
        return _program(node, config, chosen.json)
    if chosen.epilog:
        situation = situation_of_epilog(node)
    elif chosen.prolog or chosen.settings is not None:
        situation = Situation(own_scope(node), ended_on_disk)
    else:
        situation = situation_by_slurm(node, quick_client())
    if chosen.prolog or chosen.epilog:
        _end_leftovers(situation, config.timeout_s)
    results = run_checks(config, situation)
    _show(node, results, as_json=chosen.json)
    unfit = worst(result.severity for result in results) >= Severity.DRAIN
    return EXIT_UNFIT if unfit else 0


def _end_leftovers(situation: Situation, timeout_s: float) -> None:
    """In a child: the folders of their attempts may lie on a file system that hangs."""

    def end() -> int:
        return len(end_leftovers(situation.scope, situation.job_ended))

    [outcome] = measure_all([end], timeout_s)
    if outcome.value:
        print(f"ended {outcome.value} process(es) of ended jobs", file=sys.stderr)


def _program(node: str, config: HealthConfig, as_json: bool) -> int:
    client = quick_client()
    results = run_checks(config, situation_by_slurm(node, client))
    done = act(node, results, client, config)
    _show(node, results, as_json=as_json, done=done)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.cluster.health",
        description="Check whether this node is fit for a job.",
        epilog=(__doc__ or "").partition("\n\n")[2],
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--prolog", action="store_true", help="as Slurm's Prolog")
    mode.add_argument("--epilog", action="store_true", help="as Slurm's Epilog")
    mode.add_argument("--program", action="store_true", help="as Slurm's HealthCheckProgram")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    settings = parser.add_mutually_exclusive_group()
    settings.add_argument("--config", type=Path, help="YAML file of thresholds")
    # What `check_node` passes on.
    settings.add_argument("--settings", help=argparse.SUPPRESS)
    return parser


def _config(chosen: argparse.Namespace) -> HealthConfig:
    if chosen.settings is not None:
        return HealthConfig.parse(json.loads(chosen.settings), origin="--settings")
    return HealthConfig.from_yaml(chosen.config) if chosen.config else HealthConfig()


def _show(node: str, results: Sequence[CheckResult], *, as_json: bool, done: str = "") -> None:
    severity = worst(result.severity for result in results)
    if as_json:
        document = {
            "node": node,
            "time": time.time(),
            "severity": severity.label,
            "done": done,
            "checks": [result.as_json() for result in results],
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for result in results:
        print(result.describe())
    print(f"{node}: {severity.label}{f'; {done}' if done else ''}")


if __name__ == "__main__":
    sys.exit(main())
