"""Checkpoints that are either complete or ignored.

    <stage>/checkpoints/<writer>/checkpoint-<step>/     Trainer's files + complete.json

The trainer's files are written first and `complete.json` last, after an fsync of each of them; a
folder without it, or with a file of another size, is what a killed writer left. Each attempt, and
each generation of ranks inside one, writes into its own folder (`3`, then `3.2`), and an older one
may not complete a checkpoint: ranks that survive their scheduler (a dead node daemon leaves them
running) cannot overwrite newer work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from workspace import publish

COMPLETE_NAME = "complete.json"
# In an attempt's folder: the generation of ranks that may write. Absent: the first.
GENERATION_NAME = "generation"
GENERATION_VARIABLE = "DSM_GENERATION"  # what a rank was started as
_FOLDER = re.compile(r"checkpoint-(\d+)")
_WRITER = re.compile(r"(\d+)(?:\.\d+)?")


class Checkpoint(NamedTuple):
    """A complete checkpoint. Sorts by step, then attempt."""

    step: int
    attempt: int
    path: Path


class FencedError(RuntimeError):
    """This writer belongs to an attempt, or to a generation of ranks, that was replaced."""


def own_generation() -> int:
    """The generation that this process was started as (1 without a node agent)."""
    return int(os.environ.get(GENERATION_VARIABLE, "1"))


def writer_folder(checkpoints: Path, attempt: int) -> Path:
    """Where this process writes the checkpoints of `attempt`."""
    generation = own_generation()
    return checkpoints / (f"{attempt}.{generation}" if generation > 1 else str(attempt))


def require_current(attempts: Path, attempt: int) -> None:
    """Raise `FencedError` when a newer attempt, or a newer generation of `attempt`, was started.

    `attempts` holds a folder per attempt.
    """
    newest = max((int(p.name) for p in attempts.iterdir() if p.name.isdigit()), default=attempt)
    if newest > attempt:
        raise FencedError(f"attempt {attempt} was replaced by {newest}: nothing is published")
    try:
        current = int((attempts / str(attempt) / GENERATION_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if current > own_generation():
        raise FencedError(
            f"generation {own_generation()} of attempt {attempt} was replaced by {current}: "
            "nothing is published"
        )


def complete(folder: Path, *, step: int, attempt: int, world_size: int, attempts: Path) -> None:
    """Flush every file of `folder` and mark it complete.

    Raises `FencedError` for a writer that was replaced (`require_current`).
    """
    require_current(attempts, attempt)
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            publish.fsync(path)
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    publish.fsync(folder)
    publish.write_json(
        folder / COMPLETE_NAME,
        {"step": step, "attempt": attempt, "world_size": world_size, "files": sizes},
    )


def is_complete(folder: Path) -> bool:
    """Whether every file that was there at the end of the save still is, in its size."""
    try:
        marker = json.loads((folder / COMPLETE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in marker["files"].items()
    )


def complete_checkpoints(checkpoints: Path) -> list[Checkpoint]:
    """All complete checkpoints under `<stage>/checkpoints`, oldest first."""
    return sorted(found for found in _all(checkpoints) if is_complete(found.path))


def newest_complete(checkpoints: Path) -> Checkpoint | None:
    """The one to resume from."""
    found = complete_checkpoints(checkpoints)
    return found[-1] if found else None


def prune(checkpoints: Path, *, keep: int, attempt: int) -> list[Path]:
    """Remove what broken saves left and all but the newest `keep` (>= 1) complete ones.

    Call from attempt `attempt` when it is not saving: its own unfinished folders go as well.
    Folders of newer attempts are left alone.
    """
    assert keep >= 1, "the newest complete checkpoint is never removed"
    kept = {found.path for found in complete_checkpoints(checkpoints)[-keep:]}
    removed = []
    for found in _all(checkpoints):
        if found.path not in kept and found.attempt <= attempt:
            # Unmark first: a half-removed folder must not look complete.
            (found.path / COMPLETE_NAME).unlink(missing_ok=True)
            shutil.rmtree(found.path, ignore_errors=True)
            removed.append(found.path)
    return removed


def _all(checkpoints: Path) -> list[Checkpoint]:
    found = []
    for folder in checkpoints.glob("*/checkpoint-*"):
        match, writer = _FOLDER.fullmatch(folder.name), _WRITER.fullmatch(folder.parent.name)
        if match and writer and folder.is_dir():
            found.append(Checkpoint(int(match[1]), int(writer[1]), folder))
    return sorted(found)
