"""Where Prometheus finds the node agents: a file for each in one folder (`file_sd_configs`).

An agent writes its file when it begins to serve and removes it when it leaves. One that died with
its node cannot: the job's coordinator removes it at its end, or that of the next attempt at its
beginning. Prometheus' patterns allow a star in the last part of a path only: hence one folder for
all runs of a workspace, or of a site.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TARGET_PREFIX = "dsm-"  # temporary files begin with a dot


def target_file(targets: Path, folder: Path, node: str) -> Path:
    """The file of one node of an attempt: `dsm-<hash of the stage's folder>-<n>-<node>.json`."""
    return targets / f"{TARGET_PREFIX}{_stage_hash(folder)}-{folder.name}-{node}.json"


@contextmanager
def targets_of(targets: Path | None, folder: Path) -> Iterator[None]:
    """For a job's coordinator: what agents of this attempt leave behind is removed at the end, what
    those of earlier attempts left at the beginning."""
    if targets is None:
        yield
        return
    if folder.name.isdigit():
        for number in range(1, int(folder.name)):
            _forget(targets, folder.with_name(str(number)))
    try:
        yield
    finally:
        _forget(targets, folder)


def _forget(targets: Path, folder: Path) -> None:
    name = glob.escape(f"{TARGET_PREFIX}{_stage_hash(folder)}-{folder.name}-")
    for path in targets.glob(f"{name}*.json"):
        with contextlib.suppress(OSError):  # of another user's folder: its target shows as down
            path.unlink(missing_ok=True)


def _stage_hash(folder: Path) -> str:
    return hashlib.sha256(str(folder.parent).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def place_of(folder: Path) -> dict[str, str]:
    """Labels from an attempt's folder, `<run>/<stage>/attempts/<n>`."""
    known = folder.parent.name == "attempts" and len(folder.parents) > 2
    return {
        "run": folder.parents[2].name if known else "",
        "stage": folder.parents[1].name if known else "",
        "attempt": folder.name if folder.name.isdigit() else "",
    }
