"""A job as an sbatch script.

In: a `Job` and the site's `SlurmOptions`. Out: the text of a bash script (`render`), or the files
`job.sbatch` and `job.json` (the resolved spec) in the job's attempt folder (`write_script`, which
is all that a dry run does). Nothing here talks to Slurm.

The job's environment is written into the script, because `sbatch --export=NAME=VALUE` cuts values
at commas. Every value passes through `bash_quote`, every directive through `sbatch_quote`; both
are tested by running real bash and a real sbatch on hostile strings.

Not covered: heterogeneous jobs, arrays.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from training.cluster.container import agent_words, srun_options, variables
from training.cluster.job import LEAVE_FILE, STOP_FILE, Job
from training.cluster.local import ENVIRONMENT
from training.cluster.marks import MARK
from training.cluster.slurm_options import SlurmOptions
from workspace import publish
from workspace.errors import UserError

SCRIPT_NAME = "job.sbatch"
SPEC_NAME = "job.json"
NODES_NAME = "nodes.txt"
STARTED_NAME = "started.json"
SEGMENT_SINCE = (24, 5)
REFUSED = 3  # exit code of a successor's question; others but 0 are faults

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# bash sets these itself, or refuses to: a job's value would not arrive.
_BASH_OWN = re.compile(
    r"_|UID|EUID|PPID|SHELLOPTS|BASHOPTS|BASH_.*|BASHPID|RANDOM|SRANDOM|SECONDS|LINENO|GROUPS"
    r"|DIRSTACK|FUNCNAME|PIPESTATUS|HISTCMD|EPOCHSECONDS|EPOCHREALTIME|SHLVL|PWD|OLDPWD|COMP_.*"
    r"|OPTIND|OPTERR|POSIXLY_CORRECT"
)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_DIRECTIVE = re.compile(r"--[a-z][a-z0-9-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
# slurmctld refuses scripts above max_script_size (4 MiB by default).
_SCRIPT_BYTES = 4 << 20


def render(job: Job, options: SlurmOptions) -> str:
    """The sbatch script of `job`. Raises `UserError` naming what cannot be written into one."""
    _check(job)
    text = (
        _templates()
        .get_template("train.sbatch.j2")
        .render(
            directives=_directives(job, options),
            **_shell_words(job, options),
            command=" ".join(bash_quote(part) for part in job.command),
            sections=bash_quote(job.sections.model_dump_json()),
            checkpoints=bash_quote(str(job.checkpoints)) if job.checkpoints else "",
            health=bash_quote(_health(job)) if job.health.enabled else "",
            links=bash_quote(_links(job)) if job.health.links.enabled and job.nodes > 1 else "",
            kept_links=bash_quote(str(job.kept_links)) if job.kept_links else "",
            metrics_targets=bash_quote(_metrics_targets(job, options)) if options.metrics else "",
            metrics_port=options.metrics_port,
            srun_options=[bash_quote(word) for word in srun_options(options.container, job)],
            agent_words=[bash_quote(word) for word in agent_words(options.container, job)],
            stop_file=STOP_FILE,
            leave_file=LEAVE_FILE,
            job=job,
        )
    )
    return _checked_size(text, job)


def render_successor(job: Job, options: SlurmOptions, folder: Path, after: str) -> str:
    """The script of a job that waits in `folder` to become `job` when job `after` ends badly.

    `afternotok` and not `singleton`: after a success Slurm itself takes the waiting job away (where
    the site's `kill_invalid_depend` is not set, the option on the job is), also when nobody else
    lives to do it, and jobs keep their names. Both are kept by slurmctld alone, without slurmdbd.
    """
    _check(job)
    text = (
        _templates()
        .get_template("successor.sbatch.j2")
        .render(
            directives=[
                *_directives(replace(job, attempt_dir=folder), options),
                f"--dependency=afternotok:{after}",
                "--kill-on-invalid-dep=yes",
            ],
            **_shell_words(job, options),
            folder=bash_quote(str(folder)),
            patience_s=options.successor_wait_s,
            refused=REFUSED,
        )
    )
    return _checked_size(text, job)


def _templates() -> Environment:
    return Environment(  # noqa: S701 - bash, not HTML: values are quoted by bash_quote
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shell_words(job: Job, options: SlurmOptions) -> dict[str, Any]:
    """What every script of a job needs."""
    environment = _environment(job, options)
    return {
        "environment": {name: bash_quote(value) for name, value in environment.items()},
        "attempt_dir": bash_quote(str(job.attempt_dir)),
        "python": bash_quote(options.python or sys.executable),
        "modules": [_module(name) for name in options.modules],
        "setup": options.setup,
    }


def _checked_size(text: str, job: Job) -> str:
    if len(text.encode("utf-8", "surrogateescape")) > _SCRIPT_BYTES:
        raise UserError(f"job {job.key}: script above 4 MiB; pass long values in a file")
    return text


def check_version(options: SlurmOptions, version: tuple[int, int]) -> None:
    """Raise `UserError` for options that the cluster's Slurm does not know yet."""
    if options.segment and version < SEGMENT_SINCE:
        raise UserError(
            f"slurm.segment needs Slurm {SEGMENT_SINCE[0]}.{SEGMENT_SINCE[1]:02d}, this cluster "
            f"runs {version[0]}.{version[1]:02d}: use slurm.switches"
        )


def write_script(job: Job, options: SlurmOptions, folder: Path | None = None) -> Path:
    """Write script and resolved spec into the attempt's folder, or another; the script's path.

    Both are readable by their owner alone: the environment may hold tokens.
    """
    target = folder or job.attempt_dir
    _write_spec(job, options, target)
    script = target / SCRIPT_NAME
    _write_private(script, render(job, options))
    return script


def write_successor(job: Job, options: SlurmOptions, folder: Path, after: str) -> Path:
    """Write the script and spec of a successor into `folder`; the script's path."""
    _write_spec(job, options, folder)
    script = folder / SCRIPT_NAME
    _write_private(script, render_successor(job, options, folder, after))
    return script


def _write_spec(job: Job, options: SlurmOptions, target: Path) -> None:
    spec = {
        **asdict(job),
        "attempt_dir": str(job.attempt_dir),
        "checkpoints": str(job.checkpoints) if job.checkpoints else None,
        "metrics_targets": _metrics_targets(job, options) or None,
        "kept_links": str(job.kept_links) if job.kept_links else None,
        "sections": job.sections.model_dump(mode="json"),
        "health": job.health.model_dump(mode="json"),
        "slurm": options.model_dump(mode="json"),
    }
    _write_private(target / SPEC_NAME, json.dumps(spec, indent=2, sort_keys=True) + "\n")


def bash_quote(text: str) -> str:
    """`text` as one word of a bash script, on one line.

    Control characters become `$'...'` escapes: sbatch refuses scripts that hold CR LF, and a line
    feed inside a value could begin a line with `#SBATCH`.
    """
    if "\x00" in text:
        raise UserError(f"{text!r}: a value cannot hold a NUL character")
    if _BARE.fullmatch(text):
        return text
    if not _CONTROL.search(text):
        return "'" + text.replace("'", "'\"'\"'") + "'"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match[0]):03o}", escaped) + "'"


def sbatch_quote(value: str) -> str:
    """`value` as sbatch reads it in a `#SBATCH` line (its own rules: neither bash nor shlex)."""
    if _CONTROL.search(value):
        raise UserError(f"sbatch option value {value!r}: control characters are not allowed")
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _environment(job: Job, options: SlurmOptions) -> dict[str, str]:
    """What the ranks get beside the submitter's own environment, which sbatch passes on."""
    chosen = {
        **ENVIRONMENT,
        "OMP_NUM_THREADS": str(job.cpus_per_process),
        **variables(options.container),
        **job.environment,
        MARK: str(job.attempt_dir),
    }
    return dict(sorted(chosen.items()))


def _directives(job: Job, options: SlurmOptions) -> list[str]:
    cpus = job.processes_per_node * job.cpus_per_process
    gres = options.gres or (f"gpu:{job.gpus_per_node}" if job.gpus_per_node else "")
    named = {
        "job-name": job.key,
        "comment": job.key,
        # Relative to chdir, so that a folder's name is never read as a pattern (%j, \).
        "chdir": str(job.attempt_dir),
        "output": "job.log",
        "open-mode": "append",
        "nodes": str(job.nodes + job.spares),
        "ntasks-per-node": "1",
        "cpus-per-task": str(cpus),
        "time": _minutes(job.time_limit_s),
        # Not USR1: NCCL and torchrun use or mishandle it.
        "signal": f"B:USR2@{options.signal_lead_s}",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "reservation": options.reservation,
        "gres": gres,
        "mem": options.mem,
        "exclude": ",".join(job.exclude_nodes),
        "switches": _switches(options),
        "segment": str(_segment(options, job) or ""),
    }
    lines = [f"--{name}={sbatch_quote(value)}" for name, value in named.items() if value]
    lines.append("--requeue" if options.requeue else "--no-requeue")
    # The coordinator deals with a dead node, and sooner.
    lines.append("--no-kill")
    if options.exclusive:
        lines.append("--exclusive")
    return lines + [_extra(option) for option in options.extra]


def _health(job: Job) -> str:
    """What the agents check, as far as it is not the default."""
    limits = job.health.limits
    shared = (*limits.shared, job.attempt_dir)
    gpus = job.gpus_per_node if limits.gpus is None else limits.gpus
    own = limits.model_copy(update={"shared": shared, "gpus": gpus})
    return own.model_dump_json(exclude_defaults=True)


def _links(job: Job) -> str:
    return job.health.links.model_dump_json(exclude_defaults=True)


def _metrics_targets(job: Job, options: SlurmOptions) -> str:
    """Where the agents tell Prometheus of themselves, "" when they serve nothing."""
    if not options.metrics:
        return ""
    if options.metrics_targets and not Path(options.metrics_targets).is_absolute():
        raise UserError(f"slurm.metrics_targets: {options.metrics_targets!r} is not absolute")
    return options.metrics_targets or str(job.metrics_targets or job.attempt_dir / "metrics")


def _switches(options: SlurmOptions) -> str:
    if not options.switches or not options.switches_wait_s:
        return str(options.switches or "")
    seconds = options.switches_wait_s
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{options.switches}@{clock}"


def _segment(options: SlurmOptions, job: Job) -> int:
    nodes = job.nodes + job.spares
    if options.segment and nodes % options.segment:
        raise UserError(
            f"slurm.segment is {options.segment}, which does not divide the job's {nodes} nodes "
            "(spares included)"
        )
    return options.segment


def _module(name: str) -> str:
    if not _MODULE.fullmatch(name):
        raise UserError(f"slurm.modules: {name!r} cannot be the name of a module")
    return name


def _extra(option: str) -> str:
    name, has_value, value = option.partition("=")
    if name == "--auto-resume":
        # HyperPod would hold the step and start it again while our coordinator does the same.
        raise UserError(
            "slurm.extra: --auto-resume would restart what this project restarts itself"
        )
    if not _DIRECTIVE.fullmatch(name):
        raise UserError(f"Slurm option {option!r}: write it as --name or --name=value")
    return f"{name}={sbatch_quote(value)}" if has_value else name


def _minutes(seconds: int) -> str:
    """Slurm counts time limits in minutes, rounded up."""
    minutes = -(-seconds // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def _check(job: Job) -> None:
    if not _KEY.fullmatch(job.key):
        raise UserError(f"job key {job.key!r}: use letters, digits, dot, dash and underscore")
    if not job.attempt_dir.is_absolute():
        raise UserError(f"job {job.key}: folder {job.attempt_dir} must be an absolute path")
    for name in job.environment:
        if not _VARIABLE.fullmatch(name) or _BASH_OWN.fullmatch(name):
            raise UserError(f"job {job.key}: {name!r} cannot be a variable of the job")
    for node in job.exclude_nodes:
        if not _NODE.fullmatch(node):
            raise UserError(f"job {job.key}: {node!r} cannot be the name of a node to exclude")
    if min(job.nodes, job.processes_per_node, job.cpus_per_process, job.time_limit_s) < 1:
        raise UserError(f"job {job.key}: nodes, processes, CPUs and time limit must be at least 1")
    if not job.command:
        raise UserError(f"job {job.key}: the command is empty")


def _write_private(target: Path, text: str) -> None:
    with publish.atomic_path(target) as path:
        path.touch(mode=0o600)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
