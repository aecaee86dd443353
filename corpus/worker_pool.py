"""A pool of child processes that can be killed, one task each at a time.

    with WorkerPool(4, setup, limits) as pool:
        pool.submit(task, payload)          queued; starts when a child is free
        for outcome in pool.outcomes(): ...

One hanging or exploding document costs itself only: the parent watches CPU and wall time of each
task and kills the child with all that it started past its limit; a child that dies is an outcome,
not an error. Each {"page": n} or {"document": n} from a child starts the clock anew. Children are
started with a plain `python -m corpus.worker`, so they import neither Prefect nor the parent's
`__main__`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from corpus.step_clock import LOST
from workspace.errors import DsmError

# A loaded machine stretches wall time; CPU time tells a hang from a queue.
WALL_FACTOR: Final = 6.0
# For a child's imports, about 4 s.
START_CPU_S: Final = 60.0
POLL_S: Final = 0.25
STDERR_TAIL: Final = 400
WORKER_COMMAND = [sys.executable, "-m", "corpus.worker"]
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class WorkerStartError(DsmError):
    """Children die before they take a task: a broken installation or too low a memory limit."""


@dataclass(frozen=True)
class Limits:
    """When a child is killed, and when it is replaced between tasks."""

    recycle_rss_mb: int = 680
    recycle_pages: int = 400


@dataclass(frozen=True)
class Task:
    """What to send, and the CPU seconds that it may take (per page where it reports pages)."""

    message: dict[str, Any]
    cpu_limit_s: float
    first: bool = False  # goes before what is queued


@dataclass(frozen=True)
class Outcome:
    """How a task ended: exactly one of `done`, `unreadable` and `failure` is set."""

    task: Task
    parts_done: tuple[int, ...] = ()  # pages, or the places of documents in their batch
    done: dict[str, Any] | None = None
    unreadable: dict[str, Any] | None = None
    failure: str = ""  # timeout | crash | out_of_memory | parser_error
    detail: str = ""
    cpu_s: Mapping[str, float] = field(default_factory=dict)  # by step (`corpus.step_clock`)


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    stderr: Any
    task: Task | None = None
    ready: bool = False
    buffer: bytes = b""
    parts: list[int] = field(default_factory=list)
    pages_served: int = 0
    rss_mb: int = 0
    setup: dict[str, Any] = field(default_factory=dict)  # what it was last told
    task_cpu_start: float = 0.0
    cpu_start: float = 0.0
    wall_start: float = 0.0


class WorkerPool:
    """Runs tasks in up to `workers` children. Use as a context manager."""

    def __init__(self, workers: int, setup: dict[str, Any], limits: Limits | None = None) -> None:
        self.workers = workers
        self._setup = setup
        self._limits = limits or Limits()
        self._queue: deque[Task] = deque()
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, workers: int, setup: dict[str, Any]) -> None:
        """Serve a new setup with the children that live, at most `workers` of them."""
        self.workers = workers
        self._setup = setup
        for number, child in enumerate(list(self._children)):
            if number >= workers or child.process.poll() is not None:
                self._stop(child)

    def close(self) -> None:
        """Kill all children."""
        for child in list(self._children):
            self._stop(child)
        self._selector.close()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        if task.first:
            self._queue.appendleft(task)
        else:
            self._queue.append(task)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield outcomes as they come, until no task is left; more may be submitted meanwhile."""
        while self._queue or any(child.task for child in self._children):
            self._start_tasks()
            for key, _ in self._selector.select(timeout=POLL_S):
                yield from self._receive(key.data)
            yield from self._kill_overdue()

    def _start_tasks(self) -> None:
        idle = [child for child in self._children if child.task is None]
        while self._queue and (idle or len(self._children) < self.workers):
            child = idle.pop() if idle else self._spawn()
            self._send(child, self._queue.popleft())

    def _spawn(self) -> _Child:
        stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed in _stop
        process = subprocess.Popen(
            WORKER_COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, **_child_environment()},
        )
        child = _Child(process, stderr, setup=self._setup)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, child)
        self._children.append(child)
        self._write(child, self._setup)
        return child

    def _send(self, child: _Child, task: Task) -> None:
        child.task = task
        child.parts = []
        child.task_cpu_start = child.cpu_start = _cpu_seconds(child.process.pid)
        child.wall_start = time.monotonic()
        if child.setup is not self._setup:
            child.setup = self._setup
            self._write(child, {"kind": "setup", "setup": self._setup})
        self._write(child, task.message)

    @staticmethod
    def _write(child: _Child, message: dict[str, Any]) -> None:
        assert child.process.stdin is not None
        # A child that is already dead is found when its stdout closes.
        with contextlib.suppress(BrokenPipeError):
            child.process.stdin.write(json.dumps(message).encode() + b"\n")
            child.process.stdin.flush()

    def _receive(self, child: _Child) -> Iterator[Outcome]:
        assert child.process.stdout is not None
        try:
            data = os.read(child.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            yield from self._bury(child)
            return
        *lines, child.buffer = (child.buffer + data).split(b"\n")
        for line in lines:
            yield from self._handle(child, json.loads(line))

    def _handle(self, child: _Child, message: dict[str, Any]) -> Iterator[Outcome]:
        child.rss_mb = message["rss_mb"]
        if "ready" in message:
            child.ready = True
            # Its imports took seconds that are not the first task's.
            child.cpu_start = _cpu_seconds(child.process.pid)
            child.wall_start = time.monotonic()
            return
        if "page" in message or "document" in message:
            child.parts.append(message["page"] if "page" in message else message["document"])
            # Documents of a batch are small, and a new child costs seconds.
            child.pages_served += "page" in message
            child.cpu_start = _cpu_seconds(child.process.pid)
            child.wall_start = time.monotonic()
            return
        task, child.task = child.task, None
        assert task is not None
        parts = tuple(child.parts)
        failed = message.get("error")
        if failed:
            reason, detail = failed["reason"], failed["detail"]
            yield Outcome(task, parts, failure=reason, detail=detail, cpu_s=message["cpu_s"])
        else:
            yield Outcome(
                task,
                parts,
                done=message.get("done"),
                unreadable=message.get("unreadable"),
                cpu_s=message["cpu_s"],
            )
        if failed or self._is_worn(child):
            self._stop(child)

    def _is_worn(self, child: _Child) -> bool:
        return (
            child.rss_mb > self._limits.recycle_rss_mb
            or child.pages_served >= self._limits.recycle_pages
        )

    def _bury(self, child: _Child) -> Iterator[Outcome]:
        """The child closed its stdout: it is dead or dying."""
        lost = _lost_seconds(child)
        code = child.process.wait()
        tail = _tail(child.stderr)
        task, parts = child.task, tuple(child.parts)
        ready = child.ready
        self._stop(child)
        if not ready:
            # Not the document's fault: the next child would die of the same.
            raise WorkerStartError(f"a parser process cannot start (code {code}): {tail}")
        if task is not None:
            reason, detail = _describe_death(code, tail)
            yield Outcome(task, parts, failure=reason, detail=detail, cpu_s=lost)

    def _kill_overdue(self) -> Iterator[Outcome]:
        for child in list(self._children):
            if child.task is None:
                continue
            cpu = _cpu_seconds(child.process.pid) - child.cpu_start
            wall = time.monotonic() - child.wall_start
            limit = child.task.cpu_limit_s if child.ready else START_CPU_S
            if cpu <= limit and wall <= WALL_FACTOR * limit:
                continue
            task, parts, lost = child.task, tuple(child.parts), _lost_seconds(child)
            self._stop(child)
            if not child.ready:
                raise WorkerStartError(f"a parser process did not start in {wall:.0f} s")
            detail = f"killed after {cpu:.0f} CPU seconds, {wall:.0f} s in all (limit {limit:g})"
            yield Outcome(task, parts, failure="timeout", detail=detail, cpu_s=lost)

    def _stop(self, child: _Child) -> None:
        """Kill the child with all that it started, and forget it."""
        if child not in self._children:
            return
        self._children.remove(child)
        process = child.process
        assert process.stdin is not None and process.stdout is not None
        self._selector.unregister(process.stdout)
        # Converters that a parser started may have a process group of their own.
        for pid in [*_descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        child.stderr.close()


_warm: dict[str, WorkerPool] = {}


@contextlib.contextmanager
def warm_pool(workers: int, setup: dict[str, Any]) -> Iterator[WorkerPool]:
    """A pool whose children wait for the next shard: starting one costs 4 s of CPU and more.

    It is this block's alone. An error in the block kills it, `close_warm_pools` one that waits.
    """
    key = _start_conditions(setup)
    pool = _warm.pop(key, None) or WorkerPool(workers, setup)
    close_warm_pools()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pool)
        pool.prepare(workers, setup)
        yield pool
        stack.pop_all()
    _warm[key] = pool


def _start_conditions(setup: dict[str, Any]) -> str:
    """What a child cannot change once it runs."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    conditions = [WORKER_COMMAND, setup["memory_limit_mb"], environment]
    return json.dumps(conditions, sort_keys=True)


def close_warm_pools() -> None:
    """End the children that wait for a next shard."""
    while _warm:
        _warm.popitem()[1].close()


def _child_environment() -> dict[str, str]:
    """Find this package, and one thread each."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", **threads}


def _describe_death(code: int, tail: str) -> tuple[str, str]:
    if code >= 0:
        memory = "MemoryError" in tail or "bad_alloc" in tail
        return ("out_of_memory" if memory else "crash"), f"the parser left with code {code}: {tail}"
    name = signal.Signals(-code).name
    if -code == signal.SIGXCPU:
        return "timeout", "the CPU limit was reached"
    # Nobody here killed it, so the kernel did, for memory.
    memory = -code == signal.SIGKILL or "bad_alloc" in tail or "MemoryError" in tail
    return ("out_of_memory" if memory else "crash"), f"the parser died of {name}: {tail}"


def _tail(stream: Any) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - STDERR_TAIL))
    return " ".join(stream.read().decode("utf-8", "replace").split())


def _descendants(pid: int) -> list[int]:
    """Processes started by `pid`, directly or not."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    children = [int(child) for child in listed.split()]
    return [*children, *(deeper for child in children for deeper in _descendants(child))]


def _lost_seconds(child: _Child) -> dict[str, float]:
    """What a child that cannot answer any more spent on its task; ask before it is reaped."""
    return {LOST: max(0.0, _cpu_seconds(child.process.pid) - child.task_cpu_start)}


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and of all that it started, 0 when it is gone."""
    ticks = 0
    for running in (pid, *_descendants(pid)):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{running}/stat").read_text(encoding="ascii", errors="replace")
            # Its own, and that of its ended children.
            ticks += sum(int(value) for value in stat.rsplit(")", 1)[1].split()[11:15])
    return ticks / _TICKS
