"""A program that a node agent runs beside its ranks: a check of the node or of a link.

The agent has one thread and must not wait: it starts the program, looks from time to time, and
kills it with all that it started when its time is up. The kernel kills it when the agent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class TaskResult(NamedTuple):
    """How it ended; `code` None: it was killed because its time was up."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line of its error output, at most 300 characters."""
        lines = list(filter(None, map(str.strip, self.stderr.splitlines())))
        return (lines[-1] if lines else f"exit code {self.code}")[:300]


class SideTask:
    """Started at once; to be looked at with `poll`, or ended."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float = math.inf,
    ) -> None:
        self._deadline = time.monotonic() + timeout_s
        # Files, not pipes: nobody reads while it writes.
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115 - closed once it is read
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def say(self, line: str) -> None:
        """Give it a short line; one that has ended is not there to hear it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode("utf-8") + b"\n")
            self._process.stdin.flush()

    def heard(self) -> list[str]:
        """The whole lines that it has printed so far."""
        return _text(self._stdout).rpartition("\n")[0].splitlines()

    def poll(self) -> TaskResult | None:
        """Its result once it has ended, None before."""
        code = self._process.poll()
        if code is None and time.monotonic() < self._deadline:
            return None
        self.end()
        result = TaskResult(code, _text(self._stdout), _text(self._stderr))
        self._stdout.close()
        self._stderr.close()
        return result

    def end(self) -> None:
        """Kill what runs of it."""
        # Where there is no such group, it has ended with all that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # One that is in the kernel for good is waited for by nobody.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def die_with_parent() -> None:
    """In the child: the kernel kills it when the agent ends, however that comes about.

    One system call, and nothing that a lock of another thread could hold up.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _text(stream: IO[bytes]) -> str:
    # Not by seek and read: the place in the file is the writer's as well.
    size = os.fstat(stream.fileno()).st_size
    return os.pread(stream.fileno(), size, 0).decode("utf-8", "replace")
