"""The supervisor's side of a waiting successor: submit it, take it over, or take it out.

    queue = SuccessorQueue(SlurmLauncher(options))
    queue.submit(job, after=handle)         # while `handle`'s job runs
    queue.settle(attempt_dir, want)         # when that is over, before the next attempt
    queue.withdraw(attempt_dir)             # when nothing is to follow

Each of them may be repeated after a kill at any point: what is on disk and what Slurm knows under
the job's name and folder say how far the former one came (`training.cluster.successor`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from training.cluster.job import Job, JobHandle
from training.cluster.render import SPEC_NAME, write_script, write_successor
from training.cluster.slurm import OVER, WAITING, SlurmLauncher, read_handle
from training.cluster.slurm_output import JobInfo
from training.cluster.successor import (
    PREPARED_NAME,
    Verdict,
    claim,
    read_verdict,
    settle,
    successor_folder,
)
from workspace.errors import UserError


class Fate(StrEnum):
    """What a supervisor that wants another attempt does with the job that waits for it."""

    TAKE_OVER = "take over"
    NARROW = "take over without some nodes"  # it still waits: Slurm can be told to leave them out
    REPLACE = "replace"  # by a new job
    FORGET = "forget"  # there is no such job any more


class Want(NamedTuple):
    """The attempt that the supervisor decided on. `nodes`: their number, spares left out."""

    excluding: tuple[str, ...]
    nodes: int
    within: int = sys.maxsize  # nodes that are up and not left out: a spare is waited for in vain


class Settled(NamedTuple):
    """What came of it. `verdict` None: there was no successor."""

    verdict: Verdict | None = None
    handle: JobHandle | None = None
    detail: str = ""  # for people; "" when it was settled before


def fate_of(info: JobInfo | None, asked_nodes: int, want: Want, spares: int = 0) -> Fate:
    """What follows for the waiting job that asked for `asked_nodes` and `spares`, as Slurm shows it
    now."""
    if info is None or not _alive(info):
        return Fate.FORGET
    if asked_nodes != want.nodes:
        return Fate.REPLACE
    if set(info.nodes) & set(want.excluding):
        return Fate.REPLACE
    if info.state in WAITING:
        return Fate.REPLACE if spares and asked_nodes + spares > want.within else Fate.NARROW
    return Fate.TAKE_OVER


class SuccessorQueue:
    """`wanted`: whether the options ask for successors; those of before are looked after anyway."""

    def __init__(self, launcher: SlurmLauncher) -> None:
        self._launcher = launcher
        self.wanted = launcher.options.successor

    def submit(self, job: Job, after: JobHandle) -> JobHandle | None:
        """Queue what will be `job` behind `after`; None where it is settled already.

        The attempt's specification is to be in `prepared(job.attempt_dir)`. Raises as
        `SlurmLauncher.submit` does.
        """
        folder = successor_folder(job.attempt_dir)
        if read_verdict(folder) is not None:
            return None
        known = read_handle(folder)
        if known is not None:
            return known
        options = self._launcher.options
        write_script(job, options, folder / PREPARED_NAME)
        script = write_successor(job, options, folder, after.job_id)
        return self._launcher.submit_script(replace(job, attempt_dir=folder), script)

    def settle(self, attempt_dir: Path, want: Want) -> Settled:
        """Call before an attempt is begun in `attempt_dir`: afterwards either its folder is there,
        with the handle of the job that waited for it, or no other job will ever begin it."""
        folder = successor_folder(attempt_dir)
        if not folder.is_dir():
            return Settled()
        handle = self._find(folder)
        verdict = read_verdict(folder)
        if verdict is not None:
            return self._finish(folder, handle, verdict)
        fate = self._fate(folder, handle, want)
        if fate is Fate.NARROW and handle is not None:
            fate = self._narrow(folder, handle, want)
        if fate is Fate.TAKE_OVER:
            detail = f"goes on as attempt {folder.name}"
            return self._finish(folder, handle, settle(folder, Verdict.TAKEN), detail)
        detail = {
            Fate.REPLACE: "does not fit the decision: another job takes its place",
            Fate.FORGET: "is gone: another job takes its place",
        }[fate]
        return self._finish(folder, handle, settle(folder, Verdict.WITHDRAWN), detail)

    def withdraw(self, attempt_dir: Path) -> Settled:
        """Nothing is to follow: take the waiting job out of the queue. One that went on alone
        before is left to the caller, by its verdict."""
        folder = successor_folder(attempt_dir)
        if not folder.is_dir():
            return Settled()
        known = read_verdict(folder)
        detail = "" if known else "is not needed: taken out of the queue"
        return self._finish(folder, self._find(folder), settle(folder, Verdict.WITHDRAWN), detail)

    def _finish(
        self, folder: Path, handle: JobHandle | None, verdict: Verdict, detail: str = ""
    ) -> Settled:
        if verdict is Verdict.WITHDRAWN:
            if handle is not None and _alive(self._look(handle)):
                self._launcher.client.cancel(handle.job_id)
            return Settled(verdict, handle, detail if handle else "")
        if handle is None:
            raise UserError(f"{folder}: its job was {verdict}, but {folder}/handle.json is missing")
        claim(folder, handle)
        return Settled(verdict, handle, detail)

    def _find(self, folder: Path) -> JobHandle | None:
        """The handle on disk, or that of a job whose submitter died before it wrote one."""
        known = read_handle(folder)
        spec = _spec(folder)
        if known is not None or spec is None:
            return known
        standin = Job(key=str(spec["key"]), command=(), attempt_dir=folder)
        job_id = self._launcher.find(standin)
        return JobHandle(standin.key, self._launcher.name, job_id) if job_id else None

    def _fate(self, folder: Path, handle: JobHandle | None, want: Want) -> Fate:
        info = self._look(handle) if handle else None
        spec = _spec(folder) or {}
        return fate_of(info, int(spec.get("nodes", 0)), want, int(spec.get("spares", 0)))

    def _look(self, handle: JobHandle) -> JobInfo | None:
        info = self._launcher.client.job(handle.job_id)
        return info if info is not None and info.name == handle.key else None  # ids are used again

    def _narrow(self, folder: Path, handle: JobHandle, want: Want) -> Fate:
        """Have it leave the nodes out; it may start at this very moment, even on one of them."""
        try:
            self._launcher.client.exclude(handle.job_id, want.excluding)
        except UserError:
            if self._fate(folder, handle, want) is Fate.NARROW:
                raise  # it still waits, and Slurm refuses
        fate = self._fate(folder, handle, want)
        return Fate.TAKE_OVER if fate is Fate.NARROW else fate


def _alive(info: JobInfo | None) -> bool:
    return info is not None and info.state not in OVER


def prepared(attempt_dir: Path) -> Path:
    """Where the files lie that `attempt_dir` will hold."""
    return successor_folder(attempt_dir) / PREPARED_NAME


def _spec(folder: Path) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] = json.loads((folder / SPEC_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return values
