"""The checks of a node, run together.

    for result in check_node(NodeLimits(shared=(Path("/fsx/runs"),), gpus=8)):
        print(result.describe())

Each check measures in a child that can be killed (`timed`) and judges what came back with a pure
function: nothing that hangs can hang the check, and every rule is a table that can be tested.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from training.cluster.health import dcgm, gpus, machine, processes, storage
from training.cluster.health.config import NodeLimits
from training.cluster.health.results import CheckResult, Severity, Verdict
from training.cluster.health.timed import Outcome, measure_all
from training.cluster.side_task import SideTask, TaskResult


@dataclass(frozen=True)
class Situation:
    """Where and when the checks run. `gpus` None: nobody knows how many there should be."""

    scope: processes.Scope
    job_ended: processes.JobEnded
    gpus: int | None = None


@dataclass(frozen=True)
class Check:
    """`measure` returns a JSON value for `judge`; `silence` is how bad it is when it hangs."""

    name: str
    measure: Callable[[], Any]
    judge: Callable[[Any], Verdict]
    silence: Severity = Severity.WARN


def run_checks(config: NodeLimits, situation: Situation) -> tuple[CheckResult, ...]:
    """Results of all checks in a fixed order, after at most `config.timeout_s` and a moment."""
    checks = node_checks(config, situation)
    outcomes = measure_all([check.measure for check in checks], config.timeout_s)
    return tuple(_result(check, outcome) for check, outcome in zip(checks, outcomes, strict=True))


def check_node(config: NodeLimits) -> tuple[CheckResult, ...]:
    """Check this machine from any process, also one with threads.

    Runs the command line in an interpreter of its own and asks Slurm nothing. One that does not
    answer is itself a finding.
    """
    task = SideTask(check_command(config), os.environ, answer_within_s(config))
    while (result := task.poll()) is None:
        time.sleep(0.05)
    return read_answer(result, config)


def check_command(config: NodeLimits) -> list[str]:
    """Checks this machine and prints what `read_answer` reads."""
    module = ["-m", "training.cluster.health", "--json", "--settings"]
    return [sys.executable, *module, config.model_dump_json()]


def answer_within_s(config: NodeLimits) -> float:
    """After so long that command hangs as a whole."""
    return 2 * config.timeout_s + 30


def read_answer(result: TaskResult, config: NodeLimits) -> tuple[CheckResult, ...]:
    """The results that `check_command` printed, or what its end says of the node."""
    if result.code is None:
        limit_s = answer_within_s(config)
        return (
            CheckResult(
                "health",
                Severity.DRAIN,
                f"the checks did not answer in {limit_s:g} s",
                "look at the file system that holds the Python environment",
                limit_s,
            ),
        )
    try:
        values = json.loads(result.stdout)
        return tuple(CheckResult.from_json(item) for item in values["checks"])
    except (ValueError, KeyError):
        said = f"the checks could not run: {result.last_words}"
        return (CheckResult("health", Severity.WARN, said),)


def node_checks(config: NodeLimits, situation: Situation) -> list[Check]:
    """The checks that make sense on this node, without those to skip."""
    checks = [
        _check(
            "memory", machine.Memory, machine.read_memory, lambda m: machine.judge_memory(m, config)
        ),
        _check(
            "cpu",
            machine.Processors,
            machine.read_processors,
            lambda m: machine.judge_processors(m, config),
        ),
        _check(
            "clock", machine.Clock, machine.read_clock, lambda m: machine.judge_clock(m, config)
        ),
        _check(
            "processes",
            processes.Processes,
            lambda: processes.read_processes(
                situation.scope, situation.job_ended, config.stuck_look_s
            ),
            lambda m: processes.judge_processes(m, config),
        ),
    ]
    checks += _storage_checks(config)
    checks += _gpu_checks(config, situation)
    # A check of one of several things is called after it: `disk /tmp`.
    return [check for check in checks if check.name.partition(" ")[0] not in config.skip]


def _storage_checks(config: NodeLimits) -> list[Check]:
    def disk(path: Path) -> Check:
        return _check(
            f"disk {path}",
            storage.Disk,
            lambda: storage.read_disk(path),
            lambda m: storage.judge_disk(m, config),
            Severity.DRAIN,
        )

    def shared(path: Path) -> Check:
        return _check(
            f"shared {path}",
            storage.Shared,
            lambda: storage.read_shared(path),
            lambda m: storage.judge_shared(m, config),
            Severity.DRAIN,
        )

    checks = [disk(path) for path in config.disks]
    if config.mounts:
        checks.append(
            Check("mounts", storage.read_mounts, lambda m: storage.judge_mounts(m, config))
        )
    return checks + [shared(path) for path in config.shared]


def _gpu_checks(config: NodeLimits, situation: Situation) -> list[Check]:
    expected = situation.gpus if config.gpus is None else config.gpus
    checks = [
        _check(
            "gpus",
            gpus.Gpus,
            gpus.read_gpus,
            lambda m: gpus.judge_gpus(m, expected, config),
            Severity.ISOLATE,
        ),
        _check("xid", list[gpus.Xid] | None, gpus.read_xids, lambda m: gpus.judge_xids(m, config)),
    ]
    if config.dcgm_level and shutil.which("dcgmi"):
        checks.append(
            Check("dcgm", lambda: dcgm.run_dcgm(config.dcgm_level), dcgm.judge_dcgm, Severity.DRAIN)
        )
    return checks


def _check(
    name: str,
    kind: Any,
    measure: Callable[[], Any],
    judge: Callable[[Any], Verdict],
    silence: Severity = Severity.WARN,
) -> Check:
    """A check whose measurement is a dataclass, which crosses the pipe as JSON."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return Check(
        name,
        lambda: adapter.dump_python(measure(), mode="json"),
        lambda value: judge(adapter.validate_python(value)),
        silence,
    )


def _result(check: Check, outcome: Outcome) -> CheckResult:
    if outcome.timed_out:
        verdict = Verdict(check.silence, outcome.error, "see what it waits for: /proc/PID/stack")
    elif outcome.error:
        verdict = Verdict(Severity.WARN, f"could not be measured: {outcome.error}")
    else:
        verdict = check.judge(outcome.value)
    return CheckResult(check.name, *verdict, seconds=outcome.seconds)


def host_name() -> str:
    """Slurm's name of this node: its own word, else the host's short name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
