"""One writer per stage of a workspace.

`flock` is released by the kernel when its holder dies, so a killed run never leaves a stale lock.
It also works across nodes on NFSv4 and Lustre (mounted with `-o flock`).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workspace.errors import WorkspaceBusyError
from workspace.paths import Workspace, safe_name


@contextmanager
def stage_lock(workspace: Workspace, stage: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the exclusive lock of `stage`. Raises `WorkspaceBusyError` naming the holder."""
    path = workspace.locks / f"{safe_name(stage)}.lock"
    with file_lock(path, _what(path, stage), wait_s=wait_s):
        yield


@contextmanager
def file_lock(
    path: Path, what: str, *, shared: bool = False, wait_s: float = 0.0
) -> Iterator[None]:
    """Hold a lock on `path`. Raises `WorkspaceBusyError` with `what` and the last holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as stream:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WorkspaceBusyError(_busy_message(path, what)) from None
                time.sleep(0.2)
        stream.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid()}, stream)
        stream.flush()
        yield


def _what(path: Path, stage: str) -> str:
    return f"{path.parent.parent}: stage '{stage}'"


def _busy_message(path: Path, what: str) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError):
        who = "another process"
    return f"{what} is being written by {who}. Wait for it, stop it, or use another --workspace."
