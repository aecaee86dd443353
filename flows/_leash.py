"""Child processes that end with their parent, whatever ends the parent.

A child on the leash holds the read end of a pipe as its standard input; the kernel closes the
other end when the parent dies, by kill -9 too. Works on any POSIX system, unlike PR_SET_PDEATHSIG.

    python -m flows._leash prefect server start     runs `python -m prefect server start` so
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO


def end_with_parent(cleanup: Callable[[], None] | None = None) -> None:
    """In the child: leave at once when standard input ends, after `cleanup`."""

    def watch() -> None:
        # Not `sys.stdin`: its lock, held by this thread, would abort the interpreter's own end.
        while os.read(0, 4096):
            continue
        if cleanup is not None:
            cleanup()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leash").start()


def start_module(
    arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """In the parent: run `python -m <arguments>` on the leash, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows._leash", *arguments],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=dict(environment),
        start_new_session=True,
    )


if __name__ == "__main__":
    end_with_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
