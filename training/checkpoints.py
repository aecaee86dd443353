"""Checkpoints that are either complete or ignored.

    <stage>/checkpoints/<attempt>/checkpoint-<step>/    Trainer's files + complete.json

The trainer's files are written first and `complete.json` last, after an fsync of each of them; a
folder without it, or with a file of another size, is what a killed writer left. Each attempt
writes into its own folder, and a writer of an older attempt may not complete a checkpoint: ranks
that survive their scheduler (a dead node daemon leaves them running) cannot overwrite newer work.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from workspace import publish

COMPLETE_NAME = "complete.json"
_FOLDER = re.compile(r"checkpoint-(\d+)")


class Checkpoint(NamedTuple):
    """A complete checkpoint. Sorts by step, then attempt."""

    step: int
    attempt: int
    path: Path


class FencedError(RuntimeError):
    """This writer belongs to an attempt that was replaced."""


def complete(folder: Path, *, step: int, attempt: int, world_size: int, attempts: Path) -> None:
    """Flush every file of `folder` and mark it complete.

    `attempts` holds a folder per attempt; raises `FencedError` when one newer than `attempt` is
    there.
    """
    newest = max((int(p.name) for p in attempts.iterdir() if p.name.isdigit()), default=attempt)
    if newest > attempt:
        raise FencedError(f"attempt {attempt} was replaced by {newest}: checkpoint not published")
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
        match = _FOLDER.fullmatch(folder.name)
        if match and folder.parent.name.isdigit() and folder.is_dir():
            found.append(Checkpoint(int(match[1]), int(folder.parent.name), folder))
    return sorted(found)
