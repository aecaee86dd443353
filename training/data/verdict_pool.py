"""Verdicts from processes of their own: an answer can cost its own verdict, and nothing else.

    pool = VerdictPool(workers=2, timeout_s=60)
    pool.verdicts([Asked("exact", '{"value": "7"}', "Answer: 7")])

A verifier that takes longer than `timeout_s` is killed with all that it started; one that dies is
started again. Either way the answer has no verdict (`infra:timeout`, `infra:crash`), which is
neither right nor wrong. The workers are started when they are first needed, with a plain
`python -m`, so they inherit no threads and no GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from evaluation.verifiers import Verdict
from workspace.errors import DsmError, UserError

VERIFY: Final = "evaluation.verifiers:verify"
TIMEOUT_S: Final = 60.0
START_TIMEOUT_S: Final = 120.0  # of a worker's imports, on a machine that is busy with training
MOST_WORKERS: Final = 16
_ROOT: Final = Path(__file__).resolve().parents[2]


class Asked(NamedTuple):
    """An answer to be judged: the verifier's name, its ground truth (JSON), the text."""

    kind: str
    truth: str
    answer: str


class VerdictPool:
    """At most `workers` processes. `verify`: MODULE:FUNCTION(kind, truth, answer) -> Verdict."""

    def __init__(self, workers: int, timeout_s: float = TIMEOUT_S, verify: str = VERIFY) -> None:
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(verify, timeout_s) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="verdicts")

    def verdicts(self, asked: Sequence[Asked]) -> list[Verdict]:
        """One each, in order. Raises `UserError` for a kind or a ground truth that is wrong."""
        return list(self._threads.map(self._one, asked))

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown()
        for worker in self._workers:
            worker.end()

    def _one(self, asked: Asked) -> Verdict:
        worker = self._idle.get()
        try:
            return worker.ask(asked)
        finally:
            self._idle.put(worker)


def default_workers() -> int:
    """As many as this rank has cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST_WORKERS, len(os.sched_getaffinity(0)) // ranks))


class _Dead(Exception):
    """The worker's process closed its output."""


class _Worker:
    """A process that is started when it is asked, and again when it was lost."""

    def __init__(self, verify: str, timeout_s: float) -> None:
        self._verify = verify
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""

    def ask(self, asked: Asked) -> Verdict:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(asked._asdict()).encode() + b"\n")
            process.stdin.flush()
            reply = self._receive(process, self._timeout_s)
        except TimeoutError:
            self.end()
            return Verdict(None, "infra:timeout", f"no verdict in {self._timeout_s:g} s")
        except (_Dead, BrokenPipeError):
            return Verdict(None, "infra:crash", f"the verifier's process ended: {self.end()}")
        if "refused" in reply:
            raise UserError(reply["refused"])
        return Verdict(reply["score"], reply["outcome"], reply["detail"])

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        self._read = b""
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "training.data.verdict_worker", self._verify],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            self._receive(process, START_TIMEOUT_S)
        except (_Dead, TimeoutError) as error:
            raise DsmError(
                f"a verifier's process does not start ({self.end()}); its last words are in this "
                "log"
            ) from error
        return process

    def _receive(self, process: subprocess.Popen[bytes], timeout_s: float) -> dict[str, Any]:
        """The next line. Raises `TimeoutError` or `_Dead`."""
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    raise _Dead
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def end(self) -> str:
        """Kill the process and what it started; says how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "not running"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a simulator of its own group dies with bwrap
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
