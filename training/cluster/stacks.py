"""Where a process stands: its main thread's Python stack, innermost function first.

py-spy reads it from outside, also of a stopped process. Where the kernel lets nobody look
(ptrace refused, as in containers without SYS_PTRACE), the rank is asked to write its stacks itself
(`heartbeat.STACK_SIGNAL`), which a stopped one cannot.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from training.cluster.heartbeat import STACK_SIGNAL

_TIMEOUT_S = 5.0
_FRAME = re.compile(r'File "(.*?)", line (\d+) in (.*)')


class Stack(NamedTuple):
    """`frames` as `function (file:line)`; `source` says who told, or why nobody could."""

    frames: tuple[str, ...]
    source: str


def read_stack(pid: int, own_file: Path) -> Stack:
    """The stack of process `pid`, which writes to `own_file` when asked itself."""
    told = _by_py_spy(pid)
    if told.frames:
        return told
    asked = _by_signal(pid, own_file)
    return asked if asked.frames else Stack((), f"{told.source}; {asked.source}")


def _by_py_spy(pid: int) -> Stack:
    program = Path(sys.executable).with_name("py-spy")
    try:
        done = subprocess.run(
            [str(program), "dump", "--nonblocking", "--json", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        threads = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return Stack((), f"py-spy: {error}")
    main = [thread for thread in threads if thread.get("os_thread_id") == pid] or threads
    if not main:
        last = done.stderr.strip().splitlines()[-1:] or ["says nothing"]
        return Stack((), f"py-spy: {last[0]}")
    frames = tuple(
        f"{frame['name']} ({frame['short_filename']}:{frame['line']})"
        for frame in main[0]["frames"]
    )
    return Stack(frames, "py-spy")


def _by_signal(pid: int, own_file: Path) -> Stack:
    before = own_file.stat().st_size if own_file.exists() else 0
    if not _catches(pid, STACK_SIGNAL):
        return Stack((), "the rank listens to no request for its stack")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, STACK_SIGNAL)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if own_file.exists() and own_file.stat().st_size > before:
            time.sleep(0.05)
            with own_file.open("rb") as stream:
                stream.seek(before)
                return Stack(_frames(stream.read().decode("utf-8", "replace")), "faulthandler")
        time.sleep(0.05)
    return Stack((), "the rank did not write its stack")


def _frames(text: str) -> tuple[str, ...]:
    """Of the thread that faulthandler prints last: the main one."""
    last = re.split(r"^(?:Current thread|Thread) ", text, flags=re.MULTILINE)[-1]
    return tuple(
        f"{function} ({Path(file).name}:{line})" for file, line, function in _FRAME.findall(last)
    )


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: without one it would die of it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)
