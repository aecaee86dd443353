"""Checkpoints that are either complete or ignored. One life for those of every trainer.

    <stage>/checkpoints/<writer>/.incomplete/checkpoint-<step>/   while ranks write
    <stage>/checkpoints/<writer>/checkpoint-<step>/               complete, with complete.json

Ranks write into the first folder. When all of them are done, one flushes every file, adds
`complete.json` (sizes and hashes of the files, world size, lineage) and renames the
folder: that is the instant in which the checkpoint exists. Whatever else lies about is what a
killed writer left; resuming ignores it, `prune` removes it.

Each attempt, and each generation of ranks inside one, writes into its own folder (`3`, then
`3.2`), and an older one may not complete a checkpoint: ranks that survive their scheduler (a dead
node daemon leaves them running) cannot publish beside newer work. The check needs no lock: a new
attempt exists before it prunes, and prunes before it chooses what to resume from, so that a late
rename of an older one either happened before that choice or finds its folder gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from workspace import publish

# Ends the sentence that tells a user what to do after a fault.
AGAIN = "and start the same command: it goes on from the newest complete checkpoint."
COMPLETE_NAME = "complete.json"
INCOMPLETE_NAME = ".incomplete"
_REMOVED_PREFIX = ".removed-"
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

    @property
    def writer(self) -> str:
        """The attempt and generation that wrote it, as in `writer_folder`."""
        return self.path.parent.name

    def manifest(self) -> dict[str, Any]:
        """Its `complete.json`."""
        found: dict[str, Any] = json.loads((self.path / COMPLETE_NAME).read_text(encoding="utf-8"))
        return found


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


def unfinished_folder(checkpoints: Path, attempt: int) -> Path:
    """Where this process writes checkpoints of `attempt` that are not complete yet."""
    return writer_folder(checkpoints, attempt) / INCOMPLETE_NAME


def complete(
    folder: Path,
    *,
    step: int,
    attempt: int,
    world_size: int,
    attempts: Path,
    hashes: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Publish `folder`, `checkpoint-<step>` in `unfinished_folder`; returns its new place.

    `hashes`: file name -> SHA-256, of the files whose writer knows it; the others are hashed here.
    `about` goes into `complete.json`. Raises `FencedError` for a writer that was replaced
    (`require_current`).
    """
    require_current(attempts, attempt)
    known = dict(hashes or {})
    try:
        sizes = _flush(folder)
        manifest = {
            **(about or {}),
            "step": step,
            "attempt": attempt,
            "world_size": world_size,
            "files": sizes,
            "sha256": {**_hash(folder, sizes.keys() - known.keys()), **known},
        }
        # Not through `publish.write_json`, which would make the folder again if it was removed.
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        (folder / COMPLETE_NAME).write_text(text, encoding="utf-8")
        publish.fsync(folder / COMPLETE_NAME)
        require_current(attempts, attempt)
        return _publish(folder)
    except FileNotFoundError as error:
        raise FencedError(f"{folder} was removed by a newer attempt: not published") from error


def _flush(folder: Path) -> dict[str, int]:
    """Put every file on the disk; returns their sizes."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            publish.fsync(path)
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    publish.fsync(folder)
    return sizes


def _hash(folder: Path, names: Collection[str]) -> dict[str, str]:
    """Name -> SHA-256, several files at a time."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: hash_file(folder / name), names), strict=True))


def _publish(folder: Path) -> Path:
    target = folder.parent.parent / folder.name
    if is_complete(target):
        # The same writer saved this step before: asked to stop right after a regular save.
        _remove(folder)
        return target
    if target.exists():
        _remove(target)
    folder.rename(target)
    publish.fsync(target.parent)
    return target


def is_complete(folder: Path) -> bool:
    """Whether every file that was there at the end of the save still is, in its size.

    `prune` may remove the folder under the reader's eyes: then it is not complete.
    """
    try:
        marker = json.loads((folder / COMPLETE_NAME).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in marker["files"].items())
    except (OSError, ValueError):
        return False


def hash_file(path: Path) -> str:
    """SHA-256 in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def damaged_files(checkpoint: Checkpoint, names: Iterable[str]) -> list[str]:
    """Those of `names` whose content is no longer what was written."""
    known = checkpoint.manifest()["sha256"]
    return [
        name for name in names if name in known and hash_file(checkpoint.path / name) != known[name]
    ]


def set_aside(checkpoint: Checkpoint) -> None:
    """Take a damaged checkpoint out of the running; the next `prune` removes it."""
    (checkpoint.path / COMPLETE_NAME).unlink(missing_ok=True)


def complete_checkpoints(checkpoints: Path) -> list[Checkpoint]:
    """All complete checkpoints under `<stage>/checkpoints`, oldest first."""
    return sorted(found for found in _all(checkpoints) if is_complete(found.path))


def newest_complete(checkpoints: Path) -> Checkpoint | None:
    """The one to resume from."""
    while True:
        listed = _all(checkpoints)
        for found in reversed(listed):
            if is_complete(found.path):
                return found
        if all(found.path.exists() for found in listed):
            return None
        # `prune` removed them since they were listed: it leaves a newer one.


def newest_step(checkpoints: Path) -> int:
    """The step of the newest complete checkpoint, 0 when there is none."""
    newest = newest_complete(checkpoints)
    return newest.step if newest else 0


def prune(checkpoints: Path, *, keep: int, attempt: int) -> list[Path]:
    """Remove what broken saves left and all but the newest `keep` (>= 1) complete ones.

    Call from attempt `attempt` when it is not saving: its own unfinished folders go as well.
    Folders of newer attempts are left alone.
    """
    assert keep >= 1, "the newest complete checkpoint is never removed"
    kept = {found.path for found in complete_checkpoints(checkpoints)[-keep:]}
    removed = []
    for found in [*_all(checkpoints), *_all(checkpoints, INCOMPLETE_NAME)]:
        if found.path not in kept and found.attempt <= attempt:
            _remove(found.path)
            removed.append(found.path)
    for trash in checkpoints.glob(f"*/{_REMOVED_PREFIX}*"):
        shutil.rmtree(trash, ignore_errors=True)
    return removed


def _remove(folder: Path) -> None:
    """Rename first: nobody may take a half-removed folder for complete, or publish it."""
    writer = folder.parent if folder.parent.name != INCOMPLETE_NAME else folder.parent.parent
    trash = writer / f"{_REMOVED_PREFIX}{secrets.token_hex(6)}"
    folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _all(checkpoints: Path, inside: str = "") -> list[Checkpoint]:
    found = []
    for folder in checkpoints.glob(f"*/{inside}/checkpoint-*" if inside else "*/checkpoint-*"):
        writer = folder.relative_to(checkpoints).parts[0]
        match, known = _FOLDER.fullmatch(folder.name), _WRITER.fullmatch(writer)
        if match and known:
            found.append(Checkpoint(int(match[1]), int(known[1]), folder))
    return sorted(found)
