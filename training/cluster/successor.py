"""A job that waits in the queue to go on where a running attempt will end: insurance.

    <stage>/successors/<n>/            handle.json (the job), job.sbatch, job.log
                          /attempt/    what `attempts/<n>` will hold: spec.json, job.sbatch, ...
                          /verdict.json  taken, alone or withdrawn; written once

`attempts/<n>` itself must not exist before attempt n-1 is over, since its checkpoints would be
fenced off. So the job starts as nothing, and asks (`python -m training.cluster.successor FOLDER`)
whether it is wanted. A living supervisor decides on attempt n-1 and says `taken` or `withdrawn`;
without one the job waits for a while and then says `alone` itself. After `taken` or `alone` the
prepared folder is renamed to `attempts/<n>`, and the job goes on as that attempt; after `withdrawn`
it trains nothing. The verdict is a link to a file that is whole: only one can be there, and
whichever process dies in between, the next one finishes what the verdict says.

Not covered: a successor of a successor while no supervisor lives. It is one job, not a chain.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from training.attempt_history import OUTCOME_NAME, STOPPED
from training.cluster.job import CANCEL_FILE, EXIT_DONE, EXIT_NEVER_AGAIN, JobHandle
from training.cluster.local import EXIT_NAME, HANDLE_NAME
from training.cluster.render import REFUSED, SPEC_NAME, STARTED_NAME
from training.cluster.slurm_client import SlurmClient
from training.run_events import EVENTS_NAME, EventLog
from training.run_record import SUCCESSORS
from workspace import publish
from workspace.errors import CorruptWorkspaceError, MissingToolError, TransientError, UserError

PREPARED_NAME = "attempt"
VERDICT_NAME = "verdict.json"
BEGAN_NAME = "successor.json"  # in the attempt's folder: when its job began to wait for a verdict
POLL_S = 1.0


class Verdict(StrEnum):
    """What became of a successor."""

    TAKEN = "taken"  # by the supervisor, as the next attempt
    ALONE = "alone"  # nobody decided in time: it went on by itself
    WITHDRAWN = "withdrawn"  # it must not train


class Answer(StrEnum):
    """To a successor that has started and asks what to do."""

    GO = "go"
    GO_ALONE = "go alone"
    WAIT = "wait"
    LEAVE = "leave"


class Scene(NamedTuple):
    """What a started successor finds. `newest` is the highest number of an attempt that exists."""

    number: int
    newest: int
    verdict: Verdict | None = None
    owns_attempt: bool = False  # attempts/<number> is this job's: Slurm started it again
    stage_done: bool = False
    closed: bool = False  # attempts/<number> is over
    former_exit: int | None = None  # of the attempt before, as it recorded itself
    former_cancelled: bool = False  # by a person: in Slurm, or through reconcile
    former_stopped: bool = False  # its supervisor decided that nothing follows


def answer(scene: Scene, *, waited_s: float, patience_s: float) -> tuple[Answer, str]:
    """What a successor does, and why."""
    why = refusal(scene)
    if why:
        return Answer.LEAVE, why
    if scene.verdict in (Verdict.TAKEN, Verdict.ALONE):
        return Answer.GO, "the supervisor took it over" if scene.verdict is Verdict.TAKEN else ""
    former = scene.number - 1
    if waited_s < patience_s:
        return Answer.WAIT, f"for a supervisor to decide on attempt {former}"
    return Answer.GO_ALONE, (
        f"attempt {former} ended, and no supervisor decided on it within {patience_s:.0f} s"
    )


def refusal(scene: Scene) -> str:
    """Why the successor must not train; "" when it may."""
    former = scene.number - 1
    if scene.verdict is Verdict.WITHDRAWN:
        return "it was withdrawn"
    if scene.newest > scene.number:
        return f"attempt {scene.newest} is newer"
    if scene.closed:
        return f"attempt {scene.number} is over"
    if scene.stage_done:
        return "the stage is done"
    if scene.newest == scene.number and not scene.owns_attempt and scene.verdict is None:
        return f"attempt {scene.number} is another job's"
    if scene.verdict is not None:
        return ""  # whoever gave it knew how the former attempt ended
    if scene.former_exit in (EXIT_DONE, EXIT_NEVER_AGAIN):
        return f"attempt {former} ended with {scene.former_exit}"
    if scene.former_cancelled:
        return f"attempt {former} was cancelled"
    return f"nothing is to follow attempt {former}" if scene.former_stopped else ""


def successor_folder(attempt_dir: Path) -> Path:
    """Where the job waits that may become the attempt of folder `attempt_dir`."""
    return attempt_dir.parent.parent / SUCCESSORS / attempt_dir.name


def attempt_folder(successor: Path) -> Path:
    """The folder of the attempt that the successor of folder `successor` may become."""
    return successor.parent.parent / "attempts" / successor.name


def read_verdict(folder: Path) -> Verdict | None:
    """The verdict on the successor of `folder`; None before there is one."""
    values = _json(folder / VERDICT_NAME)
    return Verdict(values["verdict"]) if values else None


def settle(folder: Path, verdict: Verdict) -> Verdict:
    """Give `verdict` unless there is one already; returns the one that holds."""
    known = read_verdict(folder)
    if known is not None:
        return known
    draft = folder / f".{VERDICT_NAME}.{secrets.token_hex(6)}"
    draft.write_text(json.dumps({"verdict": verdict, "time": time.time()}), encoding="utf-8")
    try:
        publish.fsync(draft)
        # Unlike a rename, a link fails where there is a verdict already.
        os.link(draft, folder / VERDICT_NAME)
        publish.fsync(folder)
    except FileExistsError:
        pass  # another process was first: what it said is read below
    finally:
        draft.unlink()
    holds = read_verdict(folder)
    assert holds is not None, f"{folder / VERDICT_NAME} was just there"
    return holds


def claim(folder: Path, handle: JobHandle) -> None:
    """Make the prepared folder `attempts/<n>`, with `handle`. Done twice, it is done once."""
    target = attempt_folder(folder)
    try:
        (folder / PREPARED_NAME).rename(target)
        publish.fsync(target.parent)
    except FileNotFoundError as error:
        if not target.is_dir():
            raise CorruptWorkspaceError(
                f"{folder}: neither {PREPARED_NAME}/ nor {target} is there"
            ) from error
    publish.write_json(target / HANDLE_NAME, asdict(handle))


def scene_of(folder: Path, job_id: str, *, former_cancelled: bool = False) -> Scene:
    """What job `job_id`, the successor of `folder`, finds on disk."""
    target = attempt_folder(folder)
    number = int(folder.name)
    former = target.parent / str(number - 1)
    numbers = [int(path.name) for path in target.parent.glob("*") if path.name.isdigit()]
    outcome = _json(former / OUTCOME_NAME) or {}
    exited = _json(former / EXIT_NAME) or {}
    handle = _json(target / HANDLE_NAME) or {}
    return Scene(
        number,
        max(numbers, default=0),
        read_verdict(folder),
        handle.get("job_id") == job_id,
        (target.parent.parent / "result.json").exists(),
        (target / OUTCOME_NAME).exists(),
        exited.get("exit_code"),
        former_cancelled or (former / CANCEL_FILE).exists(),
        outcome.get("decision", {}).get("action") == STOPPED,
    )


def ask(folder: Path, job_id: str, patience_s: float) -> bool:
    """Wait for the answer; whether the job is to go on as `attempts/<n>`, which is there then."""
    began, since = time.time(), time.monotonic()
    cancelled = _was_cancelled(attempt_folder(folder).parent / str(int(folder.name) - 1))
    while True:
        scene = scene_of(folder, job_id, former_cancelled=cancelled)
        said, why = answer(scene, waited_s=time.monotonic() - since, patience_s=patience_s)
        if said is Answer.WAIT:
            time.sleep(POLL_S)
            continue
        if said is Answer.GO_ALONE and settle(folder, Verdict.ALONE) is Verdict.WITHDRAWN:
            said, why = Answer.LEAVE, "it was withdrawn"
        print(f"successor, job {job_id}: {said}: {why}", flush=True)
        if said is Answer.LEAVE:
            return False
        key = str((_json(folder / SPEC_NAME) or {})["key"])
        claim(folder, JobHandle(key, "slurm", job_id))
        target = attempt_folder(folder)
        if not scene.owns_attempt:
            publish.write_json(target / BEGAN_NAME, {"job_id": job_id, "began": began})
        if said is Answer.GO_ALONE:
            EventLog(target / EVENTS_NAME).say("successor_alone", f"job {job_id} goes on: {why}")
        return True


def _was_cancelled(former: Path) -> bool:
    """Whether Slurm says that a person ended the former attempt's job; False when it is silent.

    It says the same of a job whose prolog failed, which never began.
    """
    handle = _json(former / HANDLE_NAME)
    if handle is None or not (former / STARTED_NAME).exists():
        return False
    try:
        info = SlurmClient().job(handle["job_id"])
    except (TransientError, MissingToolError, UserError) as error:
        print(f"successor: Slurm does not say how the former job ended: {error}", flush=True)
        return False
    return info is not None and info.name == handle["key"] and info.state == "CANCELLED"


def _json(path: Path) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptWorkspaceError(f"{path} is not JSON: {error}") from error
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """`FOLDER PATIENCE_S`, from the batch script: 0 when the job is to train."""
    folder, patience_s = arguments or sys.argv[1:]
    goes = ask(Path(folder), os.environ["SLURM_JOB_ID"], float(patience_s))
    return 0 if goes else REFUSED


if __name__ == "__main__":
    sys.exit(main())
