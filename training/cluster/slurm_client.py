"""A small typed client over Slurm's commands: sbatch, squeue, scancel, scontrol, sinfo, sacct.

Fields are asked for by name and separated by a control character that no name can hold, because
this form is the same from 22.05 to today: `squeue --json` changes its shapes between releases,
needs a build with json-c, and in 22.05 ignores `--jobs` and prints every job of the cluster.
What they print is parsed by `training.cluster.slurm_output`. Works without slurmdbd: sacct and the
job completion log are optional.

Errors: `TransientError` after a few tries when the controller cannot be reached, `UserError` when
Slurm refuses what was asked, `MissingToolError` when Slurm is not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from training.cluster.slurm_output import (
    JOB_FIELDS,
    SEPARATOR,
    JobInfo,
    NodeInfo,
    parse_accounting,
    parse_completions,
    parse_config,
    parse_gpus,
    parse_job_id,
    parse_jobs,
    parse_nodes,
    parse_version,
)
from workspace.errors import MissingToolError, TransientError, UserError

_TRANSIENT = re.compile(
    "|".join(
        (
            r"Unable to contact slurm controller",
            r"Socket timed out",
            r"Zero Bytes were transmitted",
            r"Connection (refused|reset|timed out)",
            r"Transport endpoint is not connected",
            r"Message (send|receive) failure",
            r"Unexpected message received",
            r"Resource temporarily unavailable",
            r"temporarily unable to accept job",
            r"backup controller",
            r"Communication connection failure",
            r"Unable to (connect|communicate)",
            # slurmctld is up but munged on the way to it is not, for the moment
            r"Munge encode failed",
            r"Protocol authentication error",
        )
    ),
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified", re.IGNORECASE)
_FINISHED_JOB = re.compile(r"already completing or completed|Job/step already", re.IGNORECASE)
# A user's formatting and submission variables would change what the commands print and do.
_STRIPPED = re.compile(r"(SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL)_.*")
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})

ResultT = TypeVar("ResultT")


class SlurmClient:
    """Runs Slurm's commands. `delays_s` are the pauses between tries at a silent controller."""

    def __init__(
        self,
        *,
        timeout_s: float = 60.0,
        delays_s: Sequence[float] = (0.5, 2.0, 5.0),
        environment: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_s
        self._delays_s = tuple(delays_s)
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._sleep = sleep

    def submit(self, script: Path) -> str:
        """Submit a script once (no second try: the first may have arrived); returns the job id."""
        return parse_job_id(self._run("sbatch", "--parsable", str(script)))

    def job(self, job_id: str) -> JobInfo | None:
        """One job, while slurmctld remembers it (MinJobAge after its end); None afterwards."""
        try:
            rows = self._retry(lambda: self._squeue("--jobs", job_id))
        except _UnknownJobError:
            return None
        return next((row for row in rows if row.job_id == job_id), None)

    def own_jobs(self, name: str | None = None) -> list[JobInfo]:
        """This user's jobs, the ended ones included while remembered; by exact name if given."""
        chosen = ["--me"] if name is None else ["--me", "--name", name]
        return self._retry(lambda: self._squeue(*chosen))

    def cancel(self, job_id: str, *, signal: str | None = None, batch_only: bool = False) -> None:
        """End a job, or send it a signal. A job that is already gone is no error."""
        options = [f"--signal={signal}"] if signal else []
        options += ["--batch"] if batch_only else []
        try:
            self._retry(lambda: self._run("scancel", *options, job_id))
        except _UnknownJobError:
            return

    def exclude(self, job_id: str, nodes: Iterable[str]) -> None:
        """Have a waiting job (a user's own) leave out `nodes` and no others."""
        chosen = ",".join(nodes)
        self._retry(
            lambda: self._run("scontrol", "update", f"JobId={job_id}", f"ExcNodeList={chosen}")
        )

    def nodes(self, names: Iterable[str] = (), *, partition: str = "") -> list[NodeInfo]:
        """State of the named nodes, or of all (of a partition)."""
        chosen = ",".join(names)
        options = ["--nodes", chosen] if chosen else []
        options += ["--partition", partition] if partition else []
        form = SEPARATOR.join(("%N", "%T", "%E"))
        listing = self._retry(
            lambda: self._run("sinfo", "--noheader", "--Node", "--format", form, *options)
        )
        return parse_nodes(listing)

    def gpus(self, node: str) -> int | None:
        """GPUs that a node's gres promises, None for a node that Slurm does not know."""
        form = SEPARATOR.join(("%N", "%G"))
        listing = self._retry(
            lambda: self._run("sinfo", "--noheader", "--Node", "--format", form, "--nodes", node)
        )
        return parse_gpus(listing).get(node)

    def address(self, node: str) -> str:
        """Where other nodes reach this one (NodeAddr), which need not be its name."""
        printed = self._retry(
            lambda: self._run("sinfo", "--noheader", "--Node", "--format", "%o", "--nodes", node)
        )
        return next(iter(printed.split()), node)

    def cluster_name(self) -> str:
        """The cluster's name, "" when it has none."""
        shown = self._retry(lambda: self._run("scontrol", "show", "config"))
        return parse_config(shown).get("ClusterName", "")

    def jobs_on(self, node: str) -> frozenset[str]:
        """Ids of everybody's jobs that hold this node, those that are ending included."""
        listing = self._retry(
            lambda: self._run("squeue", "--noheader", "--nodelist", node, "--format", "%A")
        )
        return frozenset(listing.split())

    def take_out(self, node: str, reason: str, *, state: str = "DRAIN") -> None:
        """Let no new job start on a node (a right of operators and of root); DOWN ends its jobs."""
        self._retry(
            lambda: self._run(
                "scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}"
            )
        )

    def resume(self, node: str) -> None:
        """Let jobs start on a drained node again."""
        self._retry(lambda: self._run("scontrol", "update", f"NodeName={node}", "State=RESUME"))

    def finished(self, job_id: str, name: str) -> JobInfo | None:
        """A job that slurmctld has forgotten, from accounting or the completion log, if any."""
        return self._accounted(job_id, name) or self._completed(job_id, name)

    def version(self) -> tuple[int, int]:
        """(major, minor) of the installed commands, e.g. (22, 5)."""
        return parse_version(self._run("sinfo", "--version"))

    def _squeue(self, *options: str) -> list[JobInfo]:
        form = ",".join(f"{name}:{SEPARATOR}" for name in JOB_FIELDS)
        return parse_jobs(
            self._run("squeue", "--noheader", "--states=all", "--Format", form, *options)
        )

    def _accounted(self, job_id: str, name: str) -> JobInfo | None:
        form = "JobIDRaw,State,ExitCode,NodeList,JobName"
        try:
            listing = self._run(
                "sacct", "-X", "-n", "--parsable2", "--delimiter", SEPARATOR,
                "-j", job_id, "-o", form,
            )  # fmt: skip
        except (UserError, TransientError):
            return None  # no slurmdbd: sites may run without it
        # Job ids are used again after MaxJobId; another job's history is not ours.
        return next((job for job in parse_accounting(listing) if job.name == name), None)

    def _completed(self, job_id: str, name: str) -> JobInfo | None:
        try:
            shown = self._run("scontrol", "show", "config")
        except (UserError, TransientError):
            return None
        location = parse_config(shown).get("JobCompLoc", "")
        path = Path(location)
        if not location.startswith("/") or not os.access(path, os.R_OK) or not path.is_file():
            return None
        with path.open(encoding="utf-8", errors="replace") as lines:
            found = parse_completions(lines, job_id)
        return next((job for job in reversed(found) if job.name == name), None)

    def _retry(self, call: Callable[[], ResultT]) -> ResultT:
        for delay_s in self._delays_s:
            try:
                return call()
            except TransientError:
                self._sleep(delay_s)
        return call()

    def _run(self, program: str, *arguments: str) -> str:
        if shutil.which(program, path=self._environment.get("PATH")) is None:
            raise MissingToolError(
                f"{program} is not installed here: run on a Slurm login node, or start the "
                "one-host cluster with deploy/slurm/one-host start"
            )
        try:
            done = subprocess.run(
                [program, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TransientError(f"{program}: no answer in {self._timeout_s:g} s") from error
        if done.returncode != 0:
            raise classify_error(program, done.stderr)
        return done.stdout


class _UnknownJobError(UserError):
    """slurmctld does not know the job (any more)."""


def classify_error(program: str, message: str) -> TransientError | UserError:
    """The error to raise for a command that failed with `message`."""
    text = message.strip() or "failed and said nothing"
    if _UNKNOWN_JOB.search(text) or _FINISHED_JOB.search(text):
        return _UnknownJobError(f"{program}: {text}")
    if _TRANSIENT.search(text):
        return TransientError(f"{program}: {text}")
    return UserError(f"{program}: {text}")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what changes the commands' meaning or output."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not _STRIPPED.fullmatch(name)
    }
    return {**kept, "SLURM_TIME_FORMAT": "standard"}
