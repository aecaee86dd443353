"""A real Slurm of six nodes on this machine, runs on it, and the faults that befall them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.chaos.supervisor import REPOSITORY, RunSettings
from benchmarks.chaos.trainer import Settings, read_ledger, undisturbed_weights
from training.cluster.blacklist import Blacklist
from training.cluster.marks import MARK, marked
from training.run_events import EVENTS_NAME, RunEvent, read_events

ONE_HOST = REPOSITORY / "deploy" / "slurm" / "one-host"
NODES = 6


class LabError(AssertionError):
    """An experiment did not come out as it must, whatever the figures."""


class Run:
    """A run under its supervisor."""

    def __init__(self, settings: RunSettings) -> None:
        self.config = settings
        self.stage = settings.stage
        self.started = time.time()
        self.stage.mkdir(parents=True)
        (self.stage / "faults").mkdir()
        self._file = settings.write()
        self._supervisor: subprocess.Popen[bytes] | None = None

    def supervise(self) -> Run:
        """Start the supervisor, or start it again."""
        with (self.stage.parent / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos.supervisor", str(self._file)],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        assert self._supervisor is not None
        return self._supervisor

    @property
    def is_watched(self) -> bool:
        """Whether its supervisor lives (a peer's run has none)."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def kill_supervisor(self) -> None:
        self.supervisor.kill()
        self.supervisor.wait()

    def wait(self, within_s: float = 300.0) -> int:
        """The supervisor's exit code."""
        try:
            return self.supervisor.wait(within_s)
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.stage.parent.name} is not over after {within_s:.0f} s") from None

    def finish(self, within_s: float = 300.0) -> None:
        """To a good end, with every sample trained once and in order."""
        code = self.wait(within_s)
        if code:
            raise LabError(f"the run was given up: {self.log()[-2000:]}")
        weights = (self.stage / "weights").read_text()
        if weights != undisturbed_weights(self.config.settings):
            raise LabError(f"{self.stage.parent.name}: samples were lost or repeated")

    def ledger(self) -> list[dict[str, Any]]:
        return read_ledger(self.stage)

    def log(self) -> str:
        path = self.stage.parent / "supervisor.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, name: str = "") -> list[RunEvent]:
        """Of the run's story, and what its newest job has told but the supervisor not yet read."""
        known = read_events(self.stage.parent / EVENTS_NAME)
        attempts = sorted(self.stage.glob("attempts/*"), key=lambda path: int(path.name))
        for attempt in attempts[-1:]:
            copied = [e for e in known if e.attempt == int(attempt.name) and e.line]
            fresh = read_events(attempt / EVENTS_NAME)[len(copied) :]
            known += [replace(event, attempt=int(attempt.name)) for event in fresh]
        return [event for event in known if name in ("", event.event)]

    def story(self) -> str:
        """The events in lines for people."""
        return "\n".join(
            f"{event.time - self.started:7.1f} s {event.attempt}.{event.generation} {event.event}: "
            f"{event.detail}"
            for event in self.events()
        )

    def attempts(self) -> int:
        return len(list(self.stage.glob("attempts/*")))

    def nodes(self) -> tuple[str, ...]:
        """Where the ranks run now."""
        return self.events("started")[-1].nodes

    def until_step(self, step: int, within_s: float = 120.0) -> dict[str, Any]:
        """The newest line of the ledger once it is at `step` or beyond."""
        self.until(lambda: self.last_step() >= step, f"trained step {step}", within_s)
        return self.ledger()[-1]

    def last_step(self) -> int:
        ledger = self.ledger()
        return int(ledger[-1]["step"]) if ledger else 0

    def until(self, condition: Callable[[], object], what: str, within_s: float = 120.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise LabError(f"{self.stage.parent.name} never {what}: {self.log()[-1500:]}")
            time.sleep(0.05)

    def recovered(self, since: float, within_s: float = 180.0) -> float:
        """Seconds from `since` to the first step of ranks that were started after it."""
        before = [line for line in self.ledger() if line["time"] < since]
        old = before[-1]["pid"] if before else 0

        def first() -> dict[str, Any] | None:
            later = (x for x in self.ledger() if x["time"] > since and x["pid"] != old)
            return next(later, None)

        self.until(first, "trained again", within_s)
        line = first()
        assert line is not None
        return float(line["time"]) - since

    def processes(self, node: str, *, ranks: bool) -> list[int]:
        """Living ranks of a node, or its agent."""
        stage = str(self.stage)

        def wanted(environment: dict[str, str]) -> bool:
            ours = environment[MARK].startswith(f"{stage}/attempts/")
            here = environment.get("SLURMD_NODENAME") == node
            agent = "DSM_COORDINATOR_KEY" in environment and "RANK" not in environment
            return ours and here and ("RANK" in environment if ranks else agent)

        return [pid for pid in marked(wanted) if not _is_srun(pid)]

    def coordinator_pid(self) -> int:
        """Of the job that runs now."""
        stage = str(self.stage)
        for pid in marked(lambda environment: environment[MARK].startswith(f"{stage}/attempts/")):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"training.cluster.coordinator" in title:
                return pid
        raise LabError("no coordinator runs")

    def rank_pid(self, node: str) -> int:
        found = self.processes(node, ranks=True)
        if not found:
            raise LabError(f"no rank runs on {node}")
        return found[0]


class Lab:
    """The cluster and a workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._runs: list[Run] = []

    def run(self, name: str, settings: dict[str, Any] | None = None, **layout: Any) -> Run:
        """A new run of its own workspace, so that no run learns of another's bad nodes."""
        self._number += 1
        root = self.folder / f"w{self._number}" / "runs" / f"{name}-{self._number}" / "sft"
        trained = Settings(str(root), **(settings or {}))
        run = Run(RunSettings(str(root), trained, **layout))
        self._runs.append(run)
        return run

    def bad_nodes(self, run: Run) -> dict[str, float]:
        return Blacklist(run.config.workspace / "bad-nodes.jsonl").avoided(time.time())

    def duplicates_under(self, folder: Path) -> int:
        """Jobs beyond the first of each attempt in a folder, of those that slurmctld knows and
        those in its log of completed ones. (Killed, it forgets what it had just accepted, and
        gives its number to another.)"""
        listing = subprocess.run(
            ["squeue", "--me", "--states=all", "--noheader", "--format=%A %Z"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        log = (self.folder / "slurm" / "log" / "jobcomp.log").read_text(errors="replace")
        jobs = {tuple(line.split(" ", 1)) for line in listing.splitlines()}
        jobs |= set(re.findall(r"^JobId=(\d+) .* WorkDir=(\S+)", log, re.MULTILINE))
        places = [place for _, place in jobs if Path(place).is_relative_to(folder)]
        if not places:
            raise LabError(f"Slurm knows of no job in {folder}")
        return len(places) - len(set(places))

    def node_seconds(self, run: Run) -> float:
        """Seconds times nodes that the jobs of a finished run were given, by Slurm's log."""
        log = self.folder / "slurm" / "log" / "jobcomp.log"

        def jobs() -> list[dict[str, str]]:
            lines = log.read_text(errors="replace").splitlines()
            all_jobs = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]
            return [job for job in all_jobs if Path(job["WorkDir"]).is_relative_to(run.stage)]

        run.until(lambda: len(jobs()) >= run.attempts(), "was over for Slurm", 60)
        return sum(_seconds(job) * int(job["NodeCnt"]) for job in jobs())

    def cluster(self, action: str) -> str:
        done = subprocess.run(
            [str(ONE_HOST), action, "--dir", str(self.folder / "slurm"), *self._size(action)],
            capture_output=True,
            text=True,
            timeout=180,
        )
        if done.returncode:
            raise LabError(f"one-host {action}: {done.stderr}")
        return done.stdout

    def daemon(self, name: str) -> int:
        return int((self.folder / "slurm" / "run" / f"{name}.pid").read_text())

    def kill_node(self, run: Run, node: str, *, silently: bool) -> float:
        """A node dies: its slurmd, step daemon, agent and ranks. `silently`: as if the power went,
        nobody hears a connection close (they are stopped, and killed when it is over). Returns
        when."""
        own = [*run.processes(node, ranks=False), *run.processes(node, ranks=True)]
        when = time.time()
        self.kill_daemons(node)
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if silently else signal.SIGKILL)
        return when

    def kill_daemons(self, node: str) -> None:
        """Slurm's own on a node: slurmd and its steps'. What they started lives on."""
        steps = [pid for pid in _step_daemons(node) if not _is_batch(pid)]
        for pid in (self.daemon(node), *steps):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self) -> None:
        """Start the daemons that are missing and wait for all nodes to be there."""
        for run in self._runs:
            if run.is_watched:
                continue
            for node in (f"node{number}" for number in range(1, NODES + 1)):
                for pid in (*run.processes(node, ranks=False), *run.processes(node, ranks=True)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.cluster("start")

    def cancel_all(self) -> None:
        subprocess.run(["scancel", "--me"], check=False, capture_output=True)
        for run in self._runs:
            if run.is_watched:
                run.kill_supervisor()

    def _size(self, action: str) -> list[str]:
        return ["--nodes", str(NODES)] if action == "start" else []


def ranks_of(stage: Path) -> dict[int, int]:
    """Processes of a stage's living ranks, by rank."""
    found = {}
    for pid in marked(lambda own: own[MARK].startswith(f"{stage}/attempts/") and "RANK" in own):
        with contextlib.suppress(OSError):
            environment = (Path(f"/proc/{pid}") / "environ").read_bytes().split(b"\0")
            rank = next(entry for entry in environment if entry.startswith(b"RANK="))
            found[int(rank[5:])] = pid
    return found


@contextmanager
def open_lab() -> Iterator[Lab]:
    """The cluster runs, and `SLURM_CONF` points at it, inside the block."""
    with tempfile.TemporaryDirectory(prefix="dsm-chaos-", ignore_cleanup_errors=True) as folder:
        lab = Lab(Path(folder))
        lab.cluster("start")
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(Path(folder) / "slurm" / "slurm.conf")
        try:
            yield lab
        finally:
            lab.cancel_all()
            lab.cluster("stop")
            if before is None:
                del os.environ["SLURM_CONF"]
            else:
                os.environ["SLURM_CONF"] = before


def _seconds(job: dict[str, str]) -> float:
    begin, end = (datetime.fromisoformat(job[name]) for name in ("StartTime", "EndTime"))
    return (end - begin).total_seconds()


def _step_daemons(node: str) -> list[int]:
    """slurmstepd processes of a node (their title names the step only, so by environment)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() != "slurmstepd":
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
            if f"SLURMD_NODENAME={node}".encode() in environment:
                found.append(int(entry.name))
    return found


def _is_batch(pid: int) -> bool:
    with contextlib.suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return bool(re.search(r"\.batch", title))
    return False


def _is_srun(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "srun"
    return False
