"""Run measurements in children that can be killed.

A dead NFS mount or a stuck driver holds whoever touches it in the kernel for ever, where even
SIGKILL waits. So each measurement runs in a child of its own and the parent never waits for a
child that does not end.

Fork is used and not spawn, since a new interpreter would itself have to be read from the file
system that is under suspicion. Call from a process without threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a measurement came to: a JSON value, or why there is none."""

    value: Any = None
    error: str = ""
    timed_out: bool = False
    seconds: float = 0.0


class _Child(NamedTuple):
    pid: int
    stream: int


def measure_all(measures: Sequence[Callable[[], Any]], timeout_s: float) -> list[Outcome]:
    """Run all of them at once; each returns a JSON value or raises. In the order given."""
    started = time.monotonic()
    children = [_start(measure) for measure in measures]
    answers: dict[int, bytes] = {}
    outcomes: dict[int, Outcome] = {}
    waiting = {child.stream: index for index, child in enumerate(children)}
    while waiting:
        left_s = started + timeout_s - time.monotonic()
        if left_s <= 0:
            break
        for stream in select.select(list(waiting), [], [], left_s)[0]:
            data = os.read(stream, 65536)
            index = waiting[stream]
            answers[index] = answers.get(index, b"") + data
            if not data:
                del waiting[stream]
                outcomes[index] = _parse(answers[index], time.monotonic() - started)
    for index, child in enumerate(children):
        _end(child)
        outcomes.setdefault(
            index,
            Outcome(None, f"no answer in {timeout_s:g} s", True, time.monotonic() - started),
        )
    return [outcomes[index] for index in range(len(children))]


def _start(measure: Callable[[], Any]) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Child(pid, reading)
    # The child: a group of its own, so that commands that it starts end with it.
    code = 1
    try:
        os.setsid()
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _write(writing, _answer(measure))
        code = 0
    finally:
        os._exit(code)


def _answer(measure: Callable[[], Any]) -> bytes:
    try:
        return json.dumps({"value": measure()}).encode()
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()


def _write(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def _parse(answer: bytes, seconds: float) -> Outcome:
    if not answer:
        return Outcome(None, "the check's process died", False, seconds)
    values = json.loads(answer)
    return Outcome(values.get("value"), values.get("error", ""), False, seconds)


def _end(child: _Child) -> None:
    os.close(child.stream)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Not yet leader of its group, or gone.
        os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if os.waitpid(child.pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    # In the kernel for good: init inherits it when this process ends.
